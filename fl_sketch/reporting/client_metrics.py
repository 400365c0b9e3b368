"""Summarises the metrics of many clients: mean, worst tenth, quantiles."""

from collections.abc import Iterable, Mapping, Sequence
import re

from fl_sketch.reporting import figures, metrics
import numpy as np


def over_clients(
  sums: Mapping[str, np.ndarray], prefix: str = 'client'
) -> dict[str, float]:
  r"""Computes statistics over clients, each of which counts once.

  Of every metric the mean; the mean over the worst tenth of the clients,
  :math:`\lceil n / 10 \rceil` of n, see `metrics.best_of`; the quantiles 0.1,
  0.5 and 0.9; and 'pooled', the mean over all samples, or tokens, of all
  clients. `sums` has f[clients] of each metric over a client's samples, and
  their 'count'; clients without samples are left out.

  >>> sums = {'accuracy': np.array([4, 0, 1]), 'count': np.array([4, 0, 2])}
  >>> over = over_clients(sums)
  >>> over['client_accuracy_mean'], over['client_accuracy_worst_decile']
  (0.75, 0.5)
  """
  some = sums['count'] > 0
  found = {}
  for name in sorted(sums.keys() - {'count'}):
    values = np.sort(metrics.mean(name, sums[name][some], sums['count'][some]))
    tenth = -(-len(values) // 10)
    worst = values[:tenth] if metrics.best_of(name) is max else values[-tenth:]
    pooled = metrics.mean(name, sums[name].sum(), sums['count'].sum())
    found[f'{prefix}_{name}_mean'] = float(values.mean())
    found[f'{prefix}_{name}_pooled'] = float(pooled)
    found[f'{prefix}_{name}_worst_decile'] = float(worst.mean())
    for q in (10, 50, 90):
      found[f'{prefix}_{name}_q{q}'] = float(np.quantile(values, q / 100))
  return found


_MODELS = {'client': "the server's model", 'personal': "clients' own models"}


def panels(rows: Sequence[metrics.Row]) -> list[figures.Panel]:
  """Plots the metrics of clients by the round, a panel for each of them.

  Lines are means over clients, with bands between their quantiles 0.1 and 0.9;
  dashed ones are means over the worst tenth. Without such metrics it is empty.

  >>> sums = {'loss': np.array([4.0, 1.0]), 'count': np.array([2, 1])}
  >>> [panel] = panels([{'round': 3, **over_clients(sums)}])
  >>> [(line.label, line.x, line.y) for line in panel.lines][0]
  ("the server's model", [3], [1.5])
  """
  every = {name for row in rows for name in row}
  found = (re.fullmatch('client_(.*)_mean', name) for name in every)
  names = sorted(match[1] for match in found if match)
  label = lambda name: f'{name.replace("_", " ")} of clients'
  return [figures.Panel('round', label(x), [*_lines(rows, x)]) for x in names]


def _lines(rows, name) -> Iterable[figures.Line]:
  for prefix, label in _MODELS.items():
    of = lambda x, start=f'{prefix}_{name}_': metrics.values(rows, start + x)
    logged = [row for row in rows if f'{prefix}_{name}_mean' in row]
    if not (rounds := metrics.values(logged, 'round')):
      continue
    yield figures.Line(label, rounds, of('mean'), of('q10'), of('q90'))
    tenth = rounds, of('worst_decile')
    yield figures.Line(f'{label}, worst tenth', *tenth, family=label, variant=1)
