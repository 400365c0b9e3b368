"""Summarises the metrics of many clients: mean, worst tenth, quantiles."""

from collections.abc import Mapping

from fl_sketch.reporting import metrics
import numpy as np


def over_clients(sums: Mapping[str, np.ndarray]) -> dict[str, float]:
  r"""Computes statistics over clients, each of which counts once.

  Of every metric the mean; the mean over the worst tenth of the clients,
  :math:`\lceil n / 10 \rceil` of n, see `metrics.best_of`; and the quantiles
  0.1, 0.5 and 0.9.

  >>> sums = {'accuracy': np.array([4, 0, 1]), 'count': np.array([4, 0, 2])}
  >>> over = over_clients(sums)
  >>> over['client_accuracy_mean'], over['client_accuracy_worst_decile']
  (0.75, 0.5)

  Args:
    sums: f[clients] of each metric over a client's samples, and their 'count';
      clients without samples are left out.
  """
  some = sums['count'] > 0
  found = {}
  for name in sorted(sums.keys() - {'count'}):
    values = metrics.mean(name, sums[name][some], sums['count'][some])
    values = np.sort(values)
    tenth = -(-len(values) // 10)
    lowest = metrics.best_of(name) is max
    worst = values[:tenth] if lowest else values[-tenth:]
    found[f'client_{name}_mean'] = float(values.mean())
    found[f'client_{name}_worst_decile'] = float(worst.mean())
    for percent in (10, 50, 90):
      quantile = float(np.quantile(values, percent / 100))
      found[f'client_{name}_q{percent}'] = quantile
  return found
