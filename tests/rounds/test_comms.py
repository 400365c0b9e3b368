"""Uplinks, downlink, the client loop, and the files with collectives."""

import ast
import pathlib

import chex
from fl_sketch.rounds import client_loop, comms, mesh as mesh_lib
import jax
import jax.numpy as jnp
import numpy as np
import pytest

MESH = mesh_lib.cohort_mesh(2)
LANES = jax.P(comms.SHARD)


def on_shards(fn, *args, out=None):
  """Runs fn over lanes split between two shards."""
  program = jax.shard_map(
    fn,
    mesh=MESH,
    in_specs=tuple(LANES for _ in args),
    out_specs=jax.P() if out is None else out,
  )
  return jax.device_get(jax.jit(program)(*args))


@pytest.mark.covers('S2-Eq1')
def test_uplink_is_the_weighted_mean():
  x = np.arange(12.0, dtype=np.float32).reshape(6, 2)
  weight = np.array([1, 0, 2, 1, 0, 4], np.float32)
  result = on_shards(lambda x, w: comms.uplink_stacked(x, w)[0], x, weight)
  np.testing.assert_allclose(result, weight @ x / weight.sum(), rtol=1e-6)


def test_uplink_of_nobody_is_zero():
  x = np.ones((4, 2), np.float32)
  result = on_shards(
    lambda x, w: comms.uplink_stacked(x, w)[0], x, np.zeros(4, 'f4')
  )
  np.testing.assert_array_equal(result, 0)


def test_uplink_decodes_each_client_and_bills_the_wire_dtype():
  signs = np.array([[1, 0, 1], [0, 0, 1]], bool)
  packed = np.packbits(signs, axis=1)
  decode = lambda p: 2.0 * jnp.unpackbits(p, axis=1, count=3) - 1
  bill = []

  def program(p, w):
    mean, size = comms.uplink_stacked(p, w, decode(p))
    bill.append(size)
    return mean

  result = on_shards(program, packed, np.ones(2, 'f4'))
  np.testing.assert_array_equal(result, [0, -1, 1])
  assert bill[-1] == 1  # three signs in one byte


@pytest.mark.parametrize('streamed', [False, True])
def test_a_mean_of_64_bit_numbers_is_as_exact(streamed):
  """A float32 denominator left a relative error of 4.5e-8."""
  with jax.enable_x64(True):
    x = np.random.default_rng(0).standard_normal((6, 3))
    weight = np.array([1, 1, 1, 0.1, 1, 1], np.float32)

    def mean(x, weight):
      if not streamed:
        return comms.uplink_stacked(x, weight)[0]
      one = lambda lane: (lane[0], lane[0], lane[1], ())
      sums, _ = client_loop.sum_over_lanes(one, (x, weight), 1)
      return comms.uplink_sum(sums)[0]

    result = on_shards(mean, x, weight)
  want = np.float64(weight) @ x / np.float64(weight).sum()
  np.testing.assert_allclose(result, want, rtol=1e-14)


def test_absent_payloads_that_are_not_finite_weigh_nothing():
  x = np.array([[np.nan], [2], [np.inf], [4]], np.float32)
  weight = np.array([0, 1, 0, 1], np.float32)
  assert on_shards(lambda x, w: comms.uplink_stacked(x, w)[0], x, weight) == 3


@pytest.mark.parametrize('lanes_per_step', [1, 2, 3, 5, 9, None])
def test_the_lane_loop_sums_what_uplink_would(lanes_per_step):
  x = np.random.default_rng(0).standard_normal((10, 3)).astype(np.float32)
  weight = np.arange(10, dtype=np.float32)

  def program(x, weight):
    fn = lambda lane: (lane[0], 2 * lane[0], lane[1], lane[0].sum())
    sums, rest = client_loop.sum_over_lanes(fn, (x, weight), lanes_per_step)
    mean, size = comms.uplink_sum(sums)
    assert size == 12
    return mean, rest

  mean, rest = on_shards(program, x, weight, out=(jax.P(), LANES))
  np.testing.assert_allclose(mean, 2 * weight @ x / weight.sum(), rtol=1e-5)
  np.testing.assert_allclose(rest, x.sum(1), rtol=1e-5)


