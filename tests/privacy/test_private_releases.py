"""Noise of clients, before the sketch, and of bounds that follow a quantile."""

import dataclasses

import cases
from fl_sketch import rounds
from fl_sketch.privacy.mechanisms import private_mean
from fl_sketch.rounds import comms, keys as keys_lib, mesh as mesh_lib
import jax
import jax.numpy as jnp
import numpy as np
import private_cases as private
from private_cases import HP, RELEASE, SECRET, SOME, C, R, Z, has_stddev, make
import pytest


@pytest.mark.representatives('local-4')
@pytest.mark.parametrize('count', [1, 4])
@pytest.mark.parametrize('trust', ['local', 'secure_aggregation'])
def test_noise_of_clients_adds_up(trust, count):
  """Catches shares of another size: all of it from each, or 1 / min_honest."""
  sent = private.SILENT._replace(
    weight=np.float32(np.arange(private.LANES) < count)
  )
  honest = 1 if trust == 'local' else 3
  if trust == 'local':
    release = private_mean.LocalRelease(R)
  else:
    release = private_mean.DistributedRelease(R, min_honest=honest)
  (x,) = private.draws('safl', sent, release=release, count=400)
  assert has_stddev(x, Z * C * (count / honest) ** 0.5 / R)
  assert not has_stddev(x, Z * C * (count / honest) ** 0.5 / R * 1.3)


def test_noise_of_clients_is_each_ones_own():
  """Two clients' noises, in two releases of two rounds, are independent."""
  release = private_mean.LocalRelease(R)

  def one(secret, r, client, index):
    keys = keys_lib.for_lanes(
      keys_lib.noise_keys(secret, r), jnp.int32(client)[None]
    )
    take = release.with_hyper(HP).mean(index).take
    extra = {'comm': comms.Shards(), 'weight': jnp.ones(1), 'noise': keys}
    mean = lambda x: take(x, **extra)[0]
    return jax.shard_map(
      mean, mesh=mesh_lib.cohort_mesh(1), in_specs=jax.P(comms.SHARD),
      out_specs=jax.P(),
    )(jnp.zeros((1, 3)))  # fmt: skip

  which = jnp.array(np.indices((2, 2, 2)).reshape(3, -1))
  secrets = jax.random.split(SECRET, 2000)
  run = jax.vmap(jax.vmap(one, (None, 0, 0, 0)), (0, None, None, None))
  x = np.asarray(cases.jit(run)(secrets, *which)).swapaxes(0, 1)
  r = np.corrcoef(x.reshape(8, -1))[np.triu_indices(8, 1)]
  assert abs(r).max() * 6000**0.5 < 6  # 28 pairs, 2e-9 each
  assert has_stddev(x, Z * C / R)


@pytest.mark.nightly
@private.by_name(private.OPTIONS_BEFORE, ['before_gaussian'])
def test_noise_before_the_sketch_has_the_covariance_of_the_sketch(name):
  op = private.OPTIONS_BEFORE[name]['sketch']
  release = dataclasses.replace(RELEASE, before_sketch=True)
  key = keys_lib.round_keys(cases.KEY, 0).round
  eye = np.eye(10, dtype='f4')
  basis = {'b': eye[:, :2], 'w': eye[:, 2:].reshape(10, 4, 2)}
  r = jax.jit(jax.vmap(op.sketch, (None, 0)))(key, basis)
  r = np.asarray(r, 'f8').T
  left, singular, _ = np.linalg.svd(r, full_matrices=False)
  for sent in private.PADDING_ID, private.SILENT:
    (x,) = private.draws(name, sent, release=release)
    along = x @ left  # independent, of these standard deviations
    for i, s in enumerate(singular):
      assert has_stddev(along[:, i], Z * C / R * s)
    assert private.uncorrelated(along[:, 0], along[:, 1])
    trace = np.square(x).sum(1).mean()
    want = (Z * C / R) ** 2 * np.trace(r @ r.T)
    assert trace == pytest.approx(want, rel=0.15)
  # One client moves what is sketched by C / R: the table by so much times R.
  base = private.broadcast(name, SOME, hp=private.QUIET, release=release)[0]
  for u in private.adversaries():
    now = private.broadcast(
      name, private.with_client(SOME, 3, u), hp=private.QUIET, release=release
    )[0]
    back = np.linalg.lstsq(r, np.float64(now) - base, rcond=None)[0]
    assert np.linalg.norm(back) <= C / R * (1 + 1e-4)


