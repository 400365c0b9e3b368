"""Recurrent models and decoders: each output is of the tokens up to its own."""

import functools

import cases
import chex
from fl_sketch import models
from fl_sketch.models import lora, losses, recurrent
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from operators import vector
import pytest

from tests.models import test_lora, test_models
from tests.models.test_models import normal, normals, shapes
from tests.models.test_precision import NARROW, products

WORDS, LENGTH = 11, 6
SMALL = {'width': 8, 'depth': 2, 'heads': 2}
CASES = {
  'lstm': ('lstm', {'embedding': 3, 'hidden': 4, 'projection': 3}),
  'gru': ('gru', {'embedding': 3, 'hidden': 4}),
  'gpt': ('gpt_nano', SMALL),
  'gpt rotary': ('gpt_nano', SMALL | {'theta': 1e4, 'tied': False}),
  'llama': ('llama', SMALL | {'kv_heads': 1, 'qkv_bias': True}),
}
# Of a recurrent layer 2, and the dense ones; of a block 4 of attention's layers
# and 2 within it, and 2 or 3 of the MLP; and of the logits.
PRODUCTS = {'lstm': 6, 'gru': 5, 'gpt': 17, 'gpt rotary': 17, 'llama': 19}
X = np.random.default_rng(0).integers(1, WORDS, (3, LENGTH), np.int32)
BATCH = {'x': X[:, :-1], 'y': X[:, 1:]}
each_case = pytest.mark.parametrize('case', CASES)
each_decoder = pytest.mark.parametrize('case', ['gpt', 'llama'])


def make(case, **options):
  name, fixed = CASES[case]
  return models.make(name, WORDS, **fixed | options)


@functools.cache
def draw_params(case):
  """Params drawn by NumPy, no bias zero and no scale one."""
  return normals(shapes(make(case), (LENGTH,), jnp.int32), 0.5, seed=1)


@functools.cache
def program(case):
  return cases.jit(lambda params, x: make(case).apply({'params': params}, x))


def logits(case, x):
  return np.asarray(program(case)(draw_params(case), x))


def loss_of(case, **options):
  return losses.make(make(case, **options), 'tokens')[0]


@pytest.mark.nightly
@pytest.mark.parametrize(
  ('case', 'options'),
  [('gpt', {}), ('llama', {'scan': True}), ('llama', {'remat': True}),
   ('lstm', {})],
  ids=['gpt', 'scan', 'remat', 'lstm'],
)  # fmt: skip
def test_factors_in_layers_are_merged_kernels(case, options):
  """Catches adapters that a loop over blocks or over time loses."""
  key = jax.random.key(3)
  parts = lora.lora(draw_params(case), key, rank=2, alpha=3.0)
  test_lora.check_factored(loss_of(case, **options), parts, BATCH)


@pytest.mark.representatives('lstm', 'llama')
@each_case
def test_a_token_or_padding_changes_nothing_before_it(case):
  """Catches a mask that is off by one, and places from the end."""
  before = logits(case, X)
  chex.assert_shape(before, (3, LENGTH, WORDS))
  for t in range(LENGTH):
    changed = X.copy()
    changed[1, t] = X[1, t] % (WORDS - 1) + 1
    after = logits(case, changed)
    np.testing.assert_array_equal(after[[0, 2]], before[[0, 2]])
    np.testing.assert_array_equal(after[1, :t], before[1, :t])
    assert (abs(after[1, t:] - before[1, t:]).max(-1) > 1e-5).all()
  padded = logits(case, np.where(np.arange(LENGTH) < 4, X, 0))[:, :4]
  short = logits(case, X[:, :4])
  np.testing.assert_allclose(padded, short, rtol=1e-5, atol=1e-6)


@pytest.mark.nightly
@each_decoder
def test_a_loop_of_one_program_is_the_loop(case):
  """Catches layers that change places, and dropout that is drawn anew."""
  modules = [make(case, scan=scan) for scan in (False, True)]
  first = [cases.jit(m.init)(jax.random.key(0), X[:1]) for m in modules]
  chex.assert_trees_all_equal(*first)
  params, key = draw_params(case), jax.random.key(0)

  def grad(key=None, **options):
    fn = jax.value_and_grad(loss_of(case, **options))
    return cases.jit(fn)(params, BATCH, key)

  pairs = [(grad(), grad(scan=True))]
  for scan in (False, True):
    kept, again = (
      grad(key, scan=scan, remat=remat, dropout=0.3) for remat in (False, True)
    )
    pairs.append((kept, again))
  for one, other in pairs:
    chex.assert_trees_all_close(one, other, rtol=1e-5, atol=1e-6)


