"""Scaling benchmark: seconds a round against the size of a run.

One process plays all points of an axis in turn, again and again. The rounds are
those of `runs.player.Shards`: sampling and transfers included. Data are noise.
"""

from collections.abc import Callable
import contextlib
import itertools
import os
import tempfile
from typing import NamedTuple

from fl_sketch import models, runs
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.runs import config, player as player_lib, program as program_lib
import jax
import numpy as np
import tqdm

from . import timing, workloads

_FEATURES, _CLASSES, _SAMPLES = 784, 10, 16
_ROUNDS = 3  # timed in a turn at least, after one more
# A run that does not end while it is measured.
_ENDLESS = dict.fromkeys(('rounds', 'eval_every', 'checkpoint_every'), 10**6)
# Logistic regression, data memory-mapped: configs/million_clients.py.
_SIMULATED = {
  'dataset': 'simulated', 'model': 'linear', 'cohort': 1000,
  'local_steps': 5, 'batch_size': 10, 'algorithm': 'iterative_sketching',
  'sketch': {'kind': 'block_cyclic', 'size': 325},
}  # fmt: skip
_TURN = 0.3  # seconds of a turn, about, where rounds are short

Build = Callable[[], tuple[runs.Experiment, jax.sharding.Mesh]]


class Axis(NamedTuple):
  """One axis of the scaling benchmark."""

  label: str  # the quantity on the axis
  expected: float  # the slope of log time in log x
  why: str  # in a few words
  points: dict[int, Build]  # x -> the run of that size
  warm: int = 1  # rounds that are not timed, after which times no longer change
  # Whether a run has one core for each of its devices, and no other; else one
  # device of a CPU works on several.
  own_core: bool = False


class Result(NamedTuple):
  """An axis and its seconds a round, [turns][points]."""

  name: str
  axis: Axis
  seconds: list[list[float]]


def slope(result: Result) -> tuple[float, float]:
  """Slope of log seconds in log x: its mean over turns and standard error.

  The error over turns holds for two points as well, and a turn in which the
  machine is slow throughout does not change it.

  >>> axis = Axis('', 1.0, '', dict.fromkeys([1, 2]))
  >>> slope(Result('', axis, [[0.1, 0.2], [0.3, 0.6]]))
  (1.0, 0.0)
  """
  x = np.log(list(result.axis.points))
  x -= x.mean()
  slopes = np.log(result.seconds) @ x / (x @ x)
  error = slopes.std(ddof=1) / len(slopes) ** 0.5 if len(slopes) > 1 else np.nan
  return float(slopes.mean().round(12)), float(error)


def axes(quick: bool = False) -> dict[str, Axis]:
  """Return the axes by name; `quick`: fewer and smaller points."""
  powers = lambda low, high, quick_high, step=1: [
    2**i for i in range(low, (quick_high if quick else high) + 1, step)
  ]
  shards = [2**i for i in range(len(jax.devices()).bit_length())]
  return {
    'clients': Axis(
      'clients in the cohort', 1.0, 'one after another',
      {n: _noise(cohort=n) for n in powers(6, 11, 9)},
    ),
    'parameters': Axis(
      'parameters, about', 1.0, 'every pass is over d numbers',
      {d: _noise(parameters=d) for d in powers(20, 23, 21)},
    ),
    'sketch': Axis(
      'numbers of a table', 0.0, 'a block-cyclic sketch reads d numbers once',
      {b: _noise(size=b, parameters=2**20) for b in powers(10, 18, 14, 2)},
    ),
    'devices': Axis(
      'devices', -1.0, 'each has its core, and its share of the clients',
      {n: _noise(shards=n, parameters=2**20) for n in shards},
      own_core=True,
    ),
    'population': Axis(
      'clients in the population', 0.0, 'only a cohort of 1,000 is read',
      {10**i: _simulated(10**i) for i in range(3, 5 if quick else 7)},
      warm=60,  # until most pages of the file are mapped
    ),
  }  # fmt: skip


def measure(name: str, axis: Axis, turns: int) -> Result:
  """Measure the times of one axis, whose points are played in `turns`."""
  bar = tqdm.tqdm(total=len(axis.points) * (turns + 1), desc=name)
  with contextlib.ExitStack() as stack:
    stack.enter_context(bar)
    players = []
    for x, build in axis.points.items():
      bar.set_postfix_str(f'compiling {axis.label} {x:,}')
      exp, mesh = build()
      folder = stack.enter_context(tempfile.TemporaryDirectory())
      players.append(_Player(exp, mesh, folder, axis.warm))
      stack.callback(players[-1].shards.close)
      bar.update()
    bar.set_postfix_str('')
    seconds: list[list[float]] = []
    for _ in range(turns):
      seconds.append([])
      for player in players:
        with _cores(player.devices if axis.own_core else None):
          seconds[-1].append(player.turn())
        bar.update()
  return Result(name, axis, seconds)


class _Player:
  """Plays rounds of one run; the constructor compiles and warms up."""

  def __init__(self, exp, mesh, folder, warm):
    program = program_lib.program(exp, mesh)
    self.shards = player_lib.Shards(exp, mesh, folder, program)
    self._numbers, self.devices = itertools.count(), mesh.size
    self._seconds(warm)
    self._rounds = max(_ROUNDS, int(_TURN / self._seconds(1)))

  def turn(self) -> float:
    """Mean seconds a round, over several consecutive ones."""
    self._seconds(1)  # its cohort was prefetched during the other turns
    return self._seconds(self._rounds)

  def _seconds(self, count):
    def play():
      self.shards.play(next(self._numbers))
      return self.shards.state

    return timing.mean_seconds(play, count)[0]


@contextlib.contextmanager
def _cores(count: int | None):
  """Pin all threads of this process to `count` cores; None leaves all."""
  threads = os.listdir('/proc/self/task') if count is not None else []
  cores = os.sched_getaffinity(0) if threads else set()
  _pin(threads, sorted(cores)[:count])
  yield
  _pin(threads, cores)


def _pin(threads, cores):
  for thread in threads:
    with contextlib.suppress(ProcessLookupError):  # one that has ended
      os.sched_setaffinity(int(thread), cores)


def _noise(cohort=64, parameters=2**17, size=2**12, shards=None) -> Build:
  """SAFL, an MLP with one hidden layer, one step on 16 samples a client."""

  def build():
    c = config.Config(
      population=cohort, cohort=cohort, local_steps=1, batch_size=_SAMPLES,
      algorithm='safl', sketch={'kind': 'block_cyclic', 'size': size},
      server_optimizer='adam', server_lr=1e-3, **_ENDLESS,
    )  # fmt: skip
    rng, count = np.random.default_rng(0), cohort * _SAMPLES
    x = rng.integers(256, size=(count, _FEATURES), dtype=np.uint8)
    y = rng.integers(_CLASSES, size=count, dtype=np.int32)
    width = round(parameters / (_FEATURES + _CLASSES + 1))
    module = models.make('mlp', _CLASSES, widths=(width,))
    return workloads.classify(c, module, x, y), mesh_lib.cohort_mesh(shards)

  return build


def _simulated(population: int) -> Build:
  fields = _SIMULATED | _ENDLESS | {'population': population}
  return lambda: (runs.build(fields), mesh_lib.cohort_mesh())
