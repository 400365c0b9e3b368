"""Models of every loop and library, for the law that all of them train."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fl_sketch import models
from fl_sketch.models import losses
from flax import nnx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

LENGTH, WIDTH, CLASSES = 4, 3, 5


class Case(NamedTuple):
  """A model, the kind of its loss, and how its samples are drawn."""

  model: Any
  kind: str = 'cross_entropy'
  arrays: Callable[..., dict[str, np.ndarray]] | None = None


class Dropped(nn.Module):
  @nn.compact
  def __call__(self, x, train):
    x = nn.relu(nn.Dense(6)(x.reshape(len(x), -1)))
    return nn.Dense(CLASSES)(nn.Dropout(0.5, deterministic=not train)(x))


class Nnx(nnx.Module):
  def __init__(self, rngs):
    self.rnn = nnx.RNN(nnx.GRUCell(WIDTH, 4, rngs=rngs))
    self.dropout = nnx.Dropout(0.3, rngs=rngs)
    self.layers = nnx.List([nnx.Linear(4, CLASSES, rngs=rngs)])

  def __call__(self, x):
    return self.layers[0](self.dropout(self.rnn(x)[:, -1]))


def plain(fn, kind='regression', arrays=None):
  """A model of one matrix w, and of fn(w, inputs)."""

  def init(key, inputs):
    del inputs
    return {'w': jax.random.normal(key, (WIDTH, WIDTH)) / 2}

  model = models.Model(init, lambda params, x, key: fn(params['w'], x))
  return Case(model, kind, arrays)


def with_fori_loop(w, x):
  step = lambda i, h: jnp.tanh(x[:, i] + h @ w)
  return jax.lax.fori_loop(0, LENGTH, step, jnp.zeros((len(x), WIDTH)))


def with_cond(w, x):
  """A branch that differs from sample to sample."""
  branch = lambda row: jax.lax.cond(
    row.sum() > 0, lambda row: row @ w, lambda row: jnp.zeros(WIDTH), row
  )
  return jax.vmap(branch)(x[:, 0])


def from_dict(w, inputs):
  embedded = jnp.take(w, inputs['words'], axis=0)
  return embedded.sum(1) + inputs['numbers']


def sequences(rng, shape):
  y = rng.integers(0, CLASSES, shape).astype(np.int32)
  return {'x': normal(rng, *shape, LENGTH, WIDTH), 'y': y}


def vectors(rng, shape):
  x = normal(rng, *shape, LENGTH, WIDTH)
  return {'x': x, 'y': normal(rng, *shape, WIDTH)}


def sentences(rng, shape):
  """Tokens, and labels of every token, some of which are padding."""
  x = rng.integers(0, CLASSES, (*shape, LENGTH)).astype(np.int32)
  y = rng.integers(-2, CLASSES, (*shape, LENGTH)).astype(np.int32)
  return {'x': x, 'y': y}


def labelled_sentences(rng, shape):
  x = rng.integers(1, CLASSES, (*shape, LENGTH)).astype(np.int32)
  return {'x': x, 'y': x[..., 0]}


def images(rng, shape):
  y = rng.integers(0, CLASSES, shape).astype(np.int32)
  return {'x': normal(rng, *shape, 12, 12, 1), 'y': y}


def several(rng, shape):
  words = rng.integers(0, WIDTH, (*shape, LENGTH)).astype(np.int32)
  numbers, y = normal(rng, *shape, WIDTH), rng.integers(0, 2, (*shape, WIDTH))
  return {'words': words, 'numbers': numbers, 'y': y.astype(np.int32)}


def normal(rng, *shape):
  return rng.standard_normal(shape, dtype=np.float32)


def of_sentences(name, **options):
  """A model of this library that tells tokens from those before."""
  return Case(models.make(name, CLASSES, **options), 'tokens', sentences)


def of_images(name, **options):
  return Case(models.make(name, CLASSES, **options), arrays=images)


SMALL = {'width': 4, 'depth': 2, 'heads': 2}
CASES: Mapping[str, Case] = {
  'fori_loop': plain(with_fori_loop, arrays=vectors),
  'cond': plain(with_cond, arrays=vectors),
  'dropout': Case(Dropped(), 'cross_entropy', sequences),
  'dict': plain(from_dict, 'multilabel', several),
  'nnx': Case(Nnx, 'cross_entropy', sequences),
  'lstm_by_name': of_sentences('lstm', dropout=0.2, hidden=4, projection=3),
  'gpt': of_sentences('gpt_nano', **SMALL, dropout=0.2, scan=True, remat=True),
  'llama': of_sentences('llama', **SMALL | {'depth': 1}, kv_heads=1),
}


# Each module of this library, for images of 12 x 12 or sentences.
ROW = {'width': 4, 'depth': 1, 'heads': 2}
FAMILIES: Mapping[str, Case] = {
  'linear': of_images('linear'),
  'mlp': of_images('mlp', widths=(4,), activation='gelu'),
  'lenet5': of_images('lenet5'),
  'smooth_lenet': of_images('smooth_lenet'),
  'emnist_cnn': of_images('emnist_cnn'),
  'resnet8': of_images('resnet8', width=8, stages=(1,)),
  'vit': of_images('vit_nano', **ROW),
  'bert': Case(
    models.make(
      'bert_nano', CLASSES, vocab_size=CLASSES, max_length=LENGTH, **ROW
    ),
    arrays=labelled_sentences,
  ),
  'gru': of_sentences('gru', hidden=4),
  'gpt': of_sentences('gpt_nano', **ROW),
}


def start(case: Case) -> tuple[Any, losses.LossFn, losses.MetricsFn]:
  """First parameters, loss and metrics of a case."""
  arrays = case.arrays(np.random.default_rng(0), (1,))
  inputs = losses.inputs(jax.tree.map(jnp.asarray, arrays))
  params = models.as_model(case.model).init(jax.random.key(0), inputs)
  return params, *losses.make(case.model, case.kind)
