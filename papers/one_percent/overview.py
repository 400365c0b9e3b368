"""Puts the four tasks of the comparison into one table and one figure."""

from collections.abc import Callable

from fl_sketch.reporting import figures

from ..common import results, study, workspace
from ..common.workspace import Workspace
from . import methods, report, tasks

# Task -> its study, and the function that makes its report.
_STUDIES: dict[str, tuple[str, Callable[[Workspace], study.Report]]] = {
  'mnist': ('One-Percent-MNIST', report.mnist),
  'resnet': ('One-Percent-ResNet', report.resnet),
  'text': ('One-Percent-Text', report.text),
  'vit': ('One-Percent-ViT', report.vit),
}


def overview(ws: Workspace) -> study.Report:
  """Makes the table and the figure of all tasks, at equal rounds.

  The result of a task is read from the folder of the workspace, or made where
  there is none.
  """
  panels, scores, spent = [], {}, []
  for task, title in tasks.TITLES.items():
    methods_of_task, panel = _result(ws, task)
    panels.append(panel._replace(title=title))
    scores[title] = {key: x['%'] for key, x in methods_of_task.items()}
    dense = methods_of_task[report.entry(methods.DENSE, 1.0)]['bytes']
    percent = {k: 100 * x['bytes'] / dense for k, x in methods_of_task.items()}
    spent.append(percent)
  rows = []
  for key in dict.fromkeys(key for task in spent for key in task):
    percents = [task[key] for task in spent if key in task]
    ends = dict.fromkeys(f'{end:.3g}' for end in (min(percents), max(percents)))
    columns = [column.get(key) for column in scores.values()]
    cells = ['' if x is None else workspace.shown(x, digits=2) for x in columns]
    rows.append([*key.rsplit(', ', 1), ' to '.join(ends), *cells])
  head = ['method', 'up', '% of all bytes', *tasks.TITLES.values()]
  return study.Report(
    [],
    scores,
    [study.Table(_CAPTION, head, rows)],
    [study.Picture(report.CURVES, panels, columns=2)],
    [report.PROTOCOL],
  )


def _result(ws, task):
  """Returns the numbers of a task but at equal bytes, and its curves."""
  name, make = _STUDIES[task]
  if (kept := results.read(ws.folder, name)) is not None:
    panels = figures.from_json(kept['pictures'][-1]['panels'])
    return _stages(kept['seeds']), *panels
  made = make(ws)
  return _stages(made.seeds), *made.pictures[-1].panels


def _stages(seeds):
  return seeds[report.EQUAL_ROUNDS] | seeds[report.MORE_ROUNDS]


_CAPTION = (
  'Test accuracy in per cent, means over seeds ± standard errors, at equal '
  'rounds; "more rounds" are those that 5 % of the bytes of dense FedAdam pay '
  'for. The bytes are those that a client sends up, of those of the model (d), '
  'and those of all clients, up and down, in per cent of dense FedAdam: from '
  'the least to the most of the tasks.'
)
