"""Models of every library are pure functions, with what they draw by a key."""

import dataclasses
import sys
import types
from typing import Any, NamedTuple

import any_models
import cases
import chex
from fl_sketch import models
from flax import nnx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import refused

X = np.random.default_rng(0).standard_normal((3, 4, 3), dtype=np.float32)
KEYS = jax.random.split(jax.random.key(0), 2)


class Trains(nn.Module):
  @nn.compact
  def __call__(self, x, training):
    return nn.Dropout(0.5, deterministic=not training)(nn.Dense(64)(x))


class Deterministic(nn.Module):
  @nn.compact
  def __call__(self, x, deterministic):
    return nn.Dropout(0.5)(nn.Dense(64)(x), deterministic=deterministic)


class HasKey(nn.Module):
  @nn.compact
  def __call__(self, x):
    off = not self.has_rng('dropout')
    return nn.Dropout(0.5, deterministic=off)(nn.Dense(64)(x))


DRAWING = {
  'training': Trains(), 'deterministic': Deterministic(), 'has_rng': HasKey(),
  'nnx': any_models.Nnx, 'nnx module': any_models.Nnx(nnx.Rngs(3)),
  'lstm': any_models.CASES['lstm_by_name'].model,
  'gpt': any_models.CASES['gpt'].model,
}  # fmt: skip
TOKENS = np.arange(12).reshape(3, 4) % any_models.CLASSES


@pytest.mark.representatives('has_rng', 'nnx module', 'gpt')
@pytest.mark.parametrize('name', DRAWING)
def test_a_key_is_all_that_is_random(name):
  """Dropout in evaluation, or the same in every step, went unnoticed."""
  model = models.as_model(DRAWING[name])
  x = TOKENS if name in ('lstm', 'gpt') else X
  rng = np.random.default_rng(1)
  draw = lambda p: rng.normal(size=p.shape).astype(np.float32)
  params = jax.eval_shape(model.init, KEYS[0], jnp.asarray(x))
  params = jax.tree.map(draw, params)
  apply = cases.jit(model.apply)
  one, other = (apply(params, x, key) for key in KEYS)
  none = apply(params, x, None)
  chex.assert_trees_all_equal(one, apply(params, x, KEYS[0]))
  chex.assert_trees_all_equal(none, apply(params, x, None))
  assert (one != other).any()
  assert (one != none).any()
  each = cases.jit(jax.vmap(model.apply, (None, None, 0)))(params, x, KEYS)
  chex.assert_trees_all_close(each, jnp.stack([one, other]), atol=1e-6)


def test_a_module_of_nnx_is_itself_and_a_function_follows_the_key():
  """Catches parameters in another order, or drawn anew, or all the same."""
  module = any_models.Nnx(nnx.Rngs(3))
  own = models.as_model(module)
  first = own.init(KEYS[0], None)
  chex.assert_trees_all_equal(first, own.init(KEYS[1], None))
  want = nnx.view(module, deterministic=True)(jnp.asarray(X))
  np.testing.assert_allclose(own.apply(first, X, None), want, atol=1e-6)
  drawn = models.as_model(lambda rngs: any_models.Nnx(rngs))
  one, other = (drawn.init(key, None) for key in KEYS)
  assert (one['layers']['0']['kernel'] != other['layers']['0']['kernel']).any()
  chex.assert_trees_all_equal_shapes(first, one)


test_state_besides_parameters_is_refused_by_name = refused(
  lambda model: models.as_model(model).init(KEYS[0], jnp.asarray(X)),
  (nn.BatchNorm(use_running_average=False), 'batch_stats'),
  (lambda rngs: nnx.BatchNorm(3, rngs=rngs), 'BatchStat'),
)  # fmt: skip
test_what_is_no_model_is_refused = refused(
  models.as_model, (Trains, 'Trains'), ('mlp', 'str'), error=TypeError
)


class Module:
  """That of equinox, for the tests without it."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Line(Module):
  """Of one sample, with leaves of any type, as modules of equinox are."""

  layers: list[Any]
  off: bool

  def __call__(self, x, *, key=None):
    noise = 0.0 if self.off else jax.random.normal(key, (2,))
    return self.layers[1](self.layers[0] @ x) + noise


class Transformed(NamedTuple):
  init: Any
  apply: Any


def stand_in(monkeypatch):
  nn = types.SimpleNamespace(
    inference_mode=lambda module, value: Line(module.layers, value)
  )
  equinox = types.SimpleNamespace(Module=Module, nn=nn)
  equinox.is_inexact_array = lambda x: isinstance(x, jax.Array)
  monkeypatch.setitem(sys.modules, 'equinox', equinox)
  haiku = types.SimpleNamespace(Transformed=Transformed)
  monkeypatch.setitem(sys.modules, 'haiku', haiku)
  weight = jnp.arange(6.0).reshape(2, 3)
  noise = lambda rng: 0.0 if rng is None else jax.random.normal(rng)
  apply = lambda params, rng, x: x @ params + noise(rng)
  transformed = Transformed(lambda rng, x: jnp.ones((3, 2)), apply)
  return Line([weight, jnp.tanh], False), transformed, weight


def test_models_of_equinox_and_haiku_are_given_as_they_are(monkeypatch):
  """Catches a module of one sample that gets a batch, and one key for all."""
  module, transformed, weight = stand_in(monkeypatch)
  own, x = models.as_model(module), jnp.asarray(X[:, 0])
  params = own.init(KEYS[0], x)
  assert [*map(id, params.values())] == [id(weight)]
  want = jnp.tanh(x @ weight.T)
  np.testing.assert_allclose(own.apply(params, x, None), want, atol=1e-6)
  away = [own.apply(params, x, key) - want for key in KEYS]
  assert (away[0] != away[1]).any()
  assert (away[0][0] != away[0][1]).any()
  half = own.apply(jax.tree.map(lambda x: x / 2, params), x, None)
  np.testing.assert_allclose(half, jnp.tanh(x @ weight.T / 2), atol=1e-6)
  other = models.as_model(transformed)
  params = other.init(KEYS[0], x)
  outputs = [other.apply(params, x, key) for key in (None, *KEYS)]
  assert len({float(y.sum()) for y in outputs}) == 3
