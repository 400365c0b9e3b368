"""Puts the four tasks of the comparison into one table and one figure."""

from fl_sketch.reproduce import lab as lab_lib, study
from fl_sketch.reproduce.one_percent import methods, report, runs, tasks


def overview(lab: lab_lib.Lab) -> study.Report:
  """Makes the table and the figure of all tasks, at equal rounds."""
  panels, scores, spent = [], {}, []
  for name, title in tasks.TITLES.items():
    task = tasks.make(lab, name)
    races = runs.equal_rounds(lab, task)
    more = report.longer(lab, task, races)
    panels.append(report.curves(races | more)._replace(title=title))
    scores[title] = {key: runs.accuracy(race) for key, race in races.items()}
    dense = runs.spent(races[methods.DENSE, 1.0])
    spent.append({k: 100 * runs.spent(r) / dense for k, r in races.items()})
  rows = []
  for key in dict.fromkeys(key for task in spent for key in task):
    percents = [task[key] for task in spent if key in task]
    ends = dict.fromkeys(f'{end:.3g}' for end in (min(percents), max(percents)))
    name, share = key
    columns = [column.get(key) for column in scores.values()]
    cells = ['' if x is None else lab_lib.shown(x, digits=2) for x in columns]
    rows.append([name, report.label(share), ' to '.join(ends), *cells])
  head = ['method', 'up', '% of all bytes', *tasks.TITLES.values()]
  seeds = {
    title: {
      report.entry(name, share): column[name, share].tolist()
      for name, share in column
    }
    for title, column in scores.items()
  }
  return study.Report(
    [],
    seeds,
    [study.Table(_CAPTION, head, rows)],
    [study.Picture(report.CURVES, panels, columns=2)],
    [report.PROTOCOL],
  )


_CAPTION = (
  'Test accuracy in per cent, means over seeds ± standard errors, at equal '
  'rounds. The bytes are those that a client sends up, of those of the model '
  '(d), and those of all clients, up and down, in per cent of dense FedAdam: '
  'from the least to the most of the tasks.'
)