def test_layers_of_a_loop_drop_other_numbers():
  """Catches one key for all layers of the loop of one program."""
  params = draw_params('gpt')
  quiet = jax.tree.map(jnp.zeros_like, params['block_0'])
  quiet['mlp_out']['bias'] = jnp.ones(8)
  both = params | {'block_0': quiet, 'block_1': quiet}
  twice = jax.tree.map(lambda x: 2 * x, quiet)
  alone = params | {
    'block_0': twice,
    'block_1': jax.tree.map(jnp.zeros_like, quiet),
  }
  model = models.as_model(make('gpt', dropout=0.5, scan=True))
  apply = cases.jit(model.apply)
  outputs = [apply(p, X, jax.random.key(0)) for p in (both, alone)]
  assert abs(outputs[0] - outputs[1]).max() > 1e-3


@pytest.mark.parametrize(
  ('case', 'cell'), [('lstm', nn.OptimizedLSTMCell), ('gru', nn.GRUCell)]
)
def test_a_recurrent_layer_is_that_of_flax(case, cell):
  """Catches gates that change places, and a state that is taken too late."""
  layer = {'lstm': recurrent.LSTMLayer, 'gru': recurrent.GRULayer}[case](4)
  x = normal(0, 2, 5, 3)
  params = test_models.draw_params(layer, (5, 3))
  into, parts = params['input'], {'lstm': 'ifgo', 'gru': 'rzn'}[case]
  theirs = {}
  split = lambda x: np.split(np.asarray(x), len(parts), axis=-1)
  arrays = zip(
    parts, split(into['kernel']), split(into['bias']),
    split(params['recurrent']), strict=True,
  )  # fmt: skip
  for part, kernel, bias, again in arrays:
    theirs[f'i{part}'] = {'kernel': kernel}
    theirs[f'h{part}'] = {'kernel': again}
    theirs[f'{"h" if case == "lstm" else "i"}{part}']['bias'] = bias
  if case == 'gru':
    theirs['hn']['bias'] = params['recurrent_bias']
  expected = nn.RNN(cell(4)).apply({'params': {'cell': theirs}}, x)
  np.testing.assert_allclose(
    layer.apply({'params': params}, x), expected, rtol=1e-5, atol=1e-6
  )


def test_the_forget_gate_of_an_lstm_starts_open():
  """Catches the bias of another gate, and one that is a kernel's."""
  params = recurrent.LSTMLayer(2).init(jax.random.key(0), jnp.zeros((1, 1, 3)))
  bias = params['params']['input']['bias']
  assert bias.tolist() == [0, 0, 1, 1, 0, 0, 0, 0]


def test_leafs_model_has_logits_after_the_last_token():
  """Catches logits after the first one, and those of another model."""
  params = draw_params('lstm')
  last = make('lstm', last=True).apply({'params': params}, X)
  np.testing.assert_allclose(last, logits('lstm', X)[:, -1], rtol=1e-5)


@pytest.mark.nightly
@each_case
def test_bfloat16_rounds_every_product_and_nothing_else(case):
  """Catches sums and softmax in bfloat16, and products in float32."""
  params = draw_params(case)
  narrow_loss = loss_of(case, dtype='bfloat16')
  assert products(narrow_loss, params, BATCH) == [NARROW] * PRODUCTS[case]
  wide, narrow = (
    cases.jit(jax.grad(fn))(params, BATCH)
    for fn in (loss_of(case), narrow_loss)
  )
  chex.assert_trees_all_equal_shapes_and_dtypes(narrow, wide)
  wide, narrow = map(vector, (wide, narrow))
  away = np.linalg.norm(narrow - wide) / np.linalg.norm(wide)
  assert 1e-4 < away < 2**-8 * PRODUCTS[case]
