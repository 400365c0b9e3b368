"""bfloat16 products with float32 sums: what is rounded, and what is not."""

import dataclasses

import cases
import chex
from fl_sketch import models
from fl_sketch.models import layers, losses
from fl_sketch.runs import config, problem as problem_lib
import jax
from jax.extend import core
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models import test_models
from tests.models.test_models import in_form, normal

MODELS = {
  'linear': {}, 'mlp': {'widths': (16, 8), 'activation': 'tanh'}, 'lenet5': {},
  'lenet5 lax': {}, 'smooth_lenet': {}, 'smooth_lenet lax': {},
}  # fmt: skip
# Products of a forward pass, convolutions among them; the banded matrices of
# `layers.conv2d` are placed, not rounded, by products with zeros and ones.
PRODUCTS = {'linear': 1, 'mlp': 3, 'lenet5': 5, 'smooth_lenet': 4}
PLACED = {'lenet5': 2, 'smooth_lenet': 1}
each_model = pytest.mark.parametrize('name', MODELS)


def rounded(x):
  return np.asarray(x.astype(jnp.bfloat16), np.float64)


def make(name, dtype):
  return models.make(name.split()[0], 3, dtype=dtype, **MODELS[name])


def batch():
  return {'x': normal(1, 6, 12, 12, 1), 'y': np.arange(6) % 3}


def draw_params(name):
  return test_models.draw_params(make(name, 'float32'), (12, 12, 1))


def equations(jaxpr):
  """All equations of a program, those of its inner ones too."""
  for eqn in jaxpr.eqns:
    yield eqn
    for inner in core.jaxprs_in_params(eqn.params):
      yield from equations(inner)


def products(fn, *args):
  """(dtypes of the operands, of the result) of every product of a program."""
  jaxpr = jax.make_jaxpr(fn)(*args).jaxpr
  names = ('dot_general', 'conv_general_dilated')
  return [
    tuple(v.aval.dtype.name for v in (*eqn.invars, *eqn.outvars))
    for eqn in equations(jaxpr)
    if eqn.primitive.name in names
  ]


NARROW = ('bfloat16', 'bfloat16', 'float32')
WIDE = ('float32',) * 3
LAX = ('bfloat16',) * 3


@pytest.mark.representatives('mlp', 'lenet5')
@each_model
def test_every_product_is_of_bfloat16_and_every_sum_of_float32(name):
  params, data = draw_params(name), batch()
  kind, lax = name.split()[0], name.endswith('lax')
  loss_fn = losses.classification(make(name, 'bfloat16'))
  convs = {'lenet5': 2, 'smooth_lenet': 3}.get(kind, 0) if lax else 0
  placed = 0 if lax else PLACED.get(kind, 0)
  with in_form('lax' if lax else 'tiles'):
    forward = products(loss_fn, params, data)
    backward = products(jax.grad(loss_fn), params, data)
    out = jax.eval_shape(jax.value_and_grad(loss_fn), params, data)
  kinds = LAX, NARROW, WIDE
  counts = convs, PRODUCTS[kind] - convs, placed
  assert tuple(map(forward.count, kinds)) == counts
  assert len(forward) == sum(counts)
  # Twice as many backward, but for the first layer: nobody asks for its input.
  assert backward.count(NARROW) + backward.count(LAX) >= 3 * PRODUCTS[kind] - 1
  assert backward.count(WIDE) == 2 * placed
  assert {leaf.dtype for leaf in jax.tree.leaves(out)} == {jnp.dtype('float32')}


def test_matmul_is_that_of_rounded_matrices_forward_and_backward():
  x, y, g = normal(0, 7, 33), normal(1, 33, 5), normal(2, 7, 5)

  @cases.jit
  def both(x, y):
    product, pull = jax.vjp(lambda *a: layers.matmul(*a, 'bfloat16'), x, y)
    return product, *pull(g)

  result, (a, b, c) = both(x, y), map(rounded, (x, y, g))
  expected = a @ b, c @ b.T, a.T @ c
  chex.assert_trees_all_close(result, expected, rtol=1e-7, atol=1e-5)
  assert np.abs(result[0] - x @ y).max() > 1e-3


CONFIG = {'dataset': 'digits', 'model': 'linear', 'population': 20, 'cohort': 5}


def test_a_config_trains_in_bfloat16_and_is_judged_in_float32():
  c = config.Config(**CONFIG, compute_dtype='bfloat16')
  problem = problem_lib.load(c, None)
  samples = jax.tree.map(lambda x: x[:4], problem.data)
  assert products(problem.loss_fn, problem.params, samples) == [NARROW]
  assert products(problem.metrics_fn, problem.params, samples) == [WIDE]
  with pytest.raises(ValueError, match='compute_dtype'):  # without products
    dataclasses.replace(c, local_work='gram', batch_size=0)
