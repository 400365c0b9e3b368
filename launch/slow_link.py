"""Trains a character decoder on workers that send compressed gradients.

  fl-sketch slow-link --data_dir=DIR [--workdir=DIR] [--compressor=TEXT]

Trains on DIR/tinyshakespeare/input.txt, or --text=FILE, with nanoGPT's settings
for a CPU. A batch of 12 windows is split over --workers=4: devices of this
process, or of several, which start the same command with --num_processes=N and
--process_id=0 ... N-1, or are started by Slurm, Open MPI or Kubernetes. Started
again it resumes from its last checkpoint. loss.png shows the validation loss,
also of runs in --beside=DIR,DIR, against steps, bytes out of a worker, and
seconds over a link of --mbit=10 Mbit/s (computed).
"""

import contextlib
import dataclasses
import functools
import pathlib
import sys
import time
from typing import Any

from absl import app, flags
from fl_sketch import algorithms, distributed, models, training
from fl_sketch.data import text, tokenization
from fl_sketch.distributed import processes
from fl_sketch.models import kinds, losses
from fl_sketch.reporting import figures, metrics
from fl_sketch.rounds import mesh as mesh_lib, processes as peers
from fl_sketch.training import workdir
from fl_sketch.utils import checks, digests, extras, files
import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
import tqdm

from . import begin, define, define_folders, errors, parse_flags

AXIS, WARM_UP, SHOWN = 'data', 100, 240  # windows of an estimate of the loss
TWO_BITS = "eden(bits=2, scale='least_squares', error_feedback=True)"
_WORKDIR, _DATA_DIR = define_folders('runs/slow_link')
_FIELDS = {  # of config.json
  'compressor': (TWO_BITS, 'Compressor of the gradients; dense: none.'),
  'both_ways': (True, 'Compress the mean as well.'),
  'optimizer': ('muon', 'Optimizer of each worker: muon or adamw.'),
  'every': (8, 'Local steps between two exchanges.'),
  'outer_rate': (1.0, 'Learning rate of the outer steps, of --every above 1.'),
  'outer_momentum': (0.0, 'Nesterov momentum of the outer steps.'),
  'algorithm': (None, 'NAME(OPTION=VALUE), in place of all of these.'),
  'learning_rate': (1e-2, 'Peak learning rate; it decays to 10 % of it.'),
  'seed': (0, 'Seed of parameters, batches and compressor.'),
  'workers': (4, 'Devices that share a batch.'),
  'steps': (2000, 'Number of training steps.'),
  'windows': (3, 'Windows of text in the batch of a worker.'),
  'context': (64, 'Characters in a window.'),
  'width': (128, 'Width of the model.'),
  'depth': (4, 'Number of layers.'),
  'heads': (4, 'Heads of attention.'),
  'eval_every': (100, 'Steps between two rows of metrics.'),
  'text': ('tinyshakespeare/input.txt', 'File of the text.'),
}
_OTHERS = {
  'checkpoint_every': (500, 'Steps between two checkpoints.'),
  'mbit': (10.0, 'Mbit/s of the link in loss.png.'),
  'beside': ([], 'Workdirs of finished runs in loss.png.'),
}
_PROCESS = {
  'coordinator': (str, 'HOST:PORT of process 0.'),
  'num_processes': (int, 'Process count.'),
  'process_id': (int, 'Number of this process.', 0),
}
define(**_FIELDS, **_OTHERS, **_PROCESS)
_Config: Any = dataclasses.make_dataclass(
  'Config', [(name, Any, value) for name, (value, _) in _FIELDS.items()]
)


def main(argv):
  """Trains or resumes; prints the bytes of a step, and the loss at the end."""
  begin(argv)
  given = flags.FLAGS.flag_values_dict()
  c = _Config(**{name: given[name] for name in _FIELDS})
  mean = list(_FIELDS)[: list(_FIELDS).index('algorithm')]
  unused = [name for name in mean if flags.FLAGS[name].present]
  if c.algorithm and unused:
    sys.exit(f'{unused} have no effect with --algorithm; remove them.')
  with errors.refused(ValueError, FileNotFoundError):
    beside = {f: metrics.read_metrics(f) for f in given['beside']}
    processes.start(*(given[name] for name in _PROCESS), workers=c.workers)
    run = _Run(c, pathlib.Path(_WORKDIR.value))
  with contextlib.closing(run.records), errors.refused():
    row = run.train(given['checkpoint_every'])
  if jax.process_index() == 0:
    with extras.optional_figures():
      _draw(run.folder, beside, given['mbit'])
    loss = row['validation_loss_of_all']
    print(f'Done: validation loss {loss:.4f}. Its files are in {run.folder}')


