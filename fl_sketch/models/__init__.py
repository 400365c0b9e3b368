"""Models by name: flax linen modules, used only through pure init and apply.

`make` builds a model, `init_params` its parameters, which `pretrained` reads
from safetensors files instead; `losses` has losses and metrics of one batch.
`linear`, `mlp`, `lenet`, `smooth_lenet`, `resnet`, `vit` and `bert` have the
modules; `layers`, `transformer` and `precision` are what these share.
"""

from collections.abc import Sequence
import dataclasses
from typing import Any

from fl_sketch.models import bert, layers, losses, vit
from fl_sketch.models.lenet import LeNet5
from fl_sketch.models.linear import Linear
from fl_sketch.models.mlp import MLP
from fl_sketch.models.resnet import ResNet8, ResNet18, ResNet101
from fl_sketch.models.smooth_lenet import SmoothLeNet
from fl_sketch.utils import checks
import flax.linen as nn
import jax
import jax.numpy as jnp

__all__ = [
  'CONVOLUTIONAL', 'MLP', 'LeNet5', 'Linear', 'ResNet8', 'ResNet18',
  'ResNet101', 'SmoothLeNet', 'init_params', 'layers', 'losses', 'make',
  'names', 'num_params', 'options',
]  # fmt: skip

Params = Any

_MODELS = {
  'linear': Linear,
  'mlp': MLP,
  'lenet5': LeNet5,
  'smooth_lenet': SmoothLeNet,
  'resnet8': ResNet8,
  'resnet18': ResNet18,
  'resnet101': ResNet101,
  **dict.fromkeys(vit.SIZES, vit.ViT),
  **dict.fromkeys(bert.SIZES, bert.Bert),
}
_SIZES = vit.SIZES | bert.SIZES
CONVOLUTIONAL = ('lenet5', 'smooth_lenet', 'resnet8', 'resnet18', 'resnet101')
_NOT_OPTIONS = ('parent', 'name', 'num_classes')


def names() -> tuple[str, ...]:
  """The names of all models."""
  return tuple(_MODELS)


def options() -> dict[str, type]:
  """Returns every integer option of `make` and its type, over all models.

  >>> options()['patch']
  <class 'int'>
  """
  types = {}
  for module in _MODELS.values():
    types |= {f.name: f.type for f in dataclasses.fields(module) if f.init}
  return {k: v for k, v in types.items() if v is int and k not in _NOT_OPTIONS}


def make(name: str, num_classes: int, **options) -> nn.Module:
  """Builds a model by name.

  >>> make('mlp', 10, widths=(200, 200), activation='tanh').widths
  (200, 200)

  Args:
    name: one of `names()`.
    num_classes: number of logits.
    **options: other fields of the module, e.g. `widths` of 'mlp'.
  """
  checks.choice('name', name, names())
  checks.count('num_classes', num_classes)
  fields = dataclasses.fields(_MODELS[name])
  fields = [f for f in fields if f.init and f.name not in _NOT_OPTIONS]
  allowed = tuple(f.name for f in fields)
  for option in options:
    if option not in allowed:
      raise ValueError(f'Expected {option=} of model {name!r} in {allowed}.')
  for f in fields:
    if f.default is dataclasses.MISSING and f.name not in options:
      raise ValueError(f'Expected option {f.name!r} of model {name!r}.')
  options = {**_SIZES.get(name, {}), **options}
  return _MODELS[name](num_classes=num_classes, **options)


def init_params(
  module: nn.Module,
  key: jax.Array,
  x_shape: Sequence[int],
  x_dtype: Any = jnp.float32,
) -> Params:
  """Draws the initial parameters of a module.

  >>> params = init_params(Linear(10), jax.random.key(0), (28, 28, 1))
  >>> num_params(params)
  7850

  Args:
    module: any linen module of one argument.
    key: key[].
    x_shape: shape of one sample: no batch axis.
    x_dtype: integers for tokens.

  Raises:
    ValueError: the module has collections other than parameters, such as
      running statistics: a client's statistics have no mean over the clients.
  """
  variables = jax.jit(module.init)(key, jnp.zeros((1, *x_shape), x_dtype))
  collections = tuple(c for c in variables if c != 'params')
  if collections:
    raise ValueError(
      f'Expected a model with parameters only, not {collections=}: use '
      'GroupNorm or LayerNorm in place of BatchNorm.'
    )
  return variables['params']


def num_params(params: Params) -> int:
  """Counts the numbers in a tree of arrays (or of ShapeDtypeStructs).

  >>> num_params({'kernel': jnp.zeros((784, 10)), 'bias': jnp.zeros(10)})
  7850
  """
  return sum(leaf.size for leaf in jax.tree.leaves(params))
