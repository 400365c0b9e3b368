"""What a private round broadcasts: how far one client moves it, its noise."""

import cases
import chex
from fl_sketch import algorithms, rounds
from fl_sketch.privacy.mechanisms import private_mean
from fl_sketch.rounds import mesh as mesh_lib
import jax
import jax.numpy as jnp
import numpy as np
import private_cases as private
from private_cases import (
  HP,
  ONCE,
  PADDING_ID,
  QUIET,
  SOME,
  C,
  R,
  Z,
  broadcast,
  make,
)
import pytest


@pytest.mark.representatives('dp_fedavg', 'safl')
@private.each
def test_one_client_moves_each_release_by_at_most_its_share(name):
  """Catches the order clip, sketch, noise: off by the norm of the sketch."""
  others = SOME if name in ONCE else PADDING_ID
  base, moved = broadcast(name, others, hp=QUIET), []
  for u in private.adversaries():
    now = broadcast(name, private.with_client(others, 3, u), hp=QUIET)
    pairs = zip(now, base, strict=True)
    moved += [np.linalg.norm(np.float64(x) - y) for x, y in pairs]
  assert max(moved) <= C / R * (1 + 1e-5)
  if name in ONCE:
    assert max(moved) >= C / R * (1 - 1e-3)  # and by no less


@pytest.mark.representatives('dp_fedavg')
@private.each
def test_the_noise_is_of_the_stated_size_whoever_takes_part(name):
  """And every release is of its own, in each round and under each secret."""
  for sent in PADDING_ID, private.SILENT:
    parts = private.draws(name, sent)
    for x in parts:
      # sketched_sgd's values are in the order of their coordinates
      assert private.has_stddev(x, Z * C / R)
      assert not private.has_stddev(x, Z * C / R * 1.08)
      assert private.uncorrelated(x[:, 0], x[:, 1])
      assert private.uncorrelated(x[0::2], x[1::2])
    if len(parts) > 1:
      width = min(x.shape[1] for x in parts)
      assert private.uncorrelated(*(x[:, :width] for x in parts))
      assert private.uncorrelated(parts[0], parts[1][:, -width:])
  busy, quiet = private.draws(name, SOME), broadcast(name, SOME, hp=QUIET)
  if name in ONCE:
    assert private.has_stddev(busy[0] - quiet[0], Z * C / R)


@pytest.mark.representatives('dp_fedavg')
@private.each
def test_the_noise_follows_its_own_root_whoever_takes_part(name):
  """The noise is the same bit for bit, except under another secret or round."""
  want = broadcast(name, PADDING_ID)
  assert all(np.abs(x).max() > 0.01 for x in want)
  for weight in [1] * 6, [0, 0, 1, 0, 0, 0], [3, 0.5, 0, 0, 1, 100]:
    got = broadcast(name, private.SILENT._replace(weight=np.float32(weight)))
    chex.assert_trees_all_equal(got, want)
  some = broadcast(name, SOME)
  if name in ONCE:
    got = some[0] - broadcast(name, SOME, hp=QUIET)[0]
    np.testing.assert_allclose(got, want[0], atol=1e-6)
  # A weight counts as one, and an update that is rejected as none.
  for weight in [0, 3, 0.01, 0, 1e9, 0], [-1, 1, 1, np.nan, 1, -7]:
    got = broadcast(name, SOME._replace(weight=np.float32(weight)))
    chex.assert_trees_all_equal(got, some)
  rejected = private.with_client(SOME, 0, np.full(10, np.nan))
  chex.assert_trees_all_equal(broadcast(name, rejected), some)
  before = len(private.TRACES)
  # The run's key is public: noise that followed it could be subtracted.
  got = broadcast(name, PADDING_ID, key=jax.random.key(5))
  chex.assert_trees_all_equal(got, want)
  other = broadcast(name, PADDING_ID, secret=jax.random.key(100))
  later = private.state_of(name)._replace(round=jnp.int32(1))
  run = private.program(name, private.RELEASE, 1, 0)[0]
  after = run(HP, later, PADDING_ID, cases.KEY, private.SECRET)
  for x, y, z in zip(want, other, after, strict=True):
    assert (x != y).all()
    assert (x != z).all()
  assert len(private.TRACES) == before  # no secret is a constant of a program


@pytest.mark.representatives('fedsketchgate')
@private.by_name(private.OPTIONS, [])
def test_a_round_keeps_nothing_of_how_far_a_client_is_beyond_its_bound(name):
  """Catches a state of clients, or a broadcast, that is not of the clipped."""
  step = rounds.cohort_step(
    make(name, private.RELEASE), mesh_lib.cohort_mesh(1)
  )
  run = cases.jit(lambda sent: step(
    HP, private.state_of(name), sent, cases.KEY, None, private.SECRET
  )[:2])  # fmt: skip
  far, farther = (
    run(private.cohort([1] * private.LANES, np.float32(scale)))
    for scale in (2**12, 2**16)
  )
  chex.assert_trees_all_equal(far, farther)


@pytest.mark.parametrize(('name', 'make_release'), [
  ('dp_fedavg', private_mean.CentralRelease),
  pytest.param('dp_fedavg', private_mean.LocalRelease,
    marks=pytest.mark.nightly),
  pytest.param('safl', private_mean.DistributedRelease,
    marks=pytest.mark.long),
])  # fmt: skip
def test_a_release_has_the_same_bits_however_it_is_added_up(name, make_release):
  """Catches a sum of floats: all else is the same, however it is added up."""
  release = make_release(R)
  ways = [(1, 1), (1, None), (2, 2)]  # three lanes, two at a time
  # Multiples of 2^-8, within the bound.
  few_bits = lambda x: np.float32(np.round(np.clip(x, -1, 1) * 16) / 256)
  updates = jax.tree.map(few_bits, private.EVERYONE.batches)
  sent = private.EVERYONE._replace(batches=updates)
  first, *others = (
    broadcast(name, sent, release=release, shards=s, lanes=n) for s, n in ways
  )
  for other in others:
    chex.assert_trees_all_equal(other, first)


def test_a_larger_cohort_than_the_grid_was_made_for_is_refused():
  """Catches a sum that may leave its integers."""
  few = private_mean.CentralRelease(R, max_cohort=5)
  with pytest.raises(ValueError, match='max_cohort'):
    broadcast('dp_fedavg', SOME, release=few)
  enough = private_mean.CentralRelease(R, max_cohort=6)
  broadcast('dp_fedavg', SOME, release=enough)


def test_a_private_round_must_have_a_secret_and_no_other():
  mesh = mesh_lib.cohort_mesh(1)
  public = algorithms.make('fedavg', local=private.SEND)
  for build, secret in (
    (private.make('dp_fedavg', private.RELEASE), None),
    (public, private.SECRET),
  ):
    step = rounds.run_round(build, mesh)
    state = rounds.init(build(HP), cases.PARAMS, cases.POPULATION)
    with pytest.raises(ValueError, match='noise_key'):
      jax.eval_shape(step, HP, state, SOME, cases.KEY, None, secret)
