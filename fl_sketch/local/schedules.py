"""Schedules of learning rates over rounds, by name."""

from typing import Any

from fl_sketch.utils import fields, registry
import optax

REGISTRY = registry.Registry('client_schedule', context=('rounds',))
register, describe = REGISTRY.register, REGISTRY.describe


def make(kind: str, *, rounds: int, **options: Any) -> optax.Schedule:
  """Build a registered schedule: round -> factor on ``client_lr``.

  >>> factor = make('cosine', rounds=6, warmup=2, final=0.2)
  >>> [round(float(factor(r)), 2) for r in (0, 1, 2, 4, 6)]
  [0.5, 1.0, 1.0, 0.6, 0.2]
  """
  return REGISTRY.make(kind, rounds=rounds, **options)


@register
def constant(rounds: int, *, warmup: fields.Size = 0) -> optax.Schedule:
  """Return 1, but (r + 1) / warmup in the first `warmup` rounds r."""
  return _warmed_up(rounds, warmup, optax.constant_schedule(1.0))


@register
def cosine(
  rounds: int, *, warmup: fields.Size = 0, final: fields.Share = 0.0
) -> optax.Schedule:
  """Decay as half a cosine from 1, after `warmup`, to `final`.

  Source: Loshchilov, Hutter, ICLR 2017, arXiv:1608.03983, without restarts.
  """
  decay = optax.cosine_decay_schedule(1.0, max(1, rounds - warmup), final)
  return _warmed_up(rounds, warmup, decay)


@register
def linear(
  rounds: int, *, warmup: fields.Size = 0, final: fields.Share = 0.0
) -> optax.Schedule:
  """Decay linearly from 1, after `warmup` as in `constant`, to `final`."""
  decay = optax.linear_schedule(1.0, final, max(1, rounds - warmup))
  return _warmed_up(rounds, warmup, decay)


def _warmed_up(rounds, warmup, rest) -> optax.Schedule:
  if warmup >= rounds:
    raise ValueError(f'{warmup=} is not below {rounds=}; shorten the warm-up.')
  if not warmup:
    return rest
  rise = lambda r: (r + 1) / warmup  # not 0: each round moves
  return optax.join_schedules([rise, rest], [warmup])
