"""Counts of operations against counts by hand; nothing is run."""

from fl_sketch import sketches
from fl_sketch.planning import flops
from fl_sketch.rounds import comms, mesh as mesh_lib
import jax
from jax import lax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
import numpy as np
import pytest


def f32(*shape):
  return jax.ShapeDtypeStruct(shape, jnp.float32)


def total(fn, *args):
  operations = flops.count(fn, *args)
  assert not operations.uncounted
  return operations.total


def test_a_product_of_matrices():
  assert total(jnp.matmul, f32(3, 5), f32(5, 7)) == 2 * 3 * 5 * 7
  assert total(lambda a: a @ a.T, f32(3, 5)) == 2 * 3 * 5 * 3
  assert total(jnp.matmul, f32(4, 3, 5), f32(4, 5, 7)) == 4 * 2 * 3 * 5 * 7
  assert total(jnp.dot, f32(9), f32(9)) == 18


def test_elements_reductions_and_what_is_free():
  assert total(lambda x: jnp.exp(x) + x, f32(3, 4)) == 24
  assert total(lambda x: jnp.maximum(x, 0).sum(), f32(12)) == 24
  assert total(lambda x: jnp.cumsum(x), f32(12)) == 12
  assert total(lambda x: x[::-1].reshape(3, 4).T[1:], f32(12)) == 0
  assert total(lambda i: i * i + 1, jax.ShapeDtypeStruct((9,), int)) == 0
  assert total(lambda x, i: x.at[i].add(1.0), f32(99), np.arange(5)) == 5


def test_a_scan_counts_its_body_every_time():
  def powers(a, x):
    return lax.scan(lambda y, _: (a @ y, None), x, length=11)[0]

  assert total(powers, f32(3, 3), f32(3, 2)) == 11 * 2 * 3 * 3 * 2
  nested = lambda a, x: lax.map(lambda _: powers(a, x), jnp.arange(4))
  assert total(nested, f32(3, 3), f32(3, 2)) == 4 * 11 * 36


def test_xla_counts_the_body_of_a_scan_once():
  """So the analysis of XLA would not do."""
  scan = lambda a: lax.scan(lambda y, _: (a @ y, None), a, length=100)[0]
  lowered = jax.jit(scan).lower(f32(8, 8))
  cost = lowered.compile().cost_analysis()
  assert cost['flops'] < 0.1 * total(scan, f32(8, 8))


def test_a_while_makes_it_a_lower_bound():
  def halve(x):
    return lax.while_loop(lambda y: y.max() > 1, lambda y: y / 2, x)

  assert flops.count(halve, f32(10)) == (10, {'while'})
  count = lambda x: lax.while_loop(lambda i: i < 9, lambda i: i + 1, 0) * x
  assert total(count, f32(3)) == 3


def test_a_primitive_without_a_rule_is_named():
  operations = flops.count(lambda a: jnp.linalg.eigh(a)[0] * 2, f32(5, 5))
  assert 'eigh' in operations.uncounted
  assert operations.total >= 5


def test_the_larger_branch():
  def either(p, x):
    return lax.cond(p, lambda x: x @ x, lambda x: x + 1, x)

  assert total(either, True, f32(4, 4)) == 2 * 4**3
  unknown = lambda p, x: lax.cond(p, jnp.linalg.cholesky, lambda x: x @ x, x)
  assert 'cholesky' in flops.count(unknown, True, f32(4, 4)).uncounted


def test_the_branch_of_this_backend():
  def either(x):
    return lax.platform_dependent(x, cpu=jnp.sin, default=lambda x: x @ x)

  assert jax.default_backend() == 'cpu'
  assert total(either, f32(4, 4)) == 16


def with_jvp(fn):
  wrapped = jax.custom_jvp(fn)
  wrapped.defjvp(lambda x, dx: jax.jvp(fn, x, dx))
  return wrapped


def with_vjp(fn):
  wrapped = jax.custom_vjp(fn)
  wrapped.defvjp(lambda x: (fn(x), x), lambda x, dy: (jax.vjp(fn, x)[1](dy),))
  return wrapped


@pytest.mark.parametrize('wrap', [jax.jit, jax.checkpoint, with_jvp, with_vjp])
def test_operations_inside_calls_count(wrap):
  assert total(wrap(lambda a: a @ a), f32(4, 4)) == 2 * 4**3


def test_vmap_multiplies():
  many = jax.vmap(lambda a, x: jnp.tanh(a @ x), (None, 0))
  assert total(many, f32(3, 5), f32(7, 5)) == 7 * (2 * 3 * 5 + 3)


def test_a_shard_map_counts_all_devices():
  mesh = mesh_lib.cohort_mesh(2)
  spread = jax.shard_map(
    jnp.sin, mesh=mesh, in_specs=P(comms.SHARD), out_specs=P(comms.SHARD)
  )
  assert total(spread, f32(6)) == 6


def test_an_mlp_forward_and_backward():
  batch, features, width, classes = 8, 20, 30, 10

  def loss(params, x):
    return (jax.nn.relu(x @ params[0]) @ params[1]).sum()

  params, x = [f32(features, width), f32(width, classes)], f32(batch, features)
  first, second = (2 * batch * width * n for n in (features, classes))
  forward = total(loss, params, x)
  assert forward == first + second + batch * (width + classes)
  # Both weights' gradients, and the hidden layer's, but not the input's.
  both = total(jax.grad(loss), params, x)
  assert 0 <= both - forward - first - 2 * second <= 5 * batch * width


@pytest.mark.parametrize(
  ('stride', 'padding', 'taps'),
  [
    (1, 'VALID', 4 * 3 * 4 * 3),  # 4 outputs of 3 taps in each direction
    (2, 'VALID', 2 * 3 * 2 * 3),
    (1, 'SAME', (4 * 3 + 2 * 2) ** 2),  # the two at the ends reach 2 pixels
  ],
)
def test_a_convolution_does_not_multiply_with_padding(stride, padding, taps):
  def conv(x, w):
    names = 'NHWC', 'HWIO', 'NHWC'
    step = stride, stride
    return lax.conv_general_dilated(
      x, w, step, padding, dimension_numbers=names
    )

  x, w = f32(5, 6, 6, 2), f32(3, 3, 2, 7)
  assert total(conv, x, w) == 2 * 5 * 2 * 7 * taps
  # Each of two gradients has as many products, for every dilation.
  out = jax.eval_shape(conv, x, w).size
  grads = jax.grad(lambda x, w: conv(x, w).sum(), (0, 1))
  assert total(grads, x, w) == 3 * total(conv, x, w) + out


def test_a_grouped_convolution():
  def conv(x, w):
    return lax.conv_general_dilated(x, w, (1,), 'VALID', feature_group_count=3)

  assert total(conv, f32(2, 6, 9), f32(3, 2, 4)) == 2 * 2 * 3 * 2 * 4 * 6


def test_a_fourier_transform():
  assert total(jnp.fft.fft, jax.ShapeDtypeStruct((8,), complex)) == 5 * 8 * 3
  assert total(jnp.fft.rfft, f32(4, 8)) == 4 * 5 * 8 * 3 / 2


@pytest.mark.parametrize('d', [1000, 4000])
def test_a_sketch_is_one_pass(d):
  op, key = sketches.block_cyclic(64), jax.random.key(0)
  assert 2 * d <= total(lambda x: op.sketch(key, x), f32(d)) <= 2 * d + 3 * 64
