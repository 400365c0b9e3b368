"""Check the memory of a run before it starts."""

from fl_sketch.runs import memory as memory_lib, program as program_lib
from fl_sketch.runs.build import Experiment
from fl_sketch.utils import progress
import jax

_CUT = 4  # to a share of the client slots; each compilation can take minutes


def check(
  exp: Experiment,
  mesh: jax.sharding.Mesh,
  run: program_lib.Program,
  have: memory_lib.Available | None = None,
) -> program_lib.Program:
  """Return the program of a run that fits the memory, `run` if it does.

  With ``clients_per_step=0`` an accelerator trains all its clients at once.
  Where they do not fit, it trains chunks of a quarter of them, and so on. A
  private run does not: the rounding of released rounds must not depend on the
  machine. Raises TooLargeError. `have`: default as of the machine.
  """
  have = memory_lib.available(mesh.local_devices[0]) if have is None else have
  memory = program_lib.memory_of(exp, mesh, run)
  may_cut = exp.clients_per_step is None and exp.config.clients_per_step == 0
  may_cut &= exp.guarantee is None
  slots = len(program_lib.drawn(exp, mesh).ids) // mesh.size
  while memory_lib.shortfalls(memory, have):
    if not may_cut or slots == 1:
      raise memory_lib.too_large(memory, have)
    slots = max(1, slots // _CUT)
    progress.note(f'The run does not fit: trying clients_per_step={slots}.')
    exp = exp._replace(clients_per_step=slots)
    run = program_lib.program(exp, mesh)
    memory = program_lib.memory_of(exp, mesh, run)
  return run
