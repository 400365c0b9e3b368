"""Federated algorithms by name.

>>> names()
('fedavg', 'fedsketch_privix', 'iterative_sketching', 'safl')
"""

from collections.abc import Callable
import inspect
from typing import Any

from fl_sketch import local as local_work
from fl_sketch.algorithms.base import Algorithm
from fl_sketch.algorithms.base import Hyper
from fl_sketch.algorithms.base import federated
from fl_sketch.algorithms.fedavg import fedavg
from fl_sketch.algorithms.fedsketch import fedsketch_privix
from fl_sketch.algorithms.iterative_sketching import iterative_sketching
from fl_sketch.algorithms.safl import make_server_optimizer
from fl_sketch.algorithms.safl import safl

__all__ = [
  'Algorithm',
  'Hyper',
  'describe',
  'fedavg',
  'federated',
  'fedsketch_privix',
  'iterative_sketching',
  'make',
  'make_server_optimizer',
  'names',
  'safl',
]

_FACTORIES = {
  'fedavg': fedavg,
  'fedsketch_privix': fedsketch_privix,
  'iterative_sketching': iterative_sketching,
  'safl': safl,
}


def names() -> tuple[str, ...]:
  """The algorithms that `make` knows."""
  return tuple(_FACTORIES)


def describe(name: str) -> str:
  """What the algorithm does, its source, and the options `make` takes."""
  factory = _factory(name)
  return f'{name}({", ".join(_options(factory))})\n\n{inspect.getdoc(factory)}'


def make(
  name: str,
  loss_fn: local_work.LossFn | None = None,
  *,
  local_steps: int | None = None,
  weight_decay: float = 0.0,
  local: Callable[[Hyper], local_work.Local] | None = None,
  **options: Any,
) -> Callable[[Hyper], Algorithm]:
  """Builds the function hp -> `Algorithm` that a round calls in its trace.

  >>> loss_fn = lambda params, batch: ((params - batch) ** 2).sum()
  >>> algorithm = make('fedavg', loss_fn, local_steps=5)(Hyper(0.1, 1.0))

  Args:
    name: one of `names()`.
    loss_fn: (params, batch) -> f32[].
    local_steps: K steps of SGD on a client; None is one a batch.
    weight_decay: of the local steps.
    local: hp -> local work, in place of SGD on `loss_fn`.
    **options: the algorithm's own; `describe(name)` lists them.

  Raises:
    ValueError: no such algorithm, an option it does not take or lacks, or both
      or neither of `loss_fn` and `local`.
  """
  factory = _factory(name)
  known = _options(factory)
  unknown = sorted(set(options) - set(known))
  if unknown:
    raise ValueError(f'Expected options of {name} in {known}, got {unknown}.')
  missing = [
    k
    for k, p in known.items()
    if p.default is inspect.Parameter.empty and k not in options
  ]
  if missing:
    raise ValueError(f'Expected options {missing} for {name}.')
  if loss_fn is not None and local is None:
    steps = {'local_steps': local_steps, 'weight_decay': weight_decay}
    work = lambda hp: local_work.sgd(loss_fn, hp.client_lr, **steps)
  elif local is not None and loss_fn is None:
    work = local
  else:
    raise ValueError('Expected either loss_fn or local.')
  return lambda hp: factory(work(hp), hp, **options)


def _factory(name):
  if name not in _FACTORIES:
    raise ValueError(f'Expected algorithm={name!r} in {names()}.')
  return _FACTORIES[name]


def _options(factory):
  parameters = inspect.signature(factory).parameters
  keyword = inspect.Parameter.KEYWORD_ONLY
  return {k: p for k, p in parameters.items() if p.kind is keyword}