@pytest.mark.parametrize('lanes_per_step', [1, 2, 3, None])
def test_map_clients_is_a_map(lanes_per_step):
  x = np.arange(10.0, dtype=np.float32)
  fn = lambda x: client_loop.map_clients(jnp.sin, x, lanes_per_step)
  np.testing.assert_allclose(on_shards(fn, x, out=LANES), np.sin(x), rtol=1e-6)


def test_low_precision_payloads_are_summed_in_float32():
  x = np.ones((512, 1), jnp.bfloat16)

  def program(x):
    fn = lambda x: (x, x, jnp.float32(1) + 0 * x[0], 0 * x)
    sums, _ = client_loop.sum_over_lanes(fn, x, 1)
    return comms.uplink_sum(sums)[0], jax.lax.psum(sums.total, comms.SHARD)

  mean, total = on_shards(program, x, out=(jax.P(), jax.P()))
  assert (mean, total) == (1, 512)
  assert total.dtype == np.float32


def test_without_downlink_a_gradient_is_already_summed_over_shards():
  """The error that `downlink` prevents."""
  x = np.ones((2, 3), np.float32)

  def gradient(params, x, local):
    params = comms.downlink(params) if local else params
    return jax.grad(lambda p: jnp.sum(p * x))(params)

  def run(local, out):
    fn = jax.shard_map(
      lambda p, x: gradient(p, x[0], local),
      mesh=MESH,
      in_specs=(jax.P(), LANES),
      out_specs=out,
    )
    return jax.device_get(jax.jit(fn)(np.ones(3, 'f4'), x))

  np.testing.assert_array_equal(run(False, jax.P()), 2)
  np.testing.assert_array_equal(run(True, LANES), 1)


def test_bytes_of_types():
  tree = {'v': jnp.zeros((3, 2), jnp.bfloat16), 's': jnp.zeros(5, jnp.uint8)}
  assert comms.nbytes(tree) == 17
  big = jax.ShapeDtypeStruct((2**20, 2**20), jnp.float32)
  assert comms.nbytes(big) == 2**42


def test_a_payload_that_a_bill_cannot_hold_is_refused():
  most = comms.bill(2**31 - 1).up
  assert (most + most).item() == 2**32 - 2
  with pytest.raises(ValueError, match='Expected a payload of size=2147483648'):
    comms.bill(down=2**31)


def test_more_shards_than_devices_are_refused():
  with pytest.raises(ValueError, match='Expected 1 <= shards=3 <= devices=2'):
    mesh_lib.cohort_mesh(3)


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
  monkeypatch.setattr(
    jax,
    'device_put',
    lambda *a, **k: during.append(live()) or device_put(*a, **k),
  )
  before = live()
  mesh_lib.place(MESH, x)
  assert during == [before]


COLLECTIVES = {
  'psum', 'pmean', 'pmax', 'pmin', 'pcast', 'ppermute', 'psum_scatter',
  'all_gather', 'all_to_all', 'process_allgather', 'shard_map',
}  # fmt: skip


FILES = 'comms', 'mesh', 'processes', 'round'


def test_collectives_stand_in_the_engine_alone():
  root = pathlib.Path(comms.__file__).parents[1]
  modules = set()
  for path in root.rglob('*.py'):
    for node in ast.walk(ast.parse(path.read_text())):
      name = getattr(node, 'attr', None) or getattr(node, 'id', None)
      if name in COLLECTIVES:
        modules.add(str(path.relative_to(root)))
  assert modules == {f'rounds/{name}.py' for name in FILES}
