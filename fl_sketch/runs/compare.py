"""Train your own model in one call; compare methods with their dense twin."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import math
import os
import pathlib
import tempfile
from typing import Any, NamedTuple

from fl_sketch import algorithms, models
from fl_sketch.runs import custom, figures, loop, metrics, plots
from fl_sketch.runs.build import build
from fl_sketch.runs.config import Config, switched
from fl_sketch.runs.metrics import BYTES, Row, read_metrics
from fl_sketch.runs.problem import Problem
from fl_sketch.utils import extras, progress as progress_lib
import jax

DENSE = 'dense'  # the label of the dense twin
_CLIENTS, _ROUNDS, _EVALUATIONS = 20, 100, 20  # of a run by default
_COMPRESSION, _SMALLEST = 16, 64  # of the default sketch


def train(
  model: Any,
  clients: Sequence[Any] | Mapping[str, Any],
  test: Any,
  *,
  loss: Any = 'cross_entropy',
  label: str | None = None,
  folder: str | os.PathLike | None = None,
  progress: bool = True,
  on_row: Callable[[Row], Any] | None = None,
  **fields: Any,
) -> loop.Result:
  """Train a model of your own on clients of your own.

  By default up to 20 clients train in each of 100 rounds by SAFL, and send
  sketches of a sixteenth of the model, or 64 numbers, to a server with Adam.

  >>> import flax.linen as nn, numpy as np
  >>> x = np.random.default_rng(0).normal(size=(6, 40, 8))
  >>> clients = [{'x': x, 'y': x.argmax(-1)} for x in x]
  >>> result = train(nn.Dense(8), clients[:5], clients[5], progress=False)
  >>> bool(result.metrics['test_accuracy'][-1] > 0.7), result.finished
  (True, True)
  >>> result.params['kernel'].shape
  (8, 8)

  Args:
    model: of flax, equinox or haiku, or parameters and a function.
    clients: what each client holds, such as {'x': ..., 'y': ...}.
    test: the same arrays, of examples that no client holds.
    loss: of outputs and labels; see `custom.problem`, also for the others.
    label: name of the labels, if it is not 'y'.
    folder: gets metrics, pictures and checkpoints, from which the same call
      resumes; None keeps no file.
    progress: whether to show a bar on stderr.
    on_row: called with each logged row of metrics; the run stops if it returns
      True.
    fields: of `runs.config.Config`, such as rounds=200, algorithm='fedavg',
      sketch='srht(size=99)' or epsilon=8.0.

  Raises ConfigError, which names the field, ValueError if data, model and loss
  do not fit, and what `runs.train` raises.
  """
  problem = custom.problem(model, clients, test, loss=loss, label=label)
  exp = build(usual(problem, fields), problem=problem)
  if exp.guarantee is not None:
    progress_lib.note(exp.guarantee.statement.sentence())
  return loop.train(exp, folder, progress=progress, on_row=on_row)


class Comparison(NamedTuple):
  """Methods on one problem."""

  results: dict[str, loop.Result]  # by the label of the method
  table: str  # Markdown: at equal rounds, and at equal bytes
  figure: Any  # of matplotlib; None without it

  def __repr__(self) -> str:
    return self.table


def compare(
  model: Any,
  clients: Sequence[Any] | Mapping[str, Any],
  test: Any,
  methods: Sequence[str] | Mapping[str, Mapping[str, Any]] = ('safl',),
  *,
  loss: Any = 'cross_entropy',
  label: str | None = None,
  folder: str | os.PathLike | None = None,
  progress: bool = True,
  **fields: Any,
) -> Comparison:
  """Train methods and the dense twin of the first; plot them against bytes.

  The twin has the same settings without compression, see `dense_twin`. Seeds
  and clients of a round are those of every method, rates are not tuned.

  `methods` are names of algorithms, or fields of each method by its label, such
  as {'one bit': {'codec': 'eden(rotate=False)'}}; `fields` are of every method.
  `folder` gets a folder for each run, from which the same call resumes, and
  comparison.png. The other arguments are those of `train`.

  Raises what `train` raises; ConfigError for private fields, since every method
  would spend privacy of the same clients.
  """
  problem = custom.problem(model, clients, test, loss=loss, label=label)
  if not isinstance(methods, Mapping):
    methods = {name: {'algorithm': name} for name in methods}
  if DENSE in methods or not methods:
    raise ValueError(
      f'methods={[*methods]} must name one, and none {DENSE!r}, the twin.'
    )
  exps = {
    name: build(usual(problem, {**fields, **own}), problem=problem)
    for name, own in methods.items()
  }
  # Of every method, so that none of them may be private.
  twin, *_ = [dense_twin(exp.config) for exp in exps.values()]
  exps[DENSE] = build(twin, problem=problem)
  with tempfile.TemporaryDirectory() as unkept:
    where = pathlib.Path(unkept if folder is None else folder)
    folders = {name: where / name for name in exps}
    results = {
      name: loop.train(exp, folders[name], progress=progress)
      for name, exp in exps.items()
    }
    table, figure = pictured(folders, where / 'comparison.png')
  return Comparison(results, table, figure)


def train_twin(
  config: Config, folder: str | os.PathLike, data_dir: str | None = None
) -> str:
  """Train the dense twin of the run in a folder, in `folder`/dense.

  Draw both into `folder`/comparison.png; return their table, '' in processes
  but the first. Raises what `dense_twin` and `runs.train` raise.
  """
  folder = pathlib.Path(folder)
  twin = build(dense_twin(config), data_dir)
  loop.train(twin, folder / DENSE)
  if jax.process_index() > 0:
    return ''
  folders = {config.algorithm: folder, DENSE: folder / DENSE}
  return pictured(folders, folder / 'comparison.png')[0]


def usual(problem: Problem, fields: Mapping[str, Any]) -> dict[str, Any]:
  """Add the fields that a call leaves open."""
  assert problem.partition is not None  # of the clients
  population = problem.partition.population
  algorithm = fields.get('algorithm', 'safl')
  rounds = fields.get('rounds', _ROUNDS)
  d = models.num_params(problem.params)
  size = min(d, max(_SMALLEST, d // _COMPRESSION))
  added = {
    'population': population, 'cohort': min(population, _CLIENTS),
    'rounds': rounds, 'eval_every': max(1, rounds // _EVALUATIONS),
    'algorithm': algorithm,
  }  # fmt: skip
  if algorithm == 'safl':
    added |= {'server_optimizer': 'adam', 'server_lr': 0.01}
  if 'sketch' in algorithms.options(algorithm):
    added['sketch'] = {'kind': 'block_srht', 'size': size}
  return added | dict(fields)


def dense_twin(config: Config) -> Config:
  """Return the config without compression: FedAvg with the same settings.

  Clients that send gradients do so, by FedSGD. The optimizer and the rates of
  the server stay, those of an algorithm with second moments of its own as Adam.

  >>> sketched = {'algorithm': 'safl', 'sketch': 'srht(size=9)'}
  >>> twin = dense_twin(Config(**sketched, server_optimizer='adam'))
  >>> twin.algorithm, twin.sketch, twin.server_optimizer
  ('fedavg', None, 'adam')

  Raises ConfigError for a private config.
  """
  if config.is_private:
    raise config.refusal(
      '{epsilon}, {noise_multiplier}: a private method has no dense twin: it '
      'would spend privacy of the same clients. Train the method alone.'
    )
  takes, work = algorithms.options(config.algorithm), algorithms.entry
  of_gradients = work(config.algorithm).work == 'gradient'
  fields = dataclasses.asdict(config)
  fields['algorithm'] = 'fedsgd' if of_gradients else 'fedavg'
  if 'b2' in takes:
    fields['server_optimizer'] = 'adam'
  fields, _ = switched(fields, ['algorithm'])
  return Config.from_mapping(fields)


def pictured(
  folders: Mapping[str, pathlib.Path], path: pathlib.Path
) -> tuple[str, Any]:
  """Draw runs over rounds and over bytes; return their table and the figure.

  The table has a metric after all rounds, and at the bytes of the cheapest run.
  """
  runs = {name: read_metrics(where) for name, where in folders.items()}
  metric = metrics.shared_metric(runs.values()) or 'train_loss'
  least = min(metrics.total_bytes(rows[-1]) for rows in runs.values())
  head = 'method', 'rounds', metric, *BYTES, f'{metric} at {least / 1e6:.3g} MB'
  lines = []
  for name, rows in runs.items():
    sent = [rows[-1][total] / 1e6 for total in BYTES.values()]
    within = [r for r in rows if metrics.total_bytes(r) <= least]
    scores = [metrics.values(some, metric) for some in (rows, within)]
    last, at_least = (score[-1] if score else math.nan for score in scores)
    lines.append([name, rows[-1]['round'] + 1, last, *sent, at_least])
  figure = None
  with extras.optional_figures():
    panels = []
    for x in ('rounds', 'bytes'):
      curves = [plots.line(name, [r], x, metric) for name, r in runs.items()]
      panels.append(plots.panel_of(x, metric, curves, ''))
    figure = figures.draw(panels)
    figure.savefig(path, dpi=150, format='png')
  return metrics.table(head, lines), figure
