"""Optimizers of clients: any of optax, by name or as they are."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fl_sketch.utils import registry
import optax

REGISTRY = registry.Registry('local_optimizer', context=('learning_rate',))
register, describe = REGISTRY.register, REGISTRY.describe
for _name in (
  'adabelief', 'adafactor', 'adagrad', 'adam', 'adamax', 'adamw', 'lamb',
  'lars', 'lion', 'nadam', 'nadamw', 'novograd', 'radam', 'rmsprop', 'sgd',
  'yogi',
):  # fmt: skip
  register(getattr(optax, _name), name=_name)
register(optax.contrib.muon)


class Optimizer(NamedTuple):
  """An optimizer of local steps.

  Attributes:
    make: ``client_lr`` -> an optax transformation with that learning rate.
    keep: whether a client keeps its state from one round in which it takes part
      to the next; else every round begins with a fresh one.
  """

  make: Callable[[Any], optax.GradientTransformation]
  keep: bool = False


def options() -> dict[str, type]:
  """Returns every option of `make` and its type, over all kinds.

  >>> options()['keep']
  <class 'bool'>
  """
  return {registry.KIND: str, 'keep': bool} | REGISTRY.types()


def make(kind: str, **options: Any) -> Optimizer:
  """Builds the optimizer of clients that a config names.

  >>> make('adamw', b2=0.99, keep=True).keep
  True

  Args:
    kind: the name of a registered factory, a function of ``learning_rate`` such
      as those of optax.
    **options: its arguments; and `Optimizer.keep`.

  Raises:
    ValueError: unknown kind, or options that the factory does not take.
  """
  keep = options.pop('keep', False)
  REGISTRY.check(kind, options)
  build = lambda rate: REGISTRY.make(kind, learning_rate=rate, **options)
  return Optimizer(build, keep)


def of(optimizer: Any) -> Optimizer | None:
  """Builds an optimizer from any of its forms.

  Args:
    optimizer: an `Optimizer`; an optax transformation, with its own learning
      rate; a name, as of `make`, or a mapping with ``kind`` and options; None.
  """
  if optimizer is None or isinstance(optimizer, Optimizer):
    return optimizer
  if isinstance(optimizer, str):
    return make(**registry.parse_call(optimizer))
  if isinstance(optimizer, Mapping):
    return make(**optimizer)
  return Optimizer(lambda rate: optimizer)
