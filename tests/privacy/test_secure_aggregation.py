"""The secure sum is exact on its grid, which nothing wraps; graphs; bytes."""

from fractions import Fraction
import functools
import itertools

from fl_sketch import sketches
from fl_sketch.privacy import secure_aggregation as sa
from fl_sketch.rounds import comms, mesh as mesh_lib
from hypothesis import given, settings, strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import refused
from scipy.sparse import csgraph

LANES = jax.P(comms.SHARD)
CLIENTS = 8
SECRET = jax.random.key(2017)
TABLE = 3, 16
BOUND = 4.0
STEP = sa.resolution(BOUND, CLIENTS)


def on_shards(shards, fn):
  mesh, specs = mesh_lib.cohort_mesh(shards), (LANES, LANES, jax.P())
  return jax.shard_map(fn, mesh=mesh, in_specs=specs, out_specs=jax.P())


@functools.cache
def summed(shards, neighbours, keys=False):
  def fn(tables, weight, key):
    options = dict(max_abs=BOUND, neighbours=neighbours)
    return sa.secure_sum(key, tables, weight, **options)[0]

  program = on_shards(shards, fn)
  return jax.jit(jax.vmap(program, (None, None, 0)) if keys else program)


def tables_of(seed, most=5.0):
  rng = np.random.default_rng(seed)
  draw = lambda *shape: rng.uniform(-most, most, (CLIENTS, *shape)).astype('f4')
  half = jnp.asarray(draw(5), jnp.bfloat16)
  return {'w': draw(3, 2), 'b': draw(), 'half': half}


def fixed(x, step=STEP, bound=BOUND):
  """What `encode` must return, in float64 and int64; it divides exactly."""
  return np.rint(np.clip(np.asarray(x, 'f8'), -bound, bound) / step).astype(int)


def unmasked_sum(tables, present):
  return jax.tree.map(
    lambda x: np.float32(fixed(x)[present].sum(0)) * np.float32(STEP), tables
  )


def graph(neighbours=None, key=SECRET, clients=CLIENTS):
  """bool[clients, clients], who is next to whom."""
  spec = jnp.arange(clients), clients, neighbours
  others = jax.jit(lambda key: sa.neighbour_slots(key, *spec))(key)
  adjacent = np.zeros((clients, clients), bool)
  np.put_along_axis(adjacent, np.asarray(others), True, 1)
  return adjacent


def dropouts():
  everybody = np.ones(CLIENTS, bool)
  padded = np.arange(CLIENTS) < 5
  alone = np.arange(CLIENTS) == 3
  some = np.random.default_rng(1).random((12, CLIENTS)) < 0.6
  return [everybody, ~everybody, padded, alone, *some]


@pytest.mark.smoke
@pytest.mark.representatives('2-4')
@pytest.mark.parametrize(
  ('shards', 'neighbours'), [(1, None), (2, None), (2, 4)]
)
def test_the_sum_has_the_bits_of_one_without_masks(shards, neighbours):
  for seed, present in enumerate(dropouts()):
    tables = tables_of(seed)
    key = jax.random.fold_in(SECRET, seed)
    got = summed(shards, neighbours)(tables, present.astype('f4'), key)
    assert {x.dtype for x in jax.tree.leaves(got)} == {jnp.dtype('float32')}
    want = unmasked_sum(tables, present)
    jax.tree.map(np.testing.assert_array_equal, got, want)


def test_the_sum_is_near_the_real_one():
  for seed, present in enumerate(dropouts()):
    tables = tables_of(seed, BOUND)
    total = summed(1, None)(tables, present.astype('f4'), SECRET)
    for name, x in tables.items():
      got = np.asarray(total[name], 'f8')
      want = np.asarray(x, 'f8')[present].sum(0)
      most = present.sum() * STEP / 2
      most += 2.0**-24 * (abs(want) + most)  # the result is float32
      assert (abs(got - want) <= most).all()


@pytest.mark.nightly
@pytest.mark.covers('S0-Alg1-lin')
def test_the_secure_sum_of_sketches_is_the_sketch_of_the_sum():
  op = sketches.count_sketch(*TABLE)
  hashes = jax.random.key(5)
  x = np.random.default_rng(0).uniform(-0.1, 0.1, (CLIENTS, 60)).astype('f4')
  tables = jax.jit(jax.vmap(op.sketch, (None, 0)))(hashes, jnp.asarray(x))
  got = summed(1, None)(tables, np.ones(CLIENTS, 'f4'), SECRET)
  want = op.sketch(hashes, x.sum(0))
  np.testing.assert_allclose(got, want, atol=CLIENTS * STEP / 2 + 1e-6)


@pytest.mark.nightly
def test_a_sum_is_the_same_under_vmapped_keys():
  tables = tables_of(0)['w']
  present = np.arange(CLIENTS) % 3 > 0
  keys = jax.random.split(SECRET, 3)
  got = summed(2, 2, keys=True)(tables, present.astype('f4'), keys)
  want = np.stack([unmasked_sum(tables, present)] * 3)
  np.testing.assert_array_equal(got, want)


def test_only_the_sign_of_a_weight_counts():
  x = np.ones((CLIENTS, *TABLE), 'f4')
  weight = np.array([3, 0.5, -1, np.nan, 0, 0, 1, 0], 'f4')
  assert (summed(1, None)(x, weight, SECRET) == 3).all()