def _task(c):
  """Returns params, and functions loss, draw(step, worker) and evaluate."""
  content = text.find(c.text, _DATA_DIR.value).read_text('utf-8')
  letters = np.frombuffer(content.encode('utf-32-le'), np.uint32)
  letters, tokens = np.unique(letters, return_inverse=True)
  cut = int(0.9 * len(tokens))  # as with nanoGPT; the rest is for validation
  c.text = digests.of_array(tokens)
  if len(tokens) - cut <= c.context:
    raise ValueError(f'--text is too short for --context={c.context}.')
  held_out = tokenization.windows(tokens[cut:], c.context)
  sizes = {'width': c.width, 'depth': c.depth, 'heads': c.heads}
  model = models.as_model(models.make('gpt_nano', len(letters), **sizes))
  loss, sums = losses.make(model, kinds.tokens)
  sums = jax.jit(sums)

  def draw(step, worker):
    rng = np.random.default_rng((c.seed, step, worker))
    first = rng.integers(cut - c.context, size=(c.windows, 1))
    drawn = tokens[first + np.arange(c.context + 1)].astype(np.int32)
    return {'x': drawn[:, :-1], 'y': drawn[:, 1:]}

  def evaluate(params, whole=False):
    """In each process by itself, on one of its devices: nothing travels."""
    params = jax.tree.map(lambda x: x.addressable_data(0), params)
    count = len(held_out['x'])
    stride = 1 if whole else max(1, count // SHOWN)
    far = SHOWN * stride
    parts = [slice(i, i + far, stride) for i in range(0, count, far)]
    rows = lambda part: {k: x[part] for k, x in held_out.items()}
    found = [sums(params, rows(part)) for part in parts]
    total, terms = (sum(float(x[k]) for x in found) for k in ('loss', 'count'))
    return total / terms

  sample = np.zeros((1, c.context), np.int32)
  return model.init(jax.random.key(c.seed), sample), loss, draw, evaluate


def _transformation(c):
  """Returns it, and steps -> how many of them send the most bytes."""
  warm_up, end = min(WARM_UP, c.steps // 2), c.learning_rate / 10
  schedule = optax.warmup_cosine_decay_schedule(
    0, c.learning_rate, warm_up, c.steps, end
  )
  rate = lambda count: schedule(count + 1)
  if c.algorithm is not None:
    ((name, options),) = distributed.parse(c.algorithm)
    tx = distributed.algorithm(name, AXIS, 1.0, seed=c.seed, **options)
    known = algorithms.REGISTRY.arguments(name).items()
    options = {k: x.default for k, x in known} | {**options}
    every, most = options.get('every', 1), options.get('warmup', c.steps)
    tx = optax.chain(tx, optax.scale_by_schedule(rate))
    return tx, lambda steps: min(-(-steps // every), most)
  how = {'both_ways': c.both_ways, 'seed': c.seed}
  mean = distributed.mean_over(AXIS, c.compressor, **how)
  own = _optimizer(c.optimizer, rate)
  step = optax.chain(optax.clip_by_global_norm(1.0), own)
  if c.every == 1:
    return optax.chain(mean, step), lambda steps: steps
  outer = optax.sgd(c.outer_rate, c.outer_momentum or None, nesterov=True)
  tx = distributed.outer(step, outer, mean, every=c.every)
  return tx, lambda steps: steps // c.every


def _optimizer(name, rate):
  """AdamW, or Muon of kernels with AdamW of other arrays."""
  checks.choice('optimizer', name, ('adamw', 'muon'))
  if name == 'adamw':
    decayed = lambda params: jax.tree.map(lambda x: x.ndim > 1, params)
    return optax.adamw(rate, b2=0.99, weight_decay=0.1, mask=decayed)
  kernel = optax.contrib.MuonDimensionNumbers()
  one = lambda path, x: kernel if path[-1].key == 'kernel' else None
  return optax.contrib.muon(
    rate, weight_decay=0.1, consistent_rms=0.2, adam_b2=0.99,
    muon_weight_dimension_numbers=lambda x: jax.tree.map_with_path(one, x),
  )  # fmt: skip


class _Run:
  """A run: its state, on the mesh, and its files."""

  def __init__(self, c, folder: pathlib.Path):
    params, loss, self.draw, self.evaluate = _task(c)
    tx, often = _transformation(c)
    self.c, self.folder, n = c, folder, c.workers
    self.mesh = jax.make_mesh((n,), (AXIS,), devices=jax.devices()[:n])
    params = mesh_lib.place(self.mesh, params)
    self.state = params, distributed.init(tx, params, self.mesh)
    self.step = distributed.train_step(loss, tx, self.mesh)
    sent = distributed.bytes_per_step(tx, params, self.mesh)
    more = sent.out - sent.least
    self.bytes = lambda done: round(done * sent.least + more * often(done))
    dense = 2 * (n - 1) / n * 4 * models.num_params(params)
    if jax.process_index() == 0:
      mean = f'{self.bytes(c.steps) / c.steps:,.0f}; dense: {dense:,.0f}'
      print(f'Bytes out of a worker per step: {mean}.')
    number = lambda row: row['step']
    self.records = workdir.Records(folder, c, 'metrics.jsonl', number)
    options = ocp.CheckpointManagerOptions(
      max_to_keep=2, enable_async_checkpointing=False,
      cleanup_tmp_directories=True,
    )  # fmt: skip
    where = (folder / 'checkpoints').absolute()
    self.store = ocp.CheckpointManager(where, options=options)

  def train(self, checkpoint_every: int) -> dict[str, Any]:
    """Takes the remaining steps; returns the last row."""
    steps, start, row = self.c.steps, *self._restore()
    seconds, hidden = row.get('seconds', 0.0), jax.process_index() > 0
    bar = tqdm.trange(start, steps, initial=start, total=steps, disable=hidden)
    for done in bar:
      began = time.monotonic()
      batch = processes.batches(self.mesh, functools.partial(self.draw, done))
      *self.state, loss = self.step(*self.state, batch)
      loss, done = float(loss), done + 1
      if done > start + 1:  # the first one compiles
        seconds += time.monotonic() - began
      shows, saves = (
        done % every == 0 or done == steps
        for every in (self.c.eval_every, checkpoint_every)
      )
      self._check(done, loss, saves)
      if shows or saves:  # a run that resumes goes on from a row
        row = self._row(done, loss, seconds)
        bar.set_postfix(loss=loss, validation=row['validation_loss'])
      if saves:
        self._save(done)
    peers.wait_for_all('trained')
    return row

  def _row(self, done, loss, seconds):
    row = {'step': done, 'train_loss': loss, 'bytes': self.bytes(done)}
    row['validation_loss'] = self.evaluate(self.state[0])
    if done == self.c.steps:
      row['validation_loss_of_all'] = self.evaluate(self.state[0], whole=True)
    row['seconds'] = round(seconds, 3)
    if jax.process_index() == 0:
      self.records.add(done, row)
    return row

  def _check(self, done, loss, whole):
    """Raises DivergedError in all processes if a value is not finite."""
    leaves = jax.tree.leaves(self.state[0]) if whole else []
    local = [x.addressable_data(0) for x in leaves]
    if not all(np.isfinite(x).all() for x in [loss, *local]):
      peers.wait_for_all('diverged')
      raise training.DivergedError(
        f'Step {done}: the {loss=} or parameters are not finite; the last '
        f'checkpoint is of step {self.store.latest_step()}. Set a smaller '
        f'learning_rate={self.c.learning_rate:g}.'
      )

  def _restore(self) -> tuple[int, dict[str, Any]]:
    """Restores the last checkpoint, if any; returns its step and row."""
    done, rows = self.store.latest_step() or 0, self.records.rows
    self.records.rows = rows = {i: x for i, x in rows.items() if i <= done}
    if done:
      like = jax.tree.map(ocp.utils.to_shape_dtype_struct, self._saved())
      found = self.store.restore(done, args=ocp.args.StandardRestore(like))
      leaves = [found[str(i)] for i in range(len(found))]
      self.state = jax.tree.structure(self.state).unflatten(leaves)
    return done, rows[max(rows)] if rows else {}

  def _saved(self):
    return {str(i): x for i, x in enumerate(jax.tree.leaves(self.state))}

  def _save(self, done):
    folder, arrays = self.folder, ocp.args.StandardSave(self._saved())
    message = lambda why: f'{folder} cannot be written: {why}. Make room.'
    with files.save_errors(message, folder):
      if jax.process_index() == 0:  # there may be no row yet
        files.replace(folder / 'config.json', files.as_json(self.c))
      self.store.save(done, args=arrays, force=True)


def _draw(folder, beside, mbit):
  """Draws the validation losses of a run, and of those beside it."""
  link = lambda row: row['seconds'] + row['bytes'] * 8e-6 / mbit
  axes = {
    'steps': lambda row: row['step'],
    'MB out of a worker': lambda row: row['bytes'] / 1e6,
    f'seconds at {mbit:g} Mbit/s (computed)': link,
  }
  runs = {folder: metrics.read_metrics(folder)} | beside
  y, panels = 'validation_loss', []
  for label, x in axes.items():
    lines = [
      figures.Line(
        pathlib.Path(of).name, [*map(x, rows)], metrics.values(rows, y)
      )
      for of, rows in runs.items()
    ]
    scale = 'linear' if label == 'steps' else 'log'
    panels.append(figures.Panel(label, 'validation loss', lines, x_scale=scale))
  figures.draw(panels, 3).savefig(folder / 'loss.png', dpi=150)


if __name__ == '__main__':
  app.run(main, flags_parser=parse_flags)
