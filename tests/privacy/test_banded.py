"""Rounds with correlated noise: exact draws, fixed hashes, what is refused."""

import dataclasses

import cases
from fl_sketch import rounds, sketches
from fl_sketch.accounting import correlation
from fl_sketch.accounting.correlation import ONE, Correlation
from fl_sketch.privacy.mechanisms import (
  banded_noise,
  discrete_gaussian,
  grid,
  private_mean,
)
from fl_sketch.rounds import keys as keys_lib, mesh as mesh_lib, transforms as t
from fl_sketch.rounds.aggregation import mean_over_cohort
from fl_sketch.rounds.algorithm import Algorithm, federated
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

SECRET = cases.SECRET
EPOCH = Correlation(correlation.square_root(4), 6, 6)
LIKE = {'a': jnp.zeros((3, 5), jnp.uint32), 'b': jnp.zeros(4, jnp.uint32)}
SIZE = grid.numbers(LIKE)
POINTS = grid.make(
  clip_norm=1.0, noise_multiplier=3.0, clients=50,
  rounding=EPOCH.rounding(SIZE), gain=EPOCH.gain,
)  # fmt: skip


def whole(x):
  """Two's complement as Python's integers."""
  return np.asarray(x).view('i4').astype(object)


@cases.jit
def draws_alone(rounds):
  """The independent draws z of these rounds."""
  keys = jax.vmap(lambda r: keys_lib.noise_keys(SECRET, r).server)(rounds)
  return jax.vmap(lambda key: grid.noise(key, LIKE, POINTS))(keys)


@cases.jit
def correlated(r):
  keys = keys_lib.noise_keys(SECRET, r)
  return banded_noise.draw(r, keys, LIKE, POINTS, EPOCH)


