"""Benchmark of one accelerator within a budget of seconds.

Codecs and tables beside a copy, training of a decoder of 10.8 million
parameters, and rounds beside hand-written loops. Data are drawn, not read. A
task starts while the budget lasts; what it measured is written when it ends.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
import os
import pathlib
import statistics
import time
from typing import Any, NamedTuple

from fl_sketch import codecs, models, runs, sketches
from fl_sketch.runs import config, devices
from fl_sketch.utils import files
import jax
import numpy as np
import tqdm

from . import contestants, round as rounds, sketch, workloads

_SLOW = 5.0  # seconds of encode and decode that are expected, and too many
_TOKENS = 32  # of the drawn text, which has 0.94 nats a token
_CHANCES = 0.7, 0.1, 0.1, 0.1  # of the tokens that may follow two others
# The hand-written loops and ours multiply in float32, not in tf32.
_EXACT = {'JAX_DEFAULT_MATMUL_PRECISION': 'highest'}
# Workload -> variants, of `workloads`.
_OURS = {'lenet': ['fedavg', 'one_bit'], 'logreg': ['fedavg', 'gram']}


PARTS = 'codecs', 'decoder', 'rounds'


class Task(NamedTuple):
  """A part of the benchmark that starts if the budget allows it."""

  part: str  # one of PARTS
  name: str
  measure: Callable[[], Any]  # returns what JSON can hold


class Result(NamedTuple):
  """What a task measured; None if the budget was spent before it."""

  part: str
  name: str
  numbers: Any


class Size(NamedTuple):
  """The decoder, its text, and how long it is trained."""

  model: str
  windows: int  # of the text, a multiple of the workers
  length: int  # tokens of a window
  batch_size: int  # windows of a worker in a step
  steps: int
  local_steps: int  # in a round of MuLoCo
  workers: int = 4
  options: Mapping[str, int] = {}


FULL = Size('gpt_mini', 4096, 256, batch_size=16, steps=400, local_steps=20)
QUICK = Size('gpt_nano', 64, 32, batch_size=2, steps=48, local_steps=8)


class _Coded(NamedTuple):
  sketch: Callable[..., Any]  # as of an operator: (key, x) -> payload
  desketch: Callable[..., Any]  # (key, payload, like) -> x


def _one_bit_tables(d: int) -> _Coded:
  """One-bit tables of d / 100 bytes of a float32 update."""
  op, codec = sketches.block_srht(d * 8 // 25), codecs.eden(rotate=False)
  like = op.zero_table(jax.ShapeDtypeStruct((d,), 'float32'))
  table = lambda key, payload: codec.decode(key, payload, like)
  return _Coded(
    lambda key, x: codec.encode(key, op.sketch(key, x)),
    lambda key, payload, x: op.desketch(key, table(key, payload), x),
  )


def _entry(coded: Callable[[int], _Coded]) -> contestants.Contestant:
  make = lambda x, b: contestants.compiled(coded(x.size), x)
  return contestants.Contestant('codec', make, kind='operator')


def _codec(codec: codecs.Codec) -> contestants.Contestant:
  return _entry(lambda d: _Coded(codec.encode, codec.decode))


# Tables have d / 100 floats, except those of one bit an entry.
ENTRIES = {
  'copy': contestants.BOUNDS,
  'bfloat16': _codec(codecs.bfloat16()),
  'sign': _codec(codecs.sign()),
  'EDEN, one bit': _codec(codecs.eden()),
  'EDEN, two bits': _codec(codecs.eden(2)),
  'one-bit tables': _entry(_one_bit_tables),
  'block_srht': contestants.OPERATORS['block_srht'],
  'count_sketch': contestants.OPERATORS['count_sketch'],
}


def encode(d: int, repeats: int, slow: set[str]) -> dict[str, Any]:
  """Measure seconds of encode and decode, and of a copy, of d numbers.

  `slow` has the entries to leave out, and gets those that would be too slow on
  ten times as many numbers.
  """
  entries = {k: x for k, x in ENTRIES.items() if k not in slow}
  left_out = sorted(slow)
  with tqdm.tqdm(total=len(entries) * (repeats + 1), leave=False) as bar:
    point = sketch.Point(d, d // 100, 1)
    rows = sketch.measure_point(point, entries, repeats, bar).rows
  took = lambda row: sum(map(statistics.median, (row.sketch, row.desketch)))
  slow |= {row.name for row in rows if 10 * took(row) > _SLOW}
  seconds = {r.name: {'encode': r.sketch, 'decode': r.desketch} for r in rows}
  return {'d': d, 'seconds': seconds, 'left_out': left_out}


_MULOCO = {
  'local_optimizer': {'kind': 'muon', 'keep_state': True}, 'client_lr': 0.01,
  'server_optimizer': 'nesterov', 'momentum': 0.6, 'server_lr': 0.7,
}  # fmt: skip
_TWO_BITS = {'kind': 'eden', 'bits': 2}
# Of the parameters' number d the fields that a method sets, at rates near those
# that were tuned on a smaller decoder.
METHODS: dict[str, Callable[[int], dict[str, Any]]] = {
  'AdamW, dense': lambda d: {
    'algorithm': 'fedavg', 'client_lr': 1e-3,
    'local_optimizer': {'kind': 'adamw', 'keep_state': True, 'b2': 0.99},
  },
  'preconditioned momentum, one-bit tables both ways': lambda d: {
    'algorithm': 'preconditioned_sketching', 'b1': 0.0, 'server_lr': 2e-3,
    'options': {'every': 20, 'client_momentum': 0.9},
    'sketch': {'kind': 'block_srht', 'size': d * 8 // 25},
    'codec': {'kind': 'eden', 'rotate': False},
    'downlink_codec': {'kind': 'eden'},
  },
  'MuLoCo, two bits both ways': lambda d: _MULOCO | {
    'algorithm': 'safl', 'sketch': {'kind': 'identity'}, 'codec': _TWO_BITS,
    'downlink_codec': _TWO_BITS,
  },
  'MuLoCo, dense': lambda d: _MULOCO | {'algorithm': 'fedavg'},
}  # fmt: skip


def text(size: Size) -> np.ndarray:
  """Draw windows of a Markov chain of second order: int32[., length + 1]."""
  rng = np.random.default_rng(0)
  after = rng.integers(_TOKENS, size=(_TOKENS, _TOKENS, len(_CHANCES)))
  out = rng.integers(_TOKENS, size=(size.windows, size.length + 1))
  for i in range(2, size.length + 1):
    which = rng.choice(len(_CHANCES), size.windows, p=_CHANCES)
    out[:, i] = after[out[:, i - 2], out[:, i - 1], which]
  return out.astype(np.int32)


def decoder(method: str, size: Size) -> runs.Experiment:
  """Build the training of a decoder by a method; AdamW has one worker."""
  module = models.make(size.model, _TOKENS, **size.options)
  windows = text(size)
  like = partial(module.init, jax.random.key(0), windows[:1, :-1])
  fields = METHODS[method](models.num_params(jax.eval_shape(like)))
  is_local, workers = method.startswith('MuLoCo'), size.workers
  batch, steps = size.batch_size, size.local_steps if is_local else 1
  if method.startswith('AdamW'):
    workers, batch = 1, workers * batch
  total = size.steps // steps
  falls = {'kind': 'cosine', 'final': 0.05, 'warmup': max(1, total // 20)}
  which = 'client_schedule' if 'client_lr' in fields else 'server_schedule'
  c = config.Config(**{
    'population': workers, 'cohort': workers, 'batch_size': batch,
    'local_steps': steps, 'client_lr': 1.0, which: falls, 'rounds': total,
    'eval_every': total, 'checkpoint_every': total, **fields,
  })  # fmt: skip
  x, y = windows[:, :-1], windows[:, 1:]
  return workloads.classify(c, module, x, y, loss='tokens')


def train(method: str, size: Size) -> dict[str, Any]:
  """Train by a method; return speed, loss of one seed, memory and bytes.

  Compiling and an eighth of the rounds are not timed. The peak is that of this
  process on one device, before the evaluation.
  """
  exp, rows = decoder(method, size), []

  def keep(row):
    stats = jax.local_devices()[0].memory_stats() or {}
    rows.append(row | {'peak': stats.get('peak_bytes_in_use')})

  runs.train(exp, on_row=keep, progress=False)
  c, first, last = exp.config, rows[len(rows) // 8], rows[-2]
  timed = (last['round'] - first['round']) * c.local_steps
  ends = [row['train_loss'] for row in rows[-max(1, len(rows) // 10) :]]
  each = c.population * c.rounds * c.local_steps
  return {
    'parameters': models.num_params(exp.params),
    'steps_per_second': timed / (last['seconds'] - first['seconds']),
    'train_loss': statistics.mean(ends), 'peak_bytes': last['peak'],
    'bytes_up': rows[-1]['total_uplink_bytes'] / each,
    'bytes_down': rows[-1]['total_downlink_bytes'] / each,
  }  # fmt: skip


def work(method: str, quick: bool):
  """Train in this process, whose peak of memory is the method's."""
  devices.cache_programs()  # the round is compiled twice
  result = train(method, QUICK if quick else FULL)
  files.write(pathlib.Path(os.environ['PEER_OUT'], 'decoder.json'), result)


def tasks(
  quick: bool, peers: pathlib.Path | None, repeats: int | None, program: str
) -> list[Task]:
  """List the tasks in their order; `program` has `work` as its command."""
  slow, dims = set(), [10**6] if quick else [10**6, 10**7, 10**8]
  todo = [
    Task('codecs', f'{d:,} numbers', partial(encode, d, repeats or 5, slow))
    for d in dims
  ]
  for method in list(METHODS)[: 3 if quick else None]:
    command = ['-m', program, 'worker', 'decoder', method]
    command += ['--quick'] * quick
    todo.append(Task('decoder', method, partial(rounds.run, command)))
  turns = repeats or (1 if quick else 2)
  for name in ['logreg'] if quick else _OURS:
    args = name, peers, turns, program, _OURS[name]
    compare = partial(rounds.compare, *args)
    todo.append(Task('rounds', name, partial(compare, **_EXACT)))
  return todo


def measure(
  todo: Sequence[Task], budget: float, clock=time.monotonic
) -> Iterator[Result]:
  """Measure one task after another, until the budget of seconds is spent."""
  begun = clock()
  for task in todo:
    spent = clock() - begun >= budget
    yield Result(task.part, task.name, None if spent else task.measure())
