"""Optimizers of clients and servers: any of optax, by name or by function."""

from collections.abc import Callable, Mapping
import functools
import inspect
from typing import Any, NamedTuple

from fl_sketch.utils import fields, registry
import jax
import jax.numpy as jnp
import optax
from optax import contrib

Factory = Callable[..., optax.GradientTransformation]  # of learning_rate=
_LOSS = 'requires the loss in every step'
_AVERAGED = 'trains other parameters than those that it evaluates'
# Optimizers of optax that make no step from a gradient and parameters alone.
_UNSUPPORTED = {
  'lbfgs': _LOSS, 'momo': _LOSS, 'momo_adam': _LOSS, 'polyak_sgd': _LOSS,
  'sophia': _LOSS, 'sam': 'requires two gradients in every step',
  'dpsgd': 'requires the gradient of every sample',
  'galore': 'keeps arrays of size 0, which no checkpoint holds',
  'schedule_free': _AVERAGED, 'schedule_free_adamw': _AVERAGED,
  'schedule_free_sgd': _AVERAGED,
  'noisy_sgd': 'draws noise, for which it has no key',
  'optimistic_adam': 'is deprecated; use optimistic_adam_v2',
}  # fmt: skip


def of_optax() -> dict[str, Factory]:
  """Return the optimizer factories of optax that take a learning rate."""
  return {
    name: factory
    for name, factory in sorted({**vars(contrib), **vars(optax)}.items())
    if inspect.isfunction(factory)
    and not name.startswith(('_', 'scale_by'))
    and name not in _UNSUPPORTED
    and 'learning_rate' in inspect.signature(factory).parameters
  }


class Registry(registry.Registry[registry.Factory]):
  """Functions of `learning_rate` by name: those of optax, and of users."""

  def entry(self, name: str) -> registry.Factory:
    """Return the entry of an optimizer; ValueError if there is none."""
    if isinstance(name, str) and name in self._entries:
      return self._entries[name]
    given = f'{self.kind}={fields.shown(name)}'
    if isinstance(name, str) and name in _UNSUPPORTED:
      raise ValueError(f'{given} is not supported: it {_UNSUPPORTED[name]}.')
    hint = fields.did_you_mean(name, self._entries)
    raise ValueError(
      f'{given} is not of optax; register a function of learning_rate.{hint}'
    )


class Optimizer(NamedTuple):
  """An optimizer of local steps."""

  # ``client_lr`` -> a transformation with that learning rate.
  make: Callable[[jax.Array | float], optax.GradientTransformation]
  keep_state: bool = False  # whether a client keeps it for its next round


def check(given: str, factory: Any, rate: Any = 0.1) -> None:
  """Refuse what is no function of ``learning_rate`` that makes steps.

  Raises TypeError for a transformation of optax, whose rate is fixed.
  """
  if not callable(factory):
    raise TypeError(
      f'{given} must be a name, or a function of learning_rate, such as '
      'optax.adam in place of optax.adam(0.1).'
    )

  def step(x):
    tx: Any = factory(learning_rate=rate)
    state = tx.init(x)
    is_free = lambda node: isinstance(node, contrib.ScheduleFreeState)
    if any(map(is_free, jax.tree.leaves(state, is_leaf=is_free))):
      raise ValueError(_AVERAGED)
    return tx.update(x, state, x)

  try:
    jax.eval_shape(step, jnp.zeros((2, 2)))
  except (ArithmeticError, TypeError, ValueError) as e:  # of optax or NumPy
    reason = str(e).partition('\n')[0].removesuffix('.')
    raise ValueError(f'{given} is not supported: {reason}.') from e


REGISTRY = Registry(
  'local_optimizer', context=('learning_rate',), shared={'keep_state': False}
)
register, describe = REGISTRY.register, REGISTRY.describe
for _name, _factory in of_optax().items():
  register(_factory, name=_name)


def make(kind: str, **options: Any) -> Optimizer:
  """Build a registered optimizer; options are its arguments, and `keep_state`.

  >>> make('adamw', b2=0.99, keep_state=True).keep_state
  True
  """
  keep_state = options.pop('keep_state', False)
  fields.check_option('keep_state', keep_state, bool)
  REGISTRY.check(kind, options)
  factory = functools.partial(REGISTRY.entry(kind).factory, **options)
  check(f'local_optimizer={kind}', factory)
  return Optimizer(lambda rate: factory(learning_rate=rate), keep_state)


def as_optimizer(
  optimizer: Optimizer | Factory | str | Mapping | None,
) -> Optimizer | None:
  """Build an optimizer from any of its forms; TypeError for others.

  A text is NAME or NAME(OPTION=VALUE), a mapping has ``kind`` and options, a
  function has an argument ``learning_rate``.
  """
  if optimizer is None or isinstance(optimizer, Optimizer):
    return optimizer
  if isinstance(optimizer, str):
    return make(**registry.parse_call(optimizer, REGISTRY.kind))
  if isinstance(optimizer, Mapping):
    return make(**optimizer)
  check(f'local_optimizer={fields.shown(optimizer)}', optimizer)
  return Optimizer(lambda rate: optimizer(learning_rate=rate))
