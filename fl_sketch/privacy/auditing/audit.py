r"""Empirical DP audit: lower bounds on epsilon from attacks on a mechanism.

If a release is (epsilon, delta)-private, then for every event E and both orders
of two neighbours :math:`P(E) \le e^\epsilon P'(E) + \delta`. Scores that an
attacker assigns to runs in the two worlds therefore bound epsilon from below,
whatever the score; a better one raises it. A bound above theory is a defect.

Deltas are 0.1 and 0.01: at 1e-5 the event that decides is too rare. Noise too
small by a factor of 0.85 is seen at 0.1 in 5,000 runs.
"""

from collections.abc import Mapping
import functools
from typing import NamedTuple

from fl_sketch.accounting import profiles, types
from fl_sketch.privacy.auditing import noise_law
from fl_sketch.utils import checks
import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

DELTAS = (0.1, 0.01)
_CANDIDATES = 512  # thresholds


class Report(NamedTuple):
  """Measured lower bounds on epsilon, and the claim."""

  measured: Mapping[str, tuple[float, ...]]  # by score: bounds at `DELTAS`
  theory: tuple[float, ...]  # the claimed epsilon at `DELTAS`
  significance: float  # probability that any bound exceeds a true claim
  samples: int  # runs in each of the two worlds
  law: noise_law.Finding | None = None  # of the noise; None: not tested
  share: float = 0.0  # the part of the significance for the law

  @property
  def violated(self) -> bool:
    """Whether a bound or the law of the noise refutes the claim."""
    bounds = np.array(list(self.measured.values()))
    other = self.law is not None and self.law.chance <= self.share
    # A theory of NaN refutes, too.
    return other or not bool((bounds <= np.array([self.theory])).all())

  def text(self) -> str:
    """Return the bounds of every score and the verdict, line by line."""
    lines = []
    for i, delta in enumerate(DELTAS):
      bounds = [f'{row[i]:.3f} ({name})' for name, row in self.measured.items()]
      claim = f'delta={delta:g}: epsilon claimed {self.theory[i]:.3f}, shown '
      lines.append(claim + ', '.join(bounds))
    if self.law is not None:
      lines.append(self.law.text())
    runs = f'{self.samples} runs a world, '
    word = 'VIOLATED' if self.violated else None
    return '\n'.join([*lines, verdict(word, self.significance, runs)])


def verdict(word: str | None, significance: float, runs: str = '') -> str:
  """Return the last line of a report; None: the claim is not refuted."""
  result = 'nothing found, which proves nothing'
  if word is not None:
    result = f'{word}: less private than claimed'
  return f'{result} ({runs}false alarm <= {significance:g})'


def epsilon_lower_bound(
  in_scores: ArrayLike,
  out_scores: ArrayLike,
  *,
  delta: float,
  significance: float = 0.05,
) -> float:
  r"""Bound epsilon from below by scores in two neighbouring worlds.

  :math:`\ln((\underline p - \delta) / \overline{p}')`, 0 at least, of an event
  {score at or above a threshold}, or below it, in either order of the worlds.
  Scores are f[n] of runs with the canary, high if it seems to be present, and
  f[m] without, in random order. A quarter of them picks the event; the others
  bound its probabilities (Clopper and Pearson), each with half of the
  significance. The result is above the true epsilon with probability
  `significance` at most, whatever the distributions, ties and atoms among them.

  >>> rng = np.random.default_rng(0)
  >>> scores = rng.normal(size=(2, 4000)) + np.array([[1.0], [0.0]])
  >>> 0.3 < epsilon_lower_bound(*scores, delta=0.1) < 1.2
  True

  Raises ValueError for a NaN or fewer than 8 scores.
  """
  checks.fraction('delta', delta)
  checks.fraction('significance', significance)
  worlds = [_scores('in_scores', in_scores), _scores('out_scores', out_scores)]
  first = [np.sort(x[: len(x) // 4]) for x in worlds]
  rest = [np.sort(x[len(x) // 4 :]) for x in worlds]
  values = np.unique(np.concatenate(first))
  places = np.linspace(0, len(values) - 1, min(len(values), _CANDIDATES))
  thresholds = values[places.round().astype(int)]
  guesses = _bounds(first, thresholds, delta, significance)
  best = np.unravel_index(np.argmax(guesses), guesses.shape)
  chosen = thresholds[best[-1] :][:1]
  return float(_bounds(rest, chosen, delta, significance)[best[:-1]][0])


def assess(
  scores: Mapping[str, tuple[ArrayLike, ArrayLike]],
  mechanism: types.Mechanism,
  *,
  significance: float = 0.05,
  accountant: str = 'pld',
  law: noise_law.Finding | None = None,
) -> Report:
  """Compare the bounds of several scores at `DELTAS` with the claim.

  Scores are by name, with and without the canary, f[n] each. If the claim is
  true, the report is `violated` with probability `significance` at most,
  however scores depend on each other: each comparison, and the law of noise if
  tested, has an equal share.
  """
  share = checks.fraction('significance', significance)
  share /= len(scores) * len(DELTAS) + (law is not None)
  bound = functools.partial(epsilon_lower_bound, significance=share)
  measured = {
    name: tuple(bound(*pair, delta=delta) for delta in DELTAS)
    for name, pair in scores.items()
  }
  # Not `compute_epsilon`: it warns of a delta as large as an audit needs.
  claim = profiles.profile(mechanism, accountant).epsilon
  samples = min(len(np.asarray(x)) for pair in scores.values() for x in pair)
  theory = tuple(map(claim, DELTAS))
  return Report(measured, theory, significance, samples, law, share)


def _scores(name: str, values: ArrayLike) -> np.ndarray:
  scores = np.asarray(values, np.float64)
  if scores.ndim != 1 or len(scores) < 8:
    raise ValueError(
      f'{name} has the shape {scores.shape}; use one axis, of n >= 8 runs.'
    )
  if (missing := np.isnan(scores).sum()) > 0:
    raise ValueError(f'{name} has {missing} NaN; score every run.')
  return scores


def _bounds(worlds, thresholds, delta, significance) -> np.ndarray:
  """Return f64[order of worlds, above or below, thresholds], scores sorted."""
  counts = []
  for x in worlds:
    below = np.searchsorted(x, thresholds, side='left')
    counts.append((np.stack([len(x) - below, below]), len(x)))
  ratio = lambda one, other: _log_ratio(one, other, delta, significance)
  return np.stack([ratio(*counts), ratio(*counts[::-1])])


def _log_ratio(one, other, delta, significance):
  """Return ln((p - delta) / p'), with p at its lower, p' at its upper bound."""
  (hits, size), (others, other_size) = one, other
  half = significance / 2
  low = stats.beta.ppf(half, np.maximum(hits, 1), size - hits + 1)
  low = np.where(hits > 0, low, 0)
  high = stats.beta.isf(half, others + 1, np.maximum(other_size - others, 1))
  high = np.where(others < other_size, high, 1)
  return np.log(np.maximum((low - delta) / high, 1))
