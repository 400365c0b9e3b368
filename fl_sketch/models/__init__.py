"""Models by name, or of any library, as pure functions init and apply."""

from collections.abc import Callable, Sequence
import functools
from typing import Any, NamedTuple

from fl_sketch.models import decoder, layers, lora, losses, transformer
from fl_sketch.models.model import Model, as_model
from fl_sketch.models.networks import (
  MLP,
  RESNET_SIZES,
  EmnistCNN,
  LeNet5,
  Linear,
  ResNet,
  SmoothLeNet,
)
from fl_sketch.models.recurrent import GRU, LSTM, SIZES as RECURRENT_SIZES
from fl_sketch.utils import checks, registry
from fl_sketch.utils.types import Key, Params
import jax
import jax.numpy as jnp

__all__ = [
  'make', 'names', 'register', 'describe', 'Model', 'as_model', 'init_params',
  'num_params', 'losses', 'lora', 'layers', 'Linear', 'MLP', 'LeNet5',
  'SmoothLeNet', 'ResNet', 'OF_IMAGES', 'OF_TOKENS', 'REGISTRY',
]  # fmt: skip


class Entry(NamedTuple):
  """A model of the registry."""

  factory: Callable[..., Any]  # (num_classes, **options); the first may lack
  # Whether a CPU, which has no good kernel for convolutions of several clients,
  # works on one client at a time.
  convolutional: bool = False
  hyper: tuple[str, ...] = ()  # see `registry.Factory`


REGISTRY = registry.Registry(
  'model', Entry, context=('num_classes', 'dtype', 'parent', 'name', 'rngs')
)
names, register, describe = REGISTRY.names, REGISTRY.register, REGISTRY.describe
register(Linear, name='linear')
register(MLP, name='mlp')
register(LeNet5, name='lenet5', convolutional=True)
register(SmoothLeNet, name='smooth_lenet', convolutional=True)
register(EmnistCNN, name='emnist_cnn', convolutional=True)
register(LSTM, name='lstm')
register(GRU, name='gru')
for _module, _sizes in (
  (ResNet, RESNET_SIZES), (transformer.ViT, transformer.VIT_SIZES),
  (transformer.Bert, transformer.BERT_SIZES), (LSTM, RECURRENT_SIZES),
  (decoder.GPT, decoder.GPT_SIZES), (decoder.Llama, decoder.LLAMA_SIZES),
):  # fmt: skip
  for _name, _size in _sizes.items():
    _sized = functools.partial(_module, **_size)
    register(_sized, name=_name, convolutional=_module is ResNet)
OF_TOKENS = (
  'lstm', 'gru', *RECURRENT_SIZES, *decoder.GPT_SIZES, *decoder.LLAMA_SIZES,
  *transformer.BERT_SIZES,
)  # fmt: skip
OF_IMAGES = tuple(name for name in names() if name not in OF_TOKENS)


def make(name: str, num_classes: int | None, **options) -> Any:
  """Build a model by name, of `num_classes` logits."""
  if num_classes is not None:
    checks.count('num_classes', num_classes)
  takes = REGISTRY.arguments(name)
  dtype = options.get('dtype', 'float32')
  if 'dtype' not in takes and dtype != 'float32':
    raise ValueError(f'{dtype=} must be float32 with model {name!r}.')
  if 'rngs' not in takes:
    return REGISTRY.make(name, num_classes=num_classes, **options)
  # A module of nnx, made for every seed.
  return lambda rngs: REGISTRY.make(
    name, num_classes=num_classes, rngs=rngs, **options
  )


def init_params(
  module: Any, key: Key, x_shape: Sequence[int], x_dtype=jnp.float32
) -> Params:
  """Draw the initial parameters of a module of any library.

  `x_shape` is of one sample; `x_dtype` is an integer type for tokens. Raises
  ValueError if the module has state other than parameters, see `as_model`.
  """
  return as_model(module).init(key, jnp.zeros((1, *x_shape), x_dtype))


def num_params(params: Params) -> int:
  """Count the entries of a tree of arrays; kernels of adapters do not count."""
  return sum(leaf.size for leaf in jax.tree.leaves(lora.split(params)[0]))
