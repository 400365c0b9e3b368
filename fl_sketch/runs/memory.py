"""Check that a run fits the memory, by XLA's analysis of its programs."""

from typing import Any, NamedTuple

from fl_sketch.rounds import comms
from fl_sketch.runs import devices, program as program_lib
from fl_sketch.runs.build import Experiment
from fl_sketch.utils import UserError, progress
from fl_sketch.utils.types import Tree
import jax
from jax.sharding import Mesh

# Measured bytes of files, small programs and threads, which XLA does not count.
OVERHEAD = 96 * 2**20
_CUT = 4  # to a share of the client slots; each compilation can take minutes


class TooLargeError(UserError, ValueError):
  """A run does not fit the memory; the message suggests config changes."""


class Memory(NamedTuple):
  """Bytes of a run."""

  devices: int  # their number, of this process
  on_host: bool  # whether their memory is the host's, as a CPU's is
  held: int  # on each device between rounds: the round's arguments, test data
  # Besides, in a round or on the test set; clients' own evaluations may take
  # more.
  work: int
  state: int  # on the host before the first round and with a checkpoint
  process: int  # resident, of this process without any of these

  @property
  def device_peak(self) -> int:
    """Bytes on each device at its peak."""
    return self.held + self.work

  @property
  def host_peak(self) -> int:
    """Resident bytes of the process at its peak, without mapped files."""
    if not self.on_host:
      return self.process + self.state
    work = max(self.devices * self.work, self.state)
    return self.process + self.devices * self.held + work


class Available(NamedTuple):
  """Bytes that a run may use, of one device and of the host; None: unknown."""

  device: int | None
  host: int | None


def memory_of(mesh: Mesh, run: program_lib.Program) -> Memory:
  """Estimate the memory of a run; compiles its round and its evaluation."""
  hyper, state, cohort, *_ = run.args
  process = devices.resident() + OVERHEAD  # before anything is compiled
  round_ = run.fn.lower(*run.args)
  evaluation = run.evaluate.lower((state.params, hyper), run.test)
  used = [x.compile().memory_analysis() for x in (round_, evaluation)]
  new = (x.output_size_in_bytes - x.alias_size_in_bytes for x in used)
  work = [n + x.temp_size_in_bytes for n, x in zip(new, used, strict=True)]
  # The next cohort is fetched ahead.
  held = used[0].argument_size_in_bytes + share((cohort, run.test))
  return Memory(
    len(mesh.local_devices),
    on_host=mesh.local_devices[0].platform == 'cpu',
    held=held, work=max(work), state=comms.nbytes(state), process=process,
  )  # fmt: skip


def available(device: Any) -> Available:
  """Read the memory limits of this process, including what it holds already."""
  stats = device.memory_stats() or {}
  return Available(stats.get('bytes_limit'), devices.host_memory())


def shortfalls(memory: Memory, have: Available) -> list[str]:
  """Describe each memory that a run exceeds; unknown limits are skipped."""
  on_device = 'each device', memory.device_peak, have.device
  on_host = 'the host', memory.host_peak, have.host
  return [
    f'{units(need)} of {where}, which has {units(limit)}'
    for where, need, limit in (on_device, on_host)
    if limit is not None and need > limit
  ]


def fitted(
  exp: Experiment, mesh: Mesh, run: program_lib.Program
) -> program_lib.Program:
  """Return the program of a run that fits the memory, `run` if it does.

  With ``clients_per_step=0`` an accelerator trains all its clients at once.
  Where they do not fit, it trains chunks of a quarter of them, and so on. A
  private run does not: the rounding of released rounds must not depend on the
  machine. Raises TooLargeError.
  """
  have = available(mesh.local_devices[0])
  may_cut = exp.clients_per_step is None and exp.config.clients_per_step == 0
  may_cut &= exp.guarantee is None
  slots = run.args[2].ids.shape[-1] // mesh.size  # of a cohort
  while missing := shortfalls(memory := memory_of(mesh, run), have):
    if not may_cut or slots == 1:
      raise TooLargeError(
        f'The run takes {" and ".join(missing)}: each device holds '
        f'{units(memory.held)} between rounds, and a round takes '
        f"{units(memory.work)} besides. Set feed='host', client_state='host', "
        "server_state='sharded', less clients_per_step, cohort or batch_size."
      )
    slots = max(1, slots // _CUT)
    progress.note(f'The run does not fit: trying clients_per_step={slots}.')
    exp = exp._replace(clients_per_step=slots)
    run = program_lib.program(exp, mesh)
  return run


def units(n: float) -> str:
  """Format a number of bytes.

  >>> units(512), units(3 * 2**20), units(5.5 * 2**30)
  ('512 B', '3.0 MiB', '5.5 GiB')
  """
  for unit in ('B', 'KiB', 'MiB', 'GiB'):
    if n < 1024 or unit == 'GiB':
      break
    n /= 1024
  return f'{n:,.0f} {unit}' if unit == 'B' else f'{n:,.1f} {unit}'


def share(tree: Tree) -> int:
  """Bytes that a sharded tree takes on one device."""
  shape = lambda x: x.sharding.shard_shape(x.shape)
  part = lambda x: jax.ShapeDtypeStruct(shape(x), x.dtype)
  return comms.nbytes(jax.tree.map(part, tree))
