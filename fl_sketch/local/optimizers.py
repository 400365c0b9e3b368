"""Optimizers of clients: any of optax, by name or as they are."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fl_sketch.utils import fields, registry
import jax
import optax

REGISTRY = registry.Registry(
  'local_optimizer', context=('learning_rate',), shared={'keep_state': False}
)
register, describe = REGISTRY.register, REGISTRY.describe
for _name in (
  'adabelief', 'adafactor', 'adagrad', 'adam', 'adamax', 'adamw', 'lamb',
  'lars', 'lion', 'nadam', 'nadamw', 'novograd', 'radam', 'rmsprop', 'sgd',
  'yogi',
):  # fmt: skip
  register(getattr(optax, _name), name=_name)
register(optax.contrib.muon)


class Optimizer(NamedTuple):
  """An optimizer of local steps."""

  # ``client_lr`` -> a transformation with that learning rate.
  make: Callable[[jax.Array | float], optax.GradientTransformation]
  keep_state: bool = False  # whether a client keeps it for its next round


def make(kind: str, **options: Any) -> Optimizer:
  """Build a registered optimizer; options are its arguments, and `keep_state`.

  >>> make('adamw', b2=0.99, keep_state=True).keep_state
  True

  Raises ValueError if the kind is unknown, or does not take an option.
  """
  keep_state = options.pop('keep_state', False)
  fields.check_option('keep_state', keep_state, bool)
  REGISTRY.check(kind, options)
  build = lambda rate: REGISTRY.make(kind, learning_rate=rate, **options)
  try:
    build(0.1)
  except (TypeError, ValueError) as e:  # of NumPy, about the name of a dtype
    reason = str(e).partition('\n')[0]
    raise ValueError(f'local_optimizer {kind!r}: {reason}.') from e
  return Optimizer(build, keep_state)


def as_optimizer(
  optimizer: Optimizer | optax.GradientTransformation | str | Mapping | None,
) -> Optimizer | None:
  """Build an optimizer from any of its forms; TypeError for others.

  A text is NAME or NAME(OPTION=VALUE), a mapping has ``kind`` and options. An
  optax transformation has its own learning rate.
  """
  if optimizer is None or isinstance(optimizer, Optimizer):
    return optimizer
  if isinstance(optimizer, str):
    return make(**registry.parse_call(optimizer))
  if isinstance(optimizer, Mapping):
    return make(**optimizer)
  if not isinstance(optimizer, optax.GradientTransformation):
    raise TypeError(f'{optimizer!r} is no local optimizer; use a name.')
  return Optimizer(lambda rate: optimizer)
