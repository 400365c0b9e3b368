"""Models of any library as pure functions of parameters, inputs and a key."""

from collections.abc import Callable, Iterable
import inspect
import sys
from typing import Any, NamedTuple

import flax.linen as nn
import jax

Tree = Any
# Arguments by which modules are told that they train, and what they then get.
_MODES = {
  'train': True, 'training': True, 'is_training': True, 'deterministic': False,
}  # fmt: skip


class Model(NamedTuple):
  """A model, written as two pure functions.

  Attributes:
    init: (key[], inputs) -> params, for inputs of one or more samples, whose
      values do not matter.
    apply: (params, inputs, key) -> outputs. The key draws dropout and the like;
      it is None in evaluation, where nothing is drawn.
  """

  init: Callable[[jax.Array, Tree], Tree]
  apply: Callable[[Tree, Tree, jax.Array | None], Tree]


def as_model(model: Any) -> Model:
  """Writes a model of a known library as a `Model`.

  Modules are called with the inputs, and with `train`, `training`,
  `is_training` or `deterministic` if they have such an argument.

  >>> model = as_model(nn.Dense(2))
  >>> params = model.init(jax.random.key(0), jax.numpy.zeros((1, 3)))
  >>> model.apply(params, jax.numpy.ones((5, 3)), None).shape
  (5, 2)

  Args:
    model: a `Model`; a flax linen module; a flax nnx module, whose parameters
      are the first ones; or a function or class that makes an nnx module of its
      argument `rngs`.

  Raises:
    TypeError: it is nothing of these.
    ValueError: an nnx module has variables other than parameters, such as
      running statistics. Of a linen module, `init` raises that.
  """
  if isinstance(model, Model):
    return model
  if isinstance(model, nn.Module):
    return _linen(model)
  nnx = sys.modules.get('flax.nnx')  # whoever has a module of it imported it
  if nnx is not None and isinstance(model, nnx.Module):
    return _nnx(nnx, lambda rngs: model)
  if nnx is not None and callable(model):
    made = model.__init__ if isinstance(model, type) else model
    if 'rngs' in inspect.signature(made).parameters:
      return _nnx(nnx, model)
  raise TypeError(
    'The model is a Model, a flax linen or nnx module, or a function '
    f'of rngs that makes one, not {model!r}.'
  )


def _linen(module: nn.Module) -> Model:
  mode = _mode(module)

  def init(key, inputs):
    call = lambda key, inputs: module.init(key, inputs, **mode(None))
    variables = jax.jit(call)(key, inputs)
    _check(name for name in variables if name != 'params')
    return variables.get('params', {})

  def apply(params, inputs, key):
    rngs = None
    if key is not None:  # streams of other names use 'params'
      rngs = {'dropout': key, 'params': jax.random.fold_in(key, 0)}
    return module.apply({'params': params}, inputs, rngs=rngs, **mode(key))

  return Model(init, apply)


def _nnx(nnx: Any, build: Callable[..., Any]) -> Model:
  module = build(rngs=nnx.Rngs(0))
  mode = _mode(module)
  graph, first, random, other, constants = nnx.split(
    module, nnx.Param, nnx.RngState, nnx.Variable, ...
  )
  _check(type(x).__name__ for _, x in nnx.to_flat_state(other))
  streams = sorted({x.tag for _, x in nnx.to_flat_state(random)})

  def init(key, inputs):
    del inputs
    params = nnx.state(build(rngs=nnx.Rngs(key)), nnx.Param)
    return _with_text_keys(nnx.to_pure_dict(params))

  def apply(params, inputs, key):
    state = jax.tree.map(lambda x: x, first)
    nnx.replace_by_pure_dict(state, params)
    module = nnx.merge(graph, state, random, constants, copy=True)
    if key is None:
      module.eval()
    else:
      module.train()
      keys = [jax.random.fold_in(key, i) for i in range(len(streams))]
      keys = dict(zip(streams, keys, strict=True))
      nnx.reseed(module, policy='match_shape', **keys)
    return module(inputs, **mode(key))

  return Model(init, apply)


def _mode(module) -> Callable[[Any], dict[str, Any]]:
  """Returns a function from a key, or None, to arguments of the module."""
  taken = inspect.signature(type(module).__call__).parameters
  names = [name for name in _MODES if name in taken]
  return lambda key: {name: _MODES[name] == (key is not None) for name in names}


def _check(collections: Iterable[str]) -> None:
  """Checks that a module has no state besides its parameters."""
  if collections := tuple(sorted(set(collections))):
    raise ValueError(
      f'The model has {collections=}, not parameters alone: use '
      'GroupNorm or LayerNorm in place of BatchNorm.'
    )


def _with_text_keys(tree):
  """Names the elements of lists by text, as a file of parameters does."""
  if not isinstance(tree, dict):
    return tree
  return {str(name): _with_text_keys(part) for name, part in tree.items()}
