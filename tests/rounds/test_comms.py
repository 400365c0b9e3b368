"""Collectives, and the bytes that they send."""

import ast
import pathlib

import chex
from fl_sketch.rounds import (
  client_loop,
  comms,
  fates,
  mesh as mesh_lib,
  traffic,
)
from hypothesis import given, settings, strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

MESH = mesh_lib.cohort_mesh(2)
LANES, SHARED = jax.P(comms.SHARD), jax.P()


def on_shards(fn, *args, out=SHARED):
  """Runs fn over lanes split between two shards."""
  program = jax.shard_map(fn, mesh=MESH, in_specs=LANES, out_specs=out)
  return jax.device_get(jax.jit(program)(*args))


@pytest.mark.parametrize('streamed', [False, True])
def test_a_mean_of_64_bit_numbers_is_as_exact(streamed):
  """A float32 denominator left a relative error of 4.5e-8."""
  with jax.enable_x64(True):
    x = np.random.default_rng(0).standard_normal((6, 3))
    weight = np.array([1, 1, 1, 0.1, 1, 1], np.float32)

    def mean(x, weight):
      if not streamed:
        return comms.Shards().stacked_mean(x, weight)[0]
      one = lambda lane: (lane[0], lane[0], lane[1], ())
      sums, _ = client_loop.sum_over_lanes(one, (x, weight), 1)
      return comms.Shards().mean(sums)[0]

    result = on_shards(mean, x, weight)
  want = np.float64(weight) @ x / np.float64(weight).sum()
  np.testing.assert_allclose(result, want, rtol=1e-14)


@pytest.mark.parametrize('clients_per_step', [1, 2, 3, None])
def test_the_lane_loop_sums_what_uplink_would(clients_per_step):
  x = np.random.default_rng(0).standard_normal((10, 3)).astype(np.float32)
  weight = np.arange(10, dtype=np.float32)

  def program(x, weight):
    fn = lambda lane: (lane[0], 2 * lane[0], lane[1], lane[0].sum())
    sums, rest = client_loop.sum_over_lanes(fn, (x, weight), clients_per_step)
    mean, size = comms.Shards().mean(sums)
    assert size == 12
    return mean, rest

  mean, rest = on_shards(program, x, weight, out=(SHARED, LANES))
  np.testing.assert_allclose(mean, 2 * weight @ x / weight.sum(), rtol=1e-5)
  np.testing.assert_allclose(rest, x.sum(1), rtol=1e-5)


def test_low_precision_payloads_are_summed_in_float32():
  x = np.ones((512, 1), jnp.bfloat16)

  def program(x):
    fn = lambda x: (x, x, jnp.float32(1) + 0 * x[0], 0 * x)
    sums, _ = client_loop.sum_over_lanes(fn, x, 1)
    return comms.Shards().mean(sums)[0], jax.lax.psum(sums.total, comms.SHARD)

  mean, total = on_shards(program, x)
  assert (mean, total) == (1, 512)
  assert total.dtype == np.float32


def test_a_bill_holds_the_sum_of_two_payloads():
  """Catches bytes that wrap around, at 4 GiB."""
  most = comms.bill(2**31 - 1).up
  assert (most + most).item() == 2**32 - 2
  with pytest.raises(ValueError, match='size'):
    comms.bill(down=2**31)


def test_an_array_outlives_its_placed_copy():
  """Catches a copy that donation takes from its owner."""
  x = jnp.arange(1000.0)
  placed = mesh_lib.place(MESH, x)
  jax.jit(lambda x: x + 1, donate_argnums=0)(placed)
  chex.assert_trees_all_equal(x, jnp.arange(1000.0))


COLLECTIVES = {
  'psum', 'pmean', 'pmax', 'pmin', 'pcast', 'ppermute', 'psum_scatter',
  'all_gather', 'all_to_all', 'process_allgather', 'shard_map',
}  # fmt: skip
FILES = 'axes', 'comms', 'evaluation', 'peers', 'round'
WORKERS = 'engine', 'outer_steps', 'sharded', 'step', 'workers'


def test_collectives_stand_in_the_engine_alone():
  root = pathlib.Path(comms.__file__).parents[1]
  modules = set()
  for path in root.rglob('*.py'):
    for node in ast.walk(ast.parse(path.read_text())):
      name = getattr(node, 'attr', None) or getattr(node, 'id', None)
      if name in COLLECTIVES:
        modules.add(str(path.relative_to(root)))
  expected = {f'rounds/{name}.py' for name in FILES}
  assert modules == expected | {f'distributed/{name}.py' for name in WORKERS}


UP, DENSE, POPULATION = 100, 100, 4
JOINED, SKIPPED = fates.PARTICIPATED, fates.NOT_SELECTED
LATE, SILENT = fates.STRAGGLER, fates.DROPPED_OUT
ROUND = st.tuples(
  st.sampled_from([10, 40, DENSE]),
  st.lists(
    st.sampled_from([JOINED, SKIPPED, LATE, SILENT]),
    min_size=POPULATION, max_size=POPULATION,
  ),
)  # fmt: skip


class Reference:
  """Every client's missed broadcasts, one by one."""

  def __init__(self, state):
    self.state, self.missed = state, [[] for _ in range(POPULATION)]
    self.up = self.down = 0

  def play(self, down, codes):
    received = {}
    for missed in self.missed:
      missed.append(down)
    for client, fate in enumerate(codes):
      if fate == SKIPPED:
        continue
      whole = DENSE + (self.state if down < DENSE else 0)
      received[client] = min(sum(self.missed[client]), max(whole, down))
      self.missed[client] = []
      self.up += UP * (fate in (JOINED, LATE))
    self.down += sum(received.values())
    joined = [x for c, x in received.items() if codes[c] == JOINED]
    return {
      'uplink_bytes': UP if joined else 0,
      'downlink_bytes': sum(joined) / max(len(joined), 1),
      'total_uplink_bytes': self.up,
      'total_downlink_bytes': self.down,
      'late_clients': codes.count(LATE),
      'silent_clients': codes.count(SILENT),
    }


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.sampled_from([0, 50]), st.lists(ROUND, max_size=6))
def test_who_was_away_pays_for_what_was_missed_but_no_more_than_dense(
  state, rounds
):
  """Catches a catch-up without cap or state, and clients that pay nothing."""
  book = traffic.Ledger.empty(POPULATION, DENSE, state=state)
  reference, ids = Reference(state), np.arange(POPULATION)
  for down, codes in rounds:
    weight = np.float32([fate == JOINED for fate in codes])
    row = book.charge(ids, weight, UP, down, np.int8(codes))
    assert row == reference.play(down, codes)


def test_totals_are_exact_past_31_and_63_bits_and_padding_pays_nothing():
  book, most = traffic.Ledger.empty(3, 2**31), 2**31 - 1
  ids, weight = np.int32([0, 1, 2, 3]), np.float32([1, 1, 1, 0])
  row = [book.charge(ids, weight, most, most) for _ in range(5)][-1]
  assert row['total_uplink_bytes'] == 15 * most
  assert row['total_downlink_bytes'] == 15 * most
  book.uplink_total = 2**63
  row = book.charge(ids[:1], weight[:1], UP, 40)
  assert row['total_uplink_bytes'] == 2**63 + UP
