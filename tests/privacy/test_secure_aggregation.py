"""What the server sees of a secure sum: the survivors' sum, and its bytes."""

import functools

from fl_sketch.privacy.mechanisms import secure_aggregation
from fl_sketch.rounds import comms, mesh as mesh_lib
import jax
import jax.numpy as jnp
import numpy as np
import pytest

CLIENTS = 8


@functools.cache
def summed(shards, neighbours):
  sum_of = functools.partial(
    secure_aggregation.secure_sum, comm=comms.Shards(), neighbours=neighbours
  )
  mesh = mesh_lib.cohort_mesh(shards)
  return jax.jit(
    jax.shard_map(
      sum_of, mesh=mesh, in_specs=jax.P(comms.SHARD), out_specs=jax.P()
    )
  )


def integers_of(seed):
  draw = np.random.default_rng(seed).integers
  words = lambda *shape: draw(2**32, size=(CLIENTS, *shape), dtype=np.uint32)
  return {'w': words(3, 2), 'b': words(), 'more': words(5)}


@pytest.mark.smoke
def test_the_sum_is_of_survivors_modulo_two_to_the_32():
  """Catches a dropout that counts, and a sum in floats or of one shard."""
  some = np.random.default_rng(1).random((4, CLIENTS)) < 0.6
  alone = np.arange(CLIENTS) == 3
  for seed, present in enumerate([alone, alone & ~alone, *some]):
    integers = integers_of(seed)
    got, _ = summed(2, 4)(integers, present)
    want = {k: x[present].sum(0, dtype='u4') for k, x in integers.items()}
    jax.tree.map(np.testing.assert_array_equal, got, want)
    assert {x.dtype for x in jax.tree.leaves(got)} == {jnp.dtype('uint32')}


@pytest.mark.parametrize(('neighbours', 'up', 'down'), [
  # 12 numbers and 2 keys; each of 7 neighbours: sealed shares, one revealed
  (None, 12 * 4 + 2 * 32 + 7 * (64 + 28 + 32), 7 * (64 + 64 + 28) + 1),
  (2, 12 * 4 + 2 * 32 + 2 * (64 + 28 + 32), 2 * (64 + 64 + 28) + 1),
])  # fmt: skip
def test_bytes_counted_by_hand(neighbours, up, down):
  """Catches a share or key that is left out of a bill."""
  present = np.ones(CLIENTS, bool)
  _, bill = summed(2, neighbours)(integers_of(0), present)
  assert (int(bill.up), int(bill.down)) == (up, down)
  # A bit for each neighbour is rounded up to bytes.
  traffic = secure_aggregation.traffic
  assert traffic(0, 9)[1] - traffic(0, 8)[1] == 64 + 64 + 28 + 1


@pytest.mark.parametrize('neighbours', [0, 3, CLIENTS])
def test_a_number_of_neighbours_without_a_graph_is_refused(neighbours):
  """Catches a bill of a graph that no server can draw."""
  with pytest.raises(ValueError, match='neighbours'):
    summed(1, neighbours)(integers_of(0), np.ones(CLIENTS, bool))
