"""Uplinks, downlink, the client loop, and the files with collectives."""

import ast
import functools
import pathlib

import chex
from fl_sketch.rounds import client_loop, comms, mesh as mesh_lib
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import refused_calls

MESH = mesh_lib.cohort_mesh(2)
LANES = jax.P(comms.SHARD)


def on_shards(fn, *args, out=None):
  """Runs fn over lanes split between two shards."""
  out = jax.P() if out is None else out
  program = jax.shard_map(fn, mesh=MESH, in_specs=LANES, out_specs=out)
  return jax.device_get(jax.jit(program)(*args))


@pytest.mark.covers('S2-Eq1')
@pytest.mark.parametrize(('x', 'weight', 'want'), [
  ([0, 2, 4, 6], [1, 0, 2, 5], (2 * 4 + 5 * 6) / 8),
  ([1, 1, 1, 1], [0, 0, 0, 0], 0),
  ([np.nan, 2, np.inf, 4], [0, 1, 0, 1], 3),
], ids=['some', 'nobody', 'absent ones not finite'])  # fmt: skip
def test_uplink_is_the_weighted_mean_of_those_present(x, weight, want):
  columns = np.float32([1, 2, 3])
  mean = lambda x, weight: comms.uplink_stacked_mean(x, weight)[0]
  x = np.float32(x)[:, None] * columns[None]
  result = on_shards(mean, x, np.float32(weight))
  np.testing.assert_allclose(result, want * columns, rtol=1e-6)


@pytest.mark.parametrize('streamed', [False, True])
def test_a_mean_of_64_bit_numbers_is_as_exact(streamed):
  """A float32 denominator left a relative error of 4.5e-8."""
  with jax.enable_x64(True):
    x = np.random.default_rng(0).standard_normal((6, 3))
    weight = np.array([1, 1, 1, 0.1, 1, 1], np.float32)

    def mean(x, weight):
      if not streamed:
        return comms.uplink_stacked_mean(x, weight)[0]
      one = lambda lane: (lane[0], lane[0], lane[1], ())
      sums, _ = client_loop.sum_over_lanes(one, (x, weight), 1)
      return comms.uplink_mean(sums)[0]

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
    mean, size = comms.uplink_mean(sums)
    assert size == 12
    return mean, rest

  mean, rest = on_shards(program, x, weight, out=(jax.P(), LANES))
  np.testing.assert_allclose(mean, 2 * weight @ x / weight.sum(), rtol=1e-5)
  np.testing.assert_allclose(rest, x.sum(1), rtol=1e-5)


def test_low_precision_payloads_are_summed_in_float32():
  x = np.ones((512, 1), jnp.bfloat16)

  def program(x):
    fn = lambda x: (x, x, jnp.float32(1) + 0 * x[0], 0 * x)
    sums, _ = client_loop.sum_over_lanes(fn, x, 1)
    return comms.uplink_mean(sums)[0], jax.lax.psum(sums.total, comms.SHARD)

  mean, total = on_shards(program, x, out=(jax.P(), jax.P()))
  assert (mean, total) == (1, 512)
  assert total.dtype == np.float32


def test_without_downlink_a_gradient_is_already_summed_over_shards():
  """The error that `downlink` prevents."""
  x = np.ones((2, 3), np.float32)

  def gradient(params, x, local):
    params = comms.downlink(params) if local else params
    return jax.grad(lambda p: jnp.sum(p * x))(params)

  fn = lambda x, local: gradient(jnp.ones(3), x[0], local)
  summed = on_shards(functools.partial(fn, local=False), x)
  np.testing.assert_array_equal(summed, 2)
  per_shard = on_shards(functools.partial(fn, local=True), x, out=LANES)
  np.testing.assert_array_equal(per_shard, 1)


def test_bytes_of_types():
  tree = {'v': jnp.zeros((3, 2), jnp.bfloat16), 's': jnp.zeros(5, jnp.uint8)}
  assert comms.nbytes(tree) == 17
  big = jax.ShapeDtypeStruct((2**20, 2**20), jnp.float32)
  assert comms.nbytes(big) == 2**42


def test_a_bill_holds_the_sum_of_two_payloads():
  most = comms.bill(2**31 - 1).up
  assert (most + most).item() == 2**32 - 2


test_what_is_too_large_is_refused = refused_calls(
  (lambda: comms.bill(down=2**31), 'size=2147483648'),
  (lambda: mesh_lib.cohort_mesh(3), 'shards=3'),
)


def test_placed_values_survive_donation():
  x = jnp.arange(3.0)
  placed = mesh_lib.place(MESH, x)
  jax.jit(lambda x: x + 1, donate_argnums=0)(placed)
  chex.assert_trees_all_equal(x, jnp.arange(3.0))


def test_placing_an_array_makes_no_copy_beside_those_that_stay(monkeypatch):
  """Catches a second copy on the first device, as large as the first."""
  x = jnp.arange(1000.0)
  live = lambda: sum(a.nbytes for a in jax.live_arrays())
  device_put, during = jax.device_put, []
  measured = lambda *a, **k: during.append(live()) or device_put(*a, **k)
  monkeypatch.setattr(jax, 'device_put', measured)
  before = live()
  mesh_lib.place(MESH, x)
  assert during == [before]


COLLECTIVES = {
  'psum', 'pmean', 'pmax', 'pmin', 'pcast', 'ppermute', 'psum_scatter',
  'all_gather', 'all_to_all', 'process_allgather', 'shard_map',
}  # fmt: skip
FILES = 'comms', 'evaluation', 'processes', 'round', 'workers'
WORKERS = 'engine', 'outer_steps', 'step'


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
