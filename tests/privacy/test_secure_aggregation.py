"""The secure sum has the bits of one without masks; graphs; bytes."""

import functools
import itertools

from fl_sketch.privacy.mechanisms import secure_aggregation as sa
from fl_sketch.rounds import comms, mesh as mesh_lib
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import refused_calls
from scipy.sparse import csgraph

LANES = jax.P(comms.SHARD)
CLIENTS = 8
SECRET = jax.random.key(2017)


def on_shards(shards, fn):
  mesh, specs = mesh_lib.cohort_mesh(shards), (LANES, LANES, jax.P())
  return jax.shard_map(fn, mesh=mesh, in_specs=specs, out_specs=jax.P())


@functools.cache
def summed(shards, neighbours):
  def fn(integers, weight, key):
    return sa.secure_sum(key, integers, weight, neighbours)[0]

  return jax.jit(on_shards(shards, fn))


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
    # Only the sign of a weight counts.
    weight = np.where(present, [3, 0.5, 1, 1, 1, 1, 2, 1], -1).astype('f4')
    got = summed(shards, neighbours)(integers, weight, key)
    assert {x.dtype for x in jax.tree.leaves(got)} == {jnp.dtype('uint32')}
    want = unmasked_sum(integers, present)
    jax.tree.map(np.testing.assert_array_equal, got, want)


@pytest.mark.parametrize(('clients', 'k'), [(3, 2), (20, 6)])
def test_a_graph_is_symmetric_and_regular_and_drawn_by_its_key(clients, k):
  adjacent = graph(k, clients=clients)
  np.testing.assert_array_equal(adjacent, adjacent.T)
  np.testing.assert_array_equal(adjacent.sum(1), k)
  assert not adjacent.diagonal().any()
  other = graph(k, jax.random.key(1), clients)
  assert (other != adjacent).any() == (k < clients - 1)


def test_fewer_dropouts_than_neighbours_leave_a_graph_connected():
  np.testing.assert_array_equal(graph(), ~np.eye(CLIENTS, dtype=bool))
  adjacent = graph(4)
  for gone in itertools.combinations(range(CLIENTS), 3):
    left = np.delete(np.delete(adjacent, gone, 0), gone, 1)
    assert csgraph.connected_components(left)[0] == 1


@pytest.mark.parametrize(('neighbours', 'up', 'down'), [
  # 12 numbers and 2 keys; each of 7 neighbours: sealed shares, one revealed
  (None, 12 * 4 + 2 * 32 + 7 * (64 + 28 + 32), 7 * (64 + 64 + 28) + 1),
  (2, 12 * 4 + 2 * 32 + 2 * (64 + 28 + 32), 2 * (64 + 64 + 28) + 1),
])  # fmt: skip
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
  # A bit for each neighbour is rounded up to bytes.
  assert sa.traffic(0, 9)[1] - sa.traffic(0, 8)[1] == 64 + 64 + 28 + 1


def of_ones(neighbours=None, key=SECRET):
  ones = np.ones((CLIENTS, 1), 'u4')
  return summed(1, neighbours)(ones, np.ones(CLIENTS, 'f4'), key)


test_graphs_and_keys_that_do_not_cancel_are_refused = refused_calls(
  (lambda: of_ones(0), 'neighbours=0 of clients=8 make no graph'),
  (lambda: of_ones(3), 'neighbours=3 of clients=8 make no graph'),
  (lambda: of_ones(8), 'neighbours=8 of clients=8 make no graph'),
  (lambda: of_ones(key=jax.random.key(0, impl='rbg')),
    "kind='rbg' may not cancel"),
)  # fmt: skip