def test_the_arithmetic_is_that_of_all_integers():
  """Catches bits that are lost between the two parts of a sum, and a wrap."""
  rng = np.random.default_rng(0)
  large = int(13.3 * discrete_gaussian.stddev(1024, 320))
  sizes = 2**15 - 1, 2**15, 10**5, large, 2**31 - 1
  draws = np.stack([rng.integers(-x, x + 1, 64) for x in sizes * 4], -1)
  draws[0], draws[1] = large, -large  # all at their bounds
  draws = draws.astype(np.int32)
  for weights in (
    (ONE,),
    (ONE, -ONE),
    correlation.square_root(20),
    (ONE, *[-ONE // 19] * 19),
  ):
    sums = jnp.zeros(64, jnp.int32), jnp.full(64, ONE // 2, jnp.int32)
    for j, q in enumerate(weights):
      z = jnp.asarray(draws[:, j]).astype(jnp.uint32)
      sums = banded_noise._weighed(z, jnp.int32(q), sums)
    got = np.asarray(banded_noise._quotient(sums)).astype(object)
    used = draws[:, : len(weights)].astype(object)
    want = (used @ np.array(weights, object) + ONE // 2) // ONE % 2**32
    assert (got == want).all()


def test_noise_of_a_round_is_a_function_of_key_and_round_alone():
  """Catches a wrong key, weight or epoch, and noise that has a past."""
  z = jax.tree.map(whole, draws_alone(jnp.arange(12)))
  for r in 11, 6, 0, 9, 5, 2:  # in no order
    got = correlated(jnp.int32(r))
    for name in LIKE:
      age = r % EPOCH.rounds
      terms = [
        z[name][r - j] * q for j, q in enumerate(EPOCH.weights[: age + 1])
      ]
      want = (sum(terms) + ONE // 2) // ONE
      assert (whole(got[name]) == want).all()
  assert correlated._cache_size() == 1


def quiet(op, hash_rounds, noise):
  """Rounds in which nobody moves; noise is decoded with such a hash."""

  def make(hp) -> Algorithm:
    privacy = private_mean.CentralRelease(
      1.0, max_cohort=4, correlation=noise
    ).with_hyper(hp)
    return federated(
      lambda params, batches, key, correction: (params, {}),
      t.per_client(
        t.stateless(lambda u, _, **__: jax.tree.map(jnp.zeros_like, u))
      ),
      t.sketch(op, hash_rounds=0),
      mean_over_cohort(privacy=privacy),
      t.broadcast(),
      t.desketch(op, hash_rounds=hash_rounds),
      optax.scale(-1.0),
    )

  return make


@pytest.mark.nightly
@pytest.mark.parametrize('hash_rounds', [0, None])
def test_sums_of_decoded_noise_have_the_error_of_the_closed_form(hash_rounds):
  """Catches noise that does not cancel, or under fresh hashes; alarms 2e-6."""
  size, runs, count = 2**12, 2**5, 12
  noise = Correlation(correlation.square_root(8), count, count)
  make, like = quiet(sketches.block_cyclic(size), hash_rounds, noise), None
  round_fn = rounds.run_round(make, mesh_lib.cohort_mesh(1))
  play = rounds.scan_rounds(round_fn, lambda state: state.params['w'])
  params = {'w': jnp.zeros(2 * size)}
  cohort = rounds.Cohort(
    np.zeros((count, 1), 'i4'), np.ones((count, 1), 'f4'), np.zeros((count, 1))
  )

  def energy(secret):
    state = rounds.init(make(cases.HP), params, 1)
    sums = play(cases.HP, state, cohort, cases.KEY, like, secret)[2]
    return jnp.square(sums).sum(-1)

  secrets = jax.random.split(SECRET, runs)
  found = np.asarray(cases.jit(jax.vmap(energy))(secrets), 'f8').mean(0)
  private = private_mean.CentralRelease(1.0, max_cohort=4, correlation=noise)
  points = private.with_hyper(cases.HP).grid(jnp.zeros(size))
  draw = discrete_gaussian.stddev(points.base, int(points.multiple))
  draw *= float(points.step)
  # Every number of a table is decoded to two coordinates.
  weights = np.divide(noise.weights, ONE)
  weights = np.pad(weights, (0, count - noise.bands))
  sums = np.cumsum(np.cumsum(weights) ** 2), np.cumsum(np.cumsum(weights**2))
  forms = [2 * size * draw**2 * x for x in sums]
  want, other = forms if hash_rounds == 0 else forms[::-1]
  assert found.sum() == pytest.approx(want.sum(), rel=0.02)
  assert found[-1] == pytest.approx(want[-1], rel=0.02)
  assert abs(np.log(found.sum() / other.sum())) > 1


def test_a_kept_hash_changes_with_its_epoch():
  """Catches an epoch that is too long, or begins in the wrong round."""

  def hashes(which):
    keys = [keys_lib.round_keys(cases.KEY, r) for r in range(6)]
    keys = [keys_lib.hash_key(k, which) for k in keys]
    return [tuple(np.asarray(jax.random.key_data(k)).tolist()) for k in keys]

  first, *_, last = of_epochs = hashes(3)
  assert of_epochs == [first] * 3 + [last] * 3
  assert first != last
  assert len({*hashes(0)}) == 1
  assert len({*hashes(1)}) == len({*hashes(None)}) == 6


RELEASE = private_mean.CentralRelease(4.0, correlation=EPOCH)


def chain_of(hash_rounds, **release):
  privacy = dataclasses.replace(RELEASE, **release).with_hyper(cases.HP)
  uplink = mean_over_cohort(privacy=privacy)
  link = t.sketch(cases.CYCLIC, hash_rounds=hash_rounds)
  return federated(None, link, uplink, t.broadcast())


def test_hashes_stay_as_long_as_noise_on_one_central_sum():
  """Catches noise that does not cancel, or of no stated size; a refusal."""
  for kept in 0, 6, 12:
    assert chain_of(kept).releases == 1
  assert chain_of(None, correlation=None).releases == 1
  for fresh in None, 4:
    with pytest.raises(ValueError, match='hash_rounds'):
      chain_of(fresh)
  follows = {'bound': 'quantile', 'count_stddev': 1.0}
  for release in {'before_sketch': True}, follows:
    with pytest.raises(ValueError, match='correlation'):
      chain_of(0, **release)
  with pytest.raises(ValueError, match='one sum'):
    RELEASE.with_hyper(cases.HP).mean(0)
