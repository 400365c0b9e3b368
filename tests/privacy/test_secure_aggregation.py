"""The secure sum has the bits of one without masks; graphs; bytes."""

import functools
import itertools

from fl_sketch.privacy.mechanisms import secure_aggregation as sa
from fl_sketch.rounds import comms, mesh as mesh_lib
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import csgraph

LANES = jax.P(comms.SHARD)
CLIENTS = 8
SECRET = jax.random.key(2017)
TABLE = 3, 16


def on_shards(shards, fn):
  mesh, specs = mesh_lib.cohort_mesh(shards), (LANES, LANES, jax.P())
  return jax.shard_map(fn, mesh=mesh, in_specs=specs, out_specs=jax.P())


@functools.cache
def summed(shards, neighbours, keys=False):
  def fn(integers, weight, key):
    return sa.secure_sum(key, integers, weight, neighbours)[0]

  program = on_shards(shards, fn)
  return jax.jit(jax.vmap(program, (None, None, 0)) if keys else program)


def integers_of(seed):
  draw = np.random.default_rng(seed).integers
  words = lambda *shape: draw(2**32, size=(CLIENTS, *shape), dtype=np.uint32)
  return {'w': words(3, 2), 'b': words(), 'more': words(5)}


def unmasked_sum(integers, present):
  return {k: x[present].sum(0, dtype=np.uint32) for k, x in integers.items()}


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
    integers = integers_of(seed)
    key = jax.random.fold_in(SECRET, seed)
    got = summed(shards, neighbours)(integers, present.astype('f4'), key)
    assert {x.dtype for x in jax.tree.leaves(got)} == {jnp.dtype('uint32')}
    want = unmasked_sum(integers, present)
    jax.tree.map(np.testing.assert_array_equal, got, want)


@pytest.mark.nightly
def test_a_sum_is_the_same_under_vmapped_keys():
  integers = integers_of(0)
  present = np.arange(CLIENTS) % 3 > 0
  keys = jax.random.split(SECRET, 3)
  got = summed(2, 2, keys=True)(integers, present.astype('f4'), keys)
  for name, want in unmasked_sum(integers, present).items():
    np.testing.assert_array_equal(got[name], np.stack([want] * 3))


def test_only_the_sign_of_a_weight_counts():
  x = np.ones((CLIENTS, *TABLE), 'u4')
  weight = np.array([3, 0.5, -1, np.nan, 0, 0, 1, 0], 'f4')
  assert (summed(1, None)(x, weight, SECRET) == 3).all()


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
  message = f'neighbours={k} of clients=8 make no graph'
  with pytest.raises(ValueError, match=message):
    summed(1, k)(np.ones((CLIENTS, 1), 'u4'), np.ones(CLIENTS, 'f4'), SECRET)


def test_keys_whose_masks_would_not_cancel_are_refused():
  ones = np.ones((CLIENTS, 1), 'u4')
  key = jax.random.key(0, impl='rbg')
  with pytest.raises(ValueError, match="kind='rbg' may not cancel"):
    summed(1, None)(ones, np.ones(CLIENTS, 'f4'), key)


@pytest.mark.parametrize(
  ('neighbours', 'up', 'down'),
  [
    # 12 numbers and 2 keys; each of 7 neighbours: sealed shares, one revealed
    (None, 12 * 4 + 2 * 32 + 7 * (64 + 28 + 32), 7 * (64 + 64 + 28) + 1),
    (2, 12 * 4 + 2 * 32 + 2 * (64 + 28 + 32), 2 * (64 + 64 + 28) + 1),
  ],
)
def test_bytes_counted_by_hand(neighbours, up, down):
  bills = []

  def fn(integers, weight, key):
    total, *bill = sa.secure_sum(key, integers, weight, neighbours)
    bills.append(bill)
    return total

  shapes = integers_of(0), jnp.ones(CLIENTS), SECRET
  jax.eval_shape(on_shards(2, fn), *shapes)
  assert bills[-1] == [up, down]
  assert all(type(size) is int for size in bills[-1])


def test_a_bit_for_each_neighbour_is_rounded_up_to_bytes():
  assert sa.traffic(0, 9)[1] - sa.traffic(0, 8)[1] == 64 + 64 + 28 + 1
  assert sa.traffic(0, 8)[1] - sa.traffic(0, 7)[1] == 64 + 64 + 28
