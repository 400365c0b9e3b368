"""Federated algorithms by name, and the options that each takes.

>>> 'safl' in names(), list(options('diffsketch'))
(True, ['sketch', 'noise_stddev'])
"""

from collections.abc import Callable
from typing import Any

from fl_sketch.algorithms.channel import Channel
from fl_sketch.algorithms.registry import REGISTRY, register
from fl_sketch.algorithms.server_optimizers import make_server_optimizer
from fl_sketch.local import Task, optimizers
from fl_sketch.rounds import algorithm as algorithm_lib
from fl_sketch.rounds.algorithm import (
  Algorithm,
  Hyper,
  StatefulLocal,
  federated,
)

__all__ = [
  'make', 'names', 'options', 'describe', 'Hyper', 'make_server_optimizer',
  'Algorithm', 'federated', 'Channel', 'register', 'entry', 'takes_clip',
  'takes_optimizer', 'REGISTRY',
]  # fmt: skip

names, entry, options = REGISTRY.names, REGISTRY.entry, REGISTRY.arguments
describe = REGISTRY.describe


def make(
  name: str,
  loss_fn: algorithm_lib.LossFn | None = None,
  *,
  local_steps: int | None = None,
  population: int | None = None,
  weight_decay: float = 0.0,
  expected_batch: int | None = None,
  local_optimizer: Any = None,
  client_clip: float | None = None,
  local: Callable[[Hyper], algorithm_lib.Local] | None = None,
  **arguments: Any,
) -> Callable[[Hyper], Algorithm]:
  """Build the function hp -> `Algorithm` that a round calls in its trace.

  >>> loss_fn = lambda params, batch: ((params - batch) ** 2).sum()
  >>> algorithm = make('fedavg', loss_fn, local_steps=5)(Hyper(0.1, 1.0))

  Args:
    name: one of `names()`.
    loss_fn: (params, batch) -> f32[].
    local_steps: K steps of a client; None: one for each batch.
    population: clients in total, for the algorithms that take it.
    weight_decay: of the local steps.
    expected_batch: divisor of private local steps; else None.
    local_optimizer: of local steps, as of `optimizers.as_optimizer`; None: SGD.
    client_clip: the largest norm of a client's gradients; None: no bound.
    local: hp -> local work, in place of steps on `loss_fn`.
    **arguments: the algorithm's options; `describe(name)` lists them.

  Raises:
    ValueError: no such algorithm; an option, optimizer, clip or number of local
      steps that it does not support; both or neither of `loss_fn` and `local`.
  """
  for option, value in (
    ('local_steps', local_steps), ('population', population),
  ):  # fmt: skip
    if value is not None and option in options(name):
      arguments[option] = value
  REGISTRY.check(name, arguments, context=True)
  optimizer = optimizers.as_optimizer(local_optimizer)
  task = Task(
    loss_fn, local_steps, weight_decay, expected_batch, optimizer, client_clip,
    local,
  )  # fmt: skip
  _check_task(name, task)

  def algorithm(hp):
    extra = hp.extra or {}
    hyper = {k: extra[k] for k in entry(name).hyper if k in extra}
    values = {
      option: algorithm_lib.with_hyper(value, hp)
      for option, value in (arguments | hyper).items()
    }
    if values.get('privacy') is not None:
      values['privacy'] = values['privacy'].with_hyper(hp)
    hyper_task = task._replace(loss_fn=algorithm_lib.with_hyper(loss_fn, hp))
    result = REGISTRY.build(name, hyper_task, hp, values)
    keeps_state = optimizer is not None and optimizer.keep_state
    if keeps_state and not isinstance(result.local, StatefulLocal):
      raise ValueError(
        f'{name} does not support local_optimizer with keep_state=True.'
      )
    return result

  return algorithm


def _check_task(name: str, task: Task) -> None:
  work, local = entry(name).work, task.local
  if (task.loss_fn is None) == (local is None):
    raise ValueError(f'{name} requires either loss_fn or local.')
  if local is not None and work in ('task', 'slopes'):
    raise ValueError(
      f'{name} changes the local steps; set loss_fn in place of local.'
    )
  if work == 'gradient' and task.local_steps not in (None, 1):
    raise ValueError(
      f'{name} sends one gradient, got local_steps={task.local_steps}; set 1.'
    )
  if task.optimizer is not None and not takes_optimizer(name, local):
    raise ValueError(f'{name} does not support local_optimizer; remove it.')
  if task.clip is not None and not takes_clip(name, local):
    raise ValueError(f'{name} does not support client_clip; remove it.')
  private = work == 'private_steps' and local is None
  if private != (task.expected_batch is not None):
    raise ValueError(
      f'{name} got expected_batch={task.expected_batch}; private local steps '
      'on loss_fn require it, and no others support it.'
    )


def takes_clip(name: str, local: Callable[[Hyper], Any] | None = None) -> bool:
  """Return whether clients compute gradients of batches to be clipped."""
  return local is None and entry(name).work not in ('private_steps', 'slopes')


def takes_optimizer(
  name: str, local: Callable[[Hyper], Any] | None = None
) -> bool:
  """Return whether any optimizer can make the local steps."""
  # Algorithms that take ``local_steps`` divide by that number of steps of SGD.
  if local is not None or 'local_steps' in options(name):
    return False
  return entry(name).work in ('steps', 'task') and entry(name).any_optimizer
