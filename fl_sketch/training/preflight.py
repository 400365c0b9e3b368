"""Refuses a run that does not fit, and says what to change."""

from collections.abc import Callable, Iterator
import dataclasses

from fl_sketch import experiment
from fl_sketch.training import memory as memory_lib, program as program_lib
import jax


def require(
  exp: experiment.Experiment,
  mesh: jax.sharding.Mesh,
  run: program_lib.Program | None = None,
  have: memory_lib.Available | None = None,
):
  """Refuses a run that does not fit, before it holds anything.

  Args:
    exp: from `experiment.build`.
    mesh: over which devices.
    run: its program, which is compiled once for this and for the run.
    have: what there is; None asks the machine.

  Raises:
    TooLargeError: names what does not fit, and what to change.
  """
  have = memory_lib.available(mesh.local_devices[0]) if have is None else have
  found = program_lib.memory_of(exp, mesh, run)
  if memory_lib.lacks(found, have):
    check(found, have, remedies(exp, mesh, found, have))


def check(
  found: memory_lib.Memory,
  have: memory_lib.Available,
  advice: list[str] | None = None,
):
  """Refuses what does not fit; what is not known is no bound.

  Args:
    found: what a run takes.
    have: what there is.
    advice: what to change, of which the machine is always one.

  Raises:
    TooLargeError: names what does not fit, and what to change.
  """
  if not (lacks := memory_lib.lacks(found, have)):
    return
  machine = f'the machine, to one with {memory_lib.units(found.host_peak)}'
  if not found.on_host:
    machine += f' and {memory_lib.units(found.device_peak)} on each device'
  raise memory_lib.TooLargeError(
    f'The run takes {" and ".join(lacks)}. '
    f'Change {"; or ".join([*(advice or []), machine])}.'
  )


def remedies(
  exp: experiment.Experiment,
  mesh: jax.sharding.Mesh,
  found: memory_lib.Memory,
  have: memory_lib.Available,
) -> list[str]:
  """Changes to a config under each of which the run fits, as compiled.

  If none suffices alone they are tried together, and then with a smaller
  cohort, which is another experiment.

  Args:
    exp: that does not fit.
    mesh: over which devices.
    found: what it takes.
    have: what there is.
  """

  def lack(e, lanes=None):
    run = program_lib.program(e, mesh, lanes)
    return _lack(program_lib.memory_of(e, mesh, run, found), have)

  alone, together, everything = [], [], exp
  for field, value in _placements(exp, mesh, found):
    text = f'{field} to {value!r}'
    if lack(_with(exp, field, value)) <= 0:
      alone.append(text)
    everything = _with(everything, field, value)
    together.append(text)
  lanes = len(program_lib.drawn(exp, mesh).ids)
  at_once = min(exp.lanes_per_step or lanes, lanes // mesh.size)
  if at_once > 1:
    fewer = lambda n: lack(exp._replace(lanes_per_step=n))
    if n := _largest(at_once, 1, fewer):
      alone.append(f'lanes_per_step to {n}')
    everything = everything._replace(lanes_per_step=1)
    together.append('lanes_per_step to 1')
  if alone:
    return alone
  if together and lack(everything) <= 0:
    return [' and '.join(together)]
  n = _largest(lanes, mesh.size, lambda n: lack(everything, n))
  cohort = exp.config.cohort * n // lanes
  return [' and '.join([*together, f'cohort to {cohort}'])] if cohort else []


def _placements(exp, mesh, found) -> Iterator[tuple[str, str]]:
  """Fields of a config that take something off the devices."""
  if found.held['training data']:
    yield 'feed', 'host'
  c, rows = exp.config, found.held["clients' rows"]
  if rows and c.client_state != 'host' and c.rounds_per_dispatch == 1:
    yield 'client_state', 'host'
  whole = c.server_state == 'replicated'
  if found.held["server's state"] and whole and mesh.size > 1:
    yield 'server_state', 'sharded'


def _with(exp, field, value):
  return exp._replace(config=dataclasses.replace(exp.config, **{field: value}))


def _lack(found, have) -> int:
  """Bytes that are missing, or, below 0, to spare."""
  needs = zip((found.device_peak, found.host_peak), have, strict=True)
  return max(need - limit for need, limit in needs if limit is not None)


def _largest(most: int, least: int, lack: Callable[[int], int]) -> int:
  """The largest number below `most` that lacks nothing; 0 if there is none.

  As if what is lacked grew in a straight line, and less if it does not.
  """
  low = lack(least)
  if low > 0 or most <= least:
    return 0
  slope = (lack(most) - low) / (most - least)
  n = min(most - 1, least + int(-low / max(slope, 1e-9)))
  while n > least and lack(n) > 0:
    n = max(least, n // 2)
  return n
