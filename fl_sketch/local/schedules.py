"""Schedules of learning rates over rounds, by name."""

from typing import Any

from fl_sketch.utils import fields, registry
import optax

REGISTRY = registry.Registry('client_schedule', context=('rounds',))
register, describe = REGISTRY.register, REGISTRY.describe


def make(kind: str, *, rounds: int, **options: Any) -> optax.Schedule:
  """Builds the schedule that a config names: round -> factor on ``client_lr``.

  >>> factor = make('cosine', rounds=6, warmup=2, final=0.2)
  >>> [round(float(factor(r)), 2) for r in (0, 1, 2, 4, 6)]
  [0.5, 1.0, 1.0, 0.6, 0.2]

  `kind` is the name of a registered factory, a function of the ``rounds`` of a
  run and of options. Raises ValueError for options that do not suit it.
  """
  return REGISTRY.make(kind, rounds=rounds, **options)


@register
def constant(rounds: int, *, warmup: fields.Size = 0) -> optax.Schedule:
  """The same rate, and (r + 1) / warmup of it in the first `warmup` rounds."""
  return _warmed_up(rounds, warmup, optax.constant_schedule(1.0))


@register
def cosine(
  rounds: int, *, warmup: fields.Size = 0, final: fields.Share = 0.0
) -> optax.Schedule:
  """Half a cosine from 1, after the warm-up, to ``final`` at the end.

  Loshchilov, Hutter, ICLR 2017 (arXiv:1608.03983), without restarts; the
  ``warmup`` is that of `constant`.
  """
  decay = optax.cosine_decay_schedule(1.0, max(1, rounds - warmup), final)
  return _warmed_up(rounds, warmup, decay)


@register
def linear(
  rounds: int, *, warmup: fields.Size = 0, final: fields.Share = 0.0
) -> optax.Schedule:
  """Decays linearly from 1, after the `warmup` of `constant`, to `final`."""
  decay = optax.linear_schedule(1.0, final, max(1, rounds - warmup))
  return _warmed_up(rounds, warmup, decay)


def _warmed_up(rounds, warmup, rest) -> optax.Schedule:
  if warmup >= rounds:
    raise ValueError(f'{warmup=} is not below {rounds=}; shorten the warm-up.')
  if not warmup:
    return rest
  rise = lambda r: (r + 1) / warmup  # not 0: each round moves
  return optax.join_schedules([rise, rest], [warmup])