def test_outliers_are_clipped_and_what_is_not_finite_is_nothing():
  x = np.array([np.nan, np.inf, np.inf, 9, 3e38, -5, 1, 0], 'f4')
  x = np.broadcast_to(x[:, None, None], (CLIENTS, *TABLE))
  got = summed(1, None)(x, np.ones(CLIENTS, 'f4'), SECRET)
  assert (got == 2 * BOUND - BOUND + 1).all()


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.floats(2.0**-95, 2.0**90, width=32), st.integers(1, 2**30))
def test_a_grid_on_which_no_sum_wraps(max_abs, clients):
  step = Fraction(sa.resolution(max_abs, clients))
  assert clients * (Fraction(max_abs) / step + Fraction(1, 2)) < 2**31
  assert clients * Fraction(max_abs) / (step / 4) >= 2**31  # it is fine enough
  assert (step.numerator & step.numerator - 1) == 0
  assert (step.denominator & step.denominator - 1) == 0


@pytest.mark.parametrize('clients', [1, 2, 3, 7, 100, 12345, 2**20])
def test_clients_at_the_bound_do_not_wrap(clients):
  """The bound is as large as its step lets it be, and not a float32."""
  largest = (2**31 - clients) / clients / 1024
  for max_abs in largest, 0.1, 3e9, 2.0**-90:
    step = sa.resolution(max_abs, clients)
    big = jnp.array([max_abs, -max_abs, 3e38, -3e38], jnp.float32)
    got = np.asarray(sa.encode(big, max_abs, step).astype(jnp.int32), 'O')
    assert all(-(2**31) <= clients * x < 2**31 for x in got)
    assert got[0] == got[2] == -got[1] == -got[3] > 0
    total = np.array([clients * got[0], clients * got[1]], np.int64)
    total = sa.decode(jnp.asarray(total % 2**32, jnp.uint32), step)
    most = clients * step / 2 + clients * max_abs * 2.0**-22
    want = clients * max_abs * np.array([1, -1])
    np.testing.assert_allclose(total, want, rtol=0, atol=most)


test_bounds_that_no_grid_fits_are_refused = refused(
  lambda numbers: sa.resolution(*numbers),
  ((float('nan'), 2), 'max_abs=nan <='),
  ((float('inf'), 2), 'max_abs=inf <='),
  ((0.0, 2), r'Expected 2\*\*-95 <= max_abs=0.0 <= 1.7e\+38'),
  ((-1.0, 2), 'max_abs=-1.0'),
  ((1e-39, 2), 'max_abs=1e-39'),
  ((3e38, 2), r'max_abs=3e\+38'),
  ((1.0, 0), r'Expected 1 <= clients=0 < 2\*\*31'),
)


@pytest.mark.parametrize(('clients', 'k'), [(3, 2), (8, 4), (20, 6)])
def test_a_graph_is_symmetric_and_regular_and_drawn_by_its_key(clients, k):
  adjacent = graph(k, clients=clients)
  np.testing.assert_array_equal(adjacent, adjacent.T)
  np.testing.assert_array_equal(adjacent.sum(1), k)
  assert not adjacent.diagonal().any()
  other = graph(k, jax.random.key(1), clients)
  assert (other != adjacent).any() == (k < clients - 1)


def test_everybody_is_next_to_everybody_by_default():
  np.testing.assert_array_equal(graph(), ~np.eye(CLIENTS, dtype=bool))


def test_fewer_dropouts_than_neighbours_leave_a_graph_connected():
  adjacent = graph(4)
  for gone in itertools.combinations(range(CLIENTS), 3):
    left = np.delete(np.delete(adjacent, gone, 0), gone, 1)
    assert csgraph.connected_components(left)[0] == 1


@pytest.mark.parametrize('k', [-2, 0, 1, 3, 8, 10])
def test_degrees_that_no_graph_has_are_refused(k):
  message = f'Expected even 2 <= neighbours={k} < clients=8'
  with pytest.raises(ValueError, match=message):
    summed(1, k)(np.ones((CLIENTS, 1), 'f4'), np.ones(CLIENTS, 'f4'), SECRET)


def test_keys_whose_masks_would_not_cancel_and_integers_are_refused():
  ones = np.ones((CLIENTS, 1), 'f4')
  with pytest.raises(ValueError, match="kind='rbg' 'threefry2x32'"):
    summed(1, None)(ones, ones[:, 0], jax.random.key(0, impl='rbg'))
  with pytest.raises(TypeError, match="dtype='int32'"):
    summed(1, None)(ones.astype('i4'), ones[:, 0], SECRET)


@pytest.mark.parametrize(
  ('neighbours', 'up', 'down'),
  [
    # 12 numbers and 2 keys; each of 7 neighbours: sealed shares, one revealed
    (None, 12 * 4 + 2 * 32 + 7 * (64 + 28 + 32), 7 * (64 + 64 + 28) + 1),
    (2, 12 * 4 + 2 * 32 + 2 * (64 + 28 + 32), 2 * (64 + 64 + 28) + 1),
  ],
)
def test_bytes_counted_by_hand(neighbours, up, down):
  """The wire holds 32-bit words, for bfloat16 as well."""
  bills = []

  def fn(tables, weight, key):
    options = dict(max_abs=BOUND, neighbours=neighbours)
    total, *bill = sa.secure_sum(key, tables, weight, **options)
    bills.append(bill)
    return total

  shapes = tables_of(0), jnp.ones(CLIENTS), SECRET
  jax.eval_shape(on_shards(2, fn), *shapes)
  assert bills[-1] == [up, down]
  assert all(type(size) is int for size in bills[-1])


def test_a_bit_for_each_neighbour_is_rounded_up_to_bytes():
  assert sa.traffic(0, 9)[1] - sa.traffic(0, 8)[1] == 64 + 64 + 28 + 1
  assert sa.traffic(0, 8)[1] - sa.traffic(0, 7)[1] == 64 + 64 + 28
