"""Compute every verdict again from stored files, with none of our code.

Run `python papers/recompute.py docs/results`. The `values` of a claim are rows
of seeds, a row a cell; some claims have p alone.
"""

import json
import pathlib
import sys

import numpy as np
from scipy import stats


def one_sided(x, size):
  """p-values that numbers are above 0, and below, in the mean."""
  n = len(x)
  error = x.std(ddof=1) / n**0.5 if n > 1 else np.nan
  if error > 1e-12 * size:
    t = x.mean() / error
    return stats.t.sf(t, n - 1), stats.t.cdf(t, n - 1)
  above, below = (x > 0).sum(), (x < 0).sum() + np.isnan(x).sum()
  tail = lambda k: stats.binom.sf(k - 1, n, 0.5) if n > 1 else 1.0
  return tail(above), tail(below)


def over(claim, numbers):
  """By how much numbers keep the bound of a claim."""
  sign = 1 if claim['relation'] == '>=' else -1
  return sign * (np.array(numbers, float) - claim['bound'])


def p_value(claim):
  """Two-sided p-value of a claim, of the worst of its cells."""
  if not claim.get('values'):
    return claim['p']
  x = over(claim, claim['values'])
  size = np.abs(x + claim['bound']).max()
  pairs = [one_sided(row, size) for row in x]
  keeps, breaks = np.array(pairs).T
  return min(1.0, 2 * min(keeps.max(), len(pairs) * breaks.min()))


def decide(folder):
  """Return (study, claim, verdict) of all that were tested, decided at 5 %."""
  files = [json.loads(path.read_text()) for path in folder.glob('*.json')]
  every = [(f['name'], c) for f in files for c in f['claims']]
  absent = lambda c: c['measured'] is None and c['remark']
  every = [(study, c) for study, c in every if not absent(c)]
  p = [p_value(c) for _, c in every if not c['exact']]
  adjusted = iter(stats.false_discovery_control(p, method='by'))
  for study, c in every:
    side = 'holds' if over(c, c['measured']) >= 0 else 'does not hold'
    sure = c['exact'] or next(adjusted) <= 0.05
    yield study, c, side if sure else 'undecided'


if __name__ == '__main__':
  for name, claim, verdict in decide(pathlib.Path(sys.argv[1])):
    print(f'{name}: {claim["text"]}, {claim["bound"]}: {verdict}')
