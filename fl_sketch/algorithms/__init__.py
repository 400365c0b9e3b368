"""Federated algorithms by name.

>>> 'safl' in names()
True
"""

from collections.abc import Callable
import functools
import inspect
from typing import Any

from fl_sketch import local as local_work
from fl_sketch.algorithms import costs
from fl_sketch.algorithms.registry import ENTRIES, Entry
from fl_sketch.algorithms.server_optimizers import make_server_optimizer
from fl_sketch.local import private_sgd
from fl_sketch.rounds.algorithm import (
  Algorithm,
  Hyper,
  Local,
  LossFn,
  federated,
)

__all__ = [
  'NOTE', 'Algorithm', 'Hyper', 'describe', 'entry', 'federated', 'make',
  'make_server_optimizer', 'mark', 'measure', 'names', 'options', 'table',
]  # fmt: skip


NOTE = '† From memory of the paper; not checked against its text or code.'


def names() -> tuple[str, ...]:
  """The algorithms that `make` knows."""
  return tuple(ENTRIES)


def entry(name: str) -> Entry:
  """The registry's entry of an algorithm.

  Raises:
    ValueError: there is no algorithm of that name.
  """
  if name not in ENTRIES:
    raise ValueError(f'Expected algorithm={name!r} in {names()}.')
  return ENTRIES[name]


def options(name: str) -> dict[str, inspect.Parameter]:
  """The keyword arguments of an algorithm's factory.

  >>> list(options('diffsketch'))
  ['sketch']
  """
  parameters = inspect.signature(entry(name).factory).parameters
  keyword = inspect.Parameter.KEYWORD_ONLY
  return {k: p for k, p in parameters.items() if p.kind is keyword}


def describe(name: str) -> str:
  """Describes an algorithm: options, docstring, and its measured costs."""
  spec = entry(name)
  bare = lambda option: str(option.replace(annotation=option.empty))
  call = ', '.join(map(bare, options(name).values()))
  report = costs.report(measure(name), spec.example)
  return f'{name}({call})\n\n{inspect.getdoc(spec.factory)}\n\n{report}'


def table() -> str:
  """Measures the costs of all algorithms, in a minute; a Markdown table."""
  examples = {name: entry(name).example for name in names()}
  measured = {name: measure(name) for name in names()}
  marks = {name: mark(name) for name in names()}
  return f'{costs.table(measured, examples, marks)}\n\n{NOTE}'


def mark(name: str) -> str:
  """A dagger for tables, after the names of algorithms that `NOTE` is about.

  >>> mark('cd_adam'), mark('safl')
  (' †', '')
  """
  return ' †' if name in ENTRIES and ENTRIES[name].from_memory else ''


@functools.cache
def measure(name: str) -> costs.Costs:
  """Measures the costs of the call of `Entry.example` on a toy problem.

  >>> measure('scaffold').client_state
  1000.0
  """
  arguments = {
    option: x() if isinstance(x, functools.partial) else x
    for option, x in entry(name).example.items()
  }
  if entry(name).work == 'private_steps':  # noise sends no bytes
    sgd = lambda hp: local_work.sgd(costs.quadratic, hp.client_lr)
    arguments['local'] = sgd
  else:
    arguments['loss_fn'] = costs.quadratic
  return costs.measure(make(name, **arguments), *costs.toy_problem())


def make(
  name: str,
  loss_fn: LossFn | None = None,
  *,
  local_steps: int | None = None,
  population: int | None = None,
  weight_decay: float = 0.0,
  expected_batch: int | None = None,
  local: Callable[[Hyper], Local] | None = None,
  **arguments: Any,
) -> Callable[[Hyper], Algorithm]:
  """Builds the function hp -> `Algorithm` that a round calls in its trace.

  >>> loss_fn = lambda params, batch: ((params - batch) ** 2).sum()
  >>> algorithm = make('fedavg', loss_fn, local_steps=5)(Hyper(0.1, 1.0))

  Args:
    name: one of `names()`.
    loss_fn: (params, batch) -> f32[].
    local_steps: K steps of SGD on a client; None is one a batch. Algorithms
      that send one gradient take None or 1.
    population: clients in total, for the algorithms that take it.
    weight_decay: of the local steps.
    expected_batch: divisor of private local steps; None elsewhere.
    local: hp -> local work, in place of SGD on `loss_fn`.
    **arguments: the algorithm's options; `describe(name)` lists them.

  Raises:
    ValueError: no such algorithm, an option it does not take or lacks, more
      than one local step where it sends a gradient, or both or neither of
      `loss_fn` and `local`.
  """
  spec, accepted = entry(name), options(name)
  if unknown := sorted(set(arguments) - set(accepted)):
    raise ValueError(
      f'Expected options of {name} in {sorted(accepted)}, got {unknown}.'
    )
  common = {'local_steps': local_steps, 'population': population}
  arguments |= {
    k: v for k, v in common.items() if k in accepted and v is not None
  }
  required = {k for k, p in accepted.items() if p.default is p.empty}
  missing = [k for k in accepted if k in required - set(arguments)]
  if missing:
    raise ValueError(f'Expected options {missing} for {name}.')
  if spec.work == 'gradient' and local_steps not in (None, 1):
    raise ValueError(
      f'Expected {local_steps=} to be 1 for {name}, which sends one gradient.'
    )
  if loss_fn is not None and local is None:
    if (spec.work == 'private_steps') != (expected_batch is not None):
      raise ValueError(f'Expected {expected_batch=} only for private steps.')
    work = _work(spec.work, loss_fn, local_steps, weight_decay, expected_batch)
  elif loss_fn is None and local is not None:
    work = local
  else:
    raise ValueError('Expected either loss_fn or local.')
  release = arguments.get('privacy')
  private = lambda hp: {} if release is None else {'privacy': release.at(hp)}
  return lambda hp: spec.factory(work(hp), hp, **arguments | private(hp))


def _work(kind, loss_fn, local_steps, weight_decay, expected_batch):
  """Builds hp -> local work for the `Entry.work` of an algorithm."""
  if kind == 'gradient':
    return lambda hp: local_work.gradient(loss_fn, weight_decay=weight_decay)
  if kind == 'private_steps':
    options = {'expected_batch': expected_batch, 'weight_decay': weight_decay}
    numbers = lambda hp: (hp.client_lr, hp.clip_norm, hp.noise_multiplier)
    return lambda hp: private_sgd(loss_fn, *numbers(hp), **options)
  steps = {'local_steps': local_steps, 'weight_decay': weight_decay}
  return lambda hp: local_work.sgd(loss_fn, hp.client_lr, **steps)
