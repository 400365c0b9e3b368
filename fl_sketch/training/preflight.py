"""Preflight memory check: raises TooLargeError and suggests config changes."""

from collections.abc import Iterator
import dataclasses
import functools

from fl_sketch import experiment
from fl_sketch.training import memory as memory_lib, program as program_lib
from fl_sketch.utils import progress
import jax

_HALVINGS = 2  # a compilation each, which can take minutes


def check(
  exp: experiment.Experiment,
  mesh: jax.sharding.Mesh,
  run: program_lib.Program | None = None,
  have: memory_lib.Available | None = None,
) -> program_lib.Program:
  """Checks that a run fits the memory, before anything is allocated.

  Devices that would train all their clients at once, as accelerators do with
  ``clients_per_step=0``, use the largest chunk of clients that fits, but in
  private runs: the rounding of released rounds must not depend on the machine.
  Returns the program that fits: `run`, which is built if it is None, or that of
  smaller chunks. What the machine has is read unless `have` says it. Raises
  TooLargeError, which names what does not fit, and suggests config changes.
  """
  have = memory_lib.available(mesh.local_devices[0]) if have is None else have
  run = program_lib.program(exp, mesh) if run is None else run
  memory = program_lib.memory_of(exp, mesh, run)
  shortfalls = memory_lib.shortfalls(memory, have)
  if not shortfalls:
    return run
  progress.note(
    f'The run takes {" and ".join(shortfalls)}: compiling it up to '
    f'{2 * _HALVINGS} times more to find what fits.'
  )
  search = _Search(exp, mesh, memory, have)
  whole = exp.clients_per_step is None and exp.config.clients_per_step == 0
  if whole and exp.guarantee is None and (lanes := search.lanes):
    progress.note(f'It fits with clients_per_step={lanes}, and runs so.')
    return search.programs[lanes]
  raise too_large(memory, shortfalls, search.suggestions())


def too_large(
  memory: memory_lib.Memory, shortfalls: list[str], suggestions: list[str]
) -> memory_lib.TooLargeError:
  """The error that names what does not fit, and changes to the config."""
  machine = f'the machine, to one with {memory_lib.units(memory.host_peak)}'
  if not memory.on_host:
    machine += f' and {memory_lib.units(memory.device_peak)} on each device'
  return memory_lib.TooLargeError(
    f'The run takes {" and ".join(shortfalls)}. '
    f'Change {"; or ".join([*suggestions, machine])}.'
  )


class _Search:
  """Searches changes to a config under which a run fits the memory."""

  def __init__(self, exp, mesh, memory, have):
    # clients_per_step -> the program, of those compiled.
    self.programs: dict[int, program_lib.Program] = {}
    self._exp, self._mesh, self._memory, self._have = exp, mesh, memory, have
    self._cohort = len(program_lib.drawn(exp, mesh).ids)
    at_once = exp.clients_per_step or self._cohort
    self._at_once = min(at_once, self._cohort // mesh.size)
    self._one_by_one = memory  # that of clients_per_step=1 after `lanes`

  @functools.cached_property
  def lanes(self) -> int:
    """The largest smaller `clients_per_step` that fits; 0 if none does."""

    def shortfall(lanes):
      exp = self._exp._replace(clients_per_step=lanes)
      self.programs[lanes] = program_lib.program(exp, self._mesh)
      memory = self._measured(exp, self.programs[lanes])
      if lanes == 1:
        self._one_by_one = memory
      return _shortfall(memory, self._have)

    above = _shortfall(self._memory, self._have)
    return _largest(self._at_once, 1, above, shortfall)

  def suggestions(self) -> list[str]:
    """Lists changes each of which makes the run fit, or all of them as one."""
    alone, together, everything = [], [], self._exp
    for field, value in _placements(self._exp, self._mesh, self._memory):
      text = f'{field} to {value!r}'
      if self._estimated(_with(self._exp, field, value), self._memory) <= 0:
        alone.append(text)
      everything = _with(everything, field, value)
      together.append(text)
    if self._at_once > 1:
      if self.lanes:
        alone.append(f'clients_per_step to {self.lanes}')
      everything = everything._replace(clients_per_step=1)
      together.append('clients_per_step to 1')
    if alone:
      return alone
    above = self._estimated(everything, self._one_by_one)
    if together and above <= 0:
      return [' and '.join(together)]

    def shortfall(lanes):  # of a smaller cohort, which is another experiment
      run = program_lib.program(everything, self._mesh, lanes)
      return _shortfall(self._measured(everything, run), self._have)

    lanes = _largest(self._cohort, self._mesh.size, above, shortfall)
    cohort = self._exp.config.cohort * lanes // self._cohort
    together.append(f'cohort to {cohort}')
    return [' and '.join(together)] if cohort else []

  def _measured(self, exp, run):
    return program_lib.memory_of(exp, self._mesh, run, self._memory)

  def _estimated(self, exp, like):
    run = program_lib.program(exp, self._mesh)
    memory = program_lib.memory_of(exp, self._mesh, run, like, compiled=False)
    return _shortfall(memory, self._have)


def _placements(exp, mesh, memory) -> Iterator[tuple[str, str]]:
  """Config fields that move arrays off the devices, or shard them."""
  if memory.held['training data']:
    yield 'feed', 'host'
  c, rows = exp.config, memory.held['client state']
  if rows and c.client_state != 'host' and c.rounds_per_dispatch == 1:
    yield 'client_state', 'host'
  whole = c.server_state == 'replicated'
  if memory.held["server's state"] and whole and mesh.size > 1:
    yield 'server_state', 'sharded'


def _with(exp, field, value):
  return exp._replace(config=dataclasses.replace(exp.config, **{field: value}))


def _shortfall(memory, have) -> int:
  """Bytes that are missing, or, if negative, those to spare on a device."""
  needs = zip((memory.device_peak, memory.host_peak), have, strict=True)
  gaps = [need - limit for need, limit in needs if limit is not None]
  # The host's free memory changes: it must not decide the size of chunks.
  return max(gaps) if max(gaps) > 0 else gaps[0]


def _largest(most: int, least: int, above: int, shortfall) -> int:
  """Finds a large number below `most` without a shortfall; 0 if none has."""
  # Interpolates between `least` and `most`, of shortfall `above`; then halves.
  if most <= least or (low := shortfall(least)) > 0:
    return 0
  slope = (above - low) / (most - least)
  n = min(most - 1, least + int(-low / max(slope, 1e-9)))
  for _ in range(_HALVINGS):
    if n <= least or shortfall(n) <= 0:
      return n
    n = max(least, n // 2)
  return least