SIGMA = 1.3  # of the count; above z / 2
QUANTILE = private_mean.CentralRelease(
  R, 'quantile', quantile=0.7, count_stddev=SIGMA
)


def test_a_bound_by_quantile_spends_no_more_than_it_says():
  """Sum and count together have the multiplier z."""
  step = rounds.cohort_step(
    make('dp_fedavg', QUANTILE), mesh_lib.cohort_mesh(1)
  )

  def one(secret):
    state = private.state_of('dp_fedavg', QUANTILE)
    args = HP, state, private.PADDING_ID, cases.KEY, None, secret
    mean, state, _ = step(*args)
    return private.vector(mean), rounds.state_of(state, 'clip_norm')

  secrets = jax.random.split(SECRET, 10000)
  means, norms = map(np.asarray, cases.jit(jax.vmap(one))(secrets))
  eta, gamma = QUANTILE.quantile_lr, QUANTILE.quantile
  shares = gamma - np.log(np.float64(norms) / C) / eta
  count = (shares - 0.5) * R / SIGMA  # of an empty cohort, whose share is 1/2
  total = np.float64(means) * R / C
  assert has_stddev(count, 1.0)
  z_sum = (Z**-2 - (2 * SIGMA) ** -2) ** -0.5
  assert has_stddev(total, z_sum)
  assert not has_stddev(total, z_sum * 1.03)
  measured = (total.std() ** -2 + (2 * SIGMA * count.std()) ** -2) ** -0.5
  assert measured == pytest.approx(Z, rel=0.03)
  assert private.uncorrelated(count, total[:, 0])


def test_a_bound_follows_the_share_of_norms_within_it():
  """Catches a share of norms beyond the bound, or of another denominator."""
  sent = private.EVERYONE._replace(weight=np.float32([1, 1, 1, 1, 0, 0]))
  for i, size in enumerate([1.0, 2.0, 3.0, 4.0]):
    sent = private.with_client(sent, i, size * np.eye(10)[i])
  release = dataclasses.replace(QUANTILE, count_stddev=1e-4)
  step = rounds.cohort_step(make('dp_fedavg', release), mesh_lib.cohort_mesh(1))

  def bound_after(start):
    hp = HP._replace(clip_norm=start, noise_multiplier=jnp.float32(1e-4))
    state = private.state_of('dp_fedavg', release, hp)
    _, state, _ = step(hp, state, sent, cases.KEY, None, SECRET)
    return rounds.state_of(state, 'clip_norm')

  starts, within = np.float32([0.05, 1.5, 50]), np.array([0, 0.25, 1])
  want = starts * np.exp(release.quantile_lr * (release.quantile - within))
  got = cases.jit(jax.vmap(bound_after))(starts)
  np.testing.assert_allclose(got, want, rtol=1e-3)


FOLLOWS = {'bound': 'quantile', 'count_stddev': 1.0}


@pytest.mark.parametrize(('name', 'change'), [
  ('count_stddev', {'bound': 'quantile'}),
  ('bound', FOLLOWS | {'before_sketch': True}), ('bound', {'bound': 'both'}),
])  # fmt: skip
def test_releases_that_mean_nothing_are_refused(name, change):
  """Catches a setting that is read as another, with less noise or none."""
  with pytest.raises(ValueError, match=name):
    dataclasses.replace(RELEASE, **change)


@pytest.mark.parametrize('cls', [
  private_mean.LocalRelease, private_mean.DistributedRelease
])  # fmt: skip
def test_only_a_server_has_settings_of_one_sum(cls):
  """Catches noise of clients whose account is that of the server's."""
  for name in 'before_sketch', 'correlation', 'quantile', 'count_stddev':
    with pytest.raises(TypeError, match=name):
      cls(R, **{name: None})
  with pytest.raises(ValueError, match='bound'):
    cls(R, 'quantile')
  with pytest.raises(TypeError, match='min_honest'):
    private_mean.CentralRelease(R, min_honest=2)


def test_what_a_release_needs_is_not_left_out():
  """Catches None that is read as no noise, and a bound of two sums."""
  with pytest.raises(ValueError, match='noise_multiplier'):
    RELEASE.with_hyper(HP._replace(noise_multiplier=None))
  for name, change in ('bound', FOLLOWS), ('sketch', {'before_sketch': True}):
    with pytest.raises(ValueError, match=name):
      make('heaprix_exact', dataclasses.replace(RELEASE, **change))(HP)
