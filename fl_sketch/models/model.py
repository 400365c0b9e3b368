"""Models of any library as pure functions of parameters, inputs and a key."""

from collections.abc import Callable, Iterable
import functools
import inspect
import sys
from typing import Any, NamedTuple

from fl_sketch.utils.types import Key, Params, Tree
from flax import traverse_util
import flax.linen as nn
import jax

# Arguments of modules that say whether they train, and the value for training.
_MODES = {
  'train': True, 'training': True, 'is_training': True, 'deterministic': False,
}  # fmt: skip


class Model(NamedTuple):
  """A model as two pure functions.

  `init` is (key, inputs) -> params, for inputs of any values; `apply` is
  (params, inputs, key) -> outputs. The key draws dropout and the like; it is
  None in evaluation.
  """

  init: Callable[[Key, Tree], Params]
  apply: Callable[[Params, Tree, Key | None], Tree]


def as_model(model: Any) -> Model:
  """Return a model of a known library as a `Model`.

  It is a `Model`; a flax linen module; a flax nnx or equinox module, whose
  parameters are the initial ones; a haiku `Transformed`; or a function or class
  that makes an nnx module of its argument `rngs`. An equinox module maps one
  sample. Modules also get the arguments `train`, `training`, `is_training`,
  `deterministic` or, of equinox, `key` that they have.

  >>> model = as_model(nn.Dense(2))
  >>> params = model.init(jax.random.key(0), jax.numpy.zeros((1, 3)))
  >>> model.apply(params, jax.numpy.ones((5, 3)), None).shape
  (5, 2)

  Raises TypeError for anything else, and ValueError for variables of flax other
  than parameters, such as running statistics (linen: in `init`).
  """
  if isinstance(model, Model):
    return model
  if isinstance(model, nn.Module):
    return _linen(model)
  # Whoever has a module of a library imported it.
  nnx, equinox, haiku = map(sys.modules.get, ('flax.nnx', 'equinox', 'haiku'))
  if equinox is not None and isinstance(model, equinox.Module):
    return _equinox(equinox, model)
  if haiku is not None and isinstance(model, haiku.Transformed):
    return _haiku(model)
  if nnx is not None and isinstance(model, nnx.Module):
    return _nnx(nnx, lambda rngs: model)
  if nnx is not None and callable(model):
    made = model.__init__ if isinstance(model, type) else model
    if 'rngs' in inspect.signature(made).parameters:
      return _nnx(nnx, model)
  name = getattr(model, '__name__', type(model).__name__)
  raise TypeError(
    f'model={name} is no models.Model, flax or equinox module, haiku '
    'Transformed, or function of rngs that makes an nnx module.'
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
    params = nnx.state(build(rngs=nnx.Rngs(key)), nnx.Param)
    flat = traverse_util.flatten_dict(nnx.to_pure_dict(params))
    # Elements of lists are named by text, as in a file of parameters.
    named = {tuple(map(str, path)): x for path, x in flat.items()}
    return traverse_util.unflatten_dict(named)

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


def _equinox(equinox: Any, module: Any) -> Model:
  taken = inspect.signature(type(module).__call__).parameters
  paths, tree = jax.tree_util.tree_flatten_with_path(module)
  name = functools.partial(jax.tree_util.keystr, simple=True, separator='.')
  leaves = {name(path): leaf for path, leaf in paths}
  first = {k: x for k, x in leaves.items() if equinox.is_inexact_array(x)}

  def apply(params, inputs, key):
    bound = jax.tree.unflatten(tree, (leaves | params).values())
    bound = equinox.nn.inference_mode(bound, value=key is None)
    if key is None or 'key' not in taken:
      return jax.vmap(bound)(inputs)
    keys = jax.random.split(key, len(jax.tree.leaves(inputs)[0]))
    return jax.vmap(lambda x, key: bound(x, key=key))(inputs, keys)

  return Model(lambda key, inputs: first, apply)


def _haiku(model: Any) -> Model:
  # `haiku.without_apply_rng` takes that argument away.
  has_rng = 'rng' in inspect.signature(model.apply).parameters
  rng = lambda key: [key] * has_rng
  apply = lambda params, inputs, key: model.apply(params, *rng(key), inputs)
  return Model(jax.jit(model.init), apply)


def _mode(module) -> Callable[[Any], dict[str, Any]]:
  taken = inspect.signature(type(module).__call__).parameters
  names = [name for name in _MODES if name in taken]
  return lambda key: {name: _MODES[name] == (key is not None) for name in names}


def _check(collections: Iterable[str]) -> None:
  if state := sorted({*collections}):
    raise ValueError(
      f'The model has {state=}, not parameters alone: use GroupNorm or '
      'LayerNorm in place of BatchNorm.'
    )
