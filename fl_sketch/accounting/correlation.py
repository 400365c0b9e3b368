r"""Noise that is correlated over rounds: weights, sensitivity, account.

Noise on the sum of round t is :math:`\sum_{j < p} a_j z_{t-j}`, of independent
:math:`z_s`, with :math:`a_0 = 1` and the other weights negative: A z over an
epoch, A lower triangular Toeplitz with p bands. Releases :math:`A (C x + z)`,
:math:`C = A^{-1}`, are a post-processing of one Gaussian mechanism with the
sensitivity of C: proofs are in docs/concepts/correlated_noise.md.
"""

import dataclasses
import functools
import math
from typing import Any

from fl_sketch.accounting.types import GaussianMechanism
from fl_sketch.utils import checks
import numpy as np

BITS = 15
ONE = 2**BITS  # the weight a_0 = 1
_SAFE = 1e-9  # relative; what rounding in float64 may take from a norm


def square_root(bands: int) -> tuple[int, ...]:
  r"""Return the first weights of :math:`(1 - x)^{1/2}`, in units of 2^-15.

  >>> square_root(4)
  (32768, -16384, -4096, -2048)

  Source: Kalinin, McKenna, Upadhyay, Lampert, arXiv:2505.12128 (BISR).
  """
  series = [1.0]
  for j in range(1, checks.count('bands', bands)):
    series.append(series[-1] * (j - 1.5) / j)
  return tuple(round(ONE * a) for a in series)


@dataclasses.dataclass(frozen=True)
class Correlation:
  """Weights of earlier rounds' noise, and how often a client takes part.

  >>> noise = Correlation(square_root(4), rounds=500, separation=500)
  >>> round(noise.sensitivity(), 3)
  1.274
  """

  weights: tuple[int, ...]  # a_0 ... a_{p-1} in 2^-15, as of `square_root`
  rounds: int  # n of an epoch; the next epoch begins with independent noise
  # A client takes part at most once in so many consecutive rounds: the caller
  # must ensure it. 1 is every round.
  separation: int

  def __post_init__(self):
    object.__setattr__(self, 'weights', tuple(map(int, self.weights)))
    for name in 'rounds', 'separation':
      object.__setattr__(self, name, checks.count(name, getattr(self, name)))
    first, *rest = self.weights or (0,)
    if first != ONE or any(q > 0 for q in rest) or sum(self.weights) < 0:
      raise ValueError(
        f'weights={self.weights}; use {ONE}, then none above 0, of sum >= 0.'
      )
    if self.bands > self.rounds:
      raise ValueError(f'{self.bands} bands exceed rounds={self.rounds}.')

  @property
  def bands(self) -> int:
    """Number of draws in the noise of a round."""
    return len(self.weights)

  @property
  def gain(self) -> float:
    """Standard deviation of the noise of a late round over that of a draw."""
    return math.sqrt(sum((q / ONE) ** 2 for q in self.weights))

  @functools.cached_property
  def strategy(self) -> np.ndarray:
    """The first column of C, or its least nonincreasing bound, f64[rounds]."""
    back = -np.divide(self.weights[1:], ONE)
    series = np.zeros(self.rounds)
    series[0] = 1
    for k in range(1, self.rounds):
      last = series[max(k - len(back), 0) : k][::-1]
      series[k] = back[: len(last)] @ last
    return np.maximum.accumulate(series[::-1])[::-1]

  def sensitivity(self, rounds: int | None = None) -> float:
    r"""By how much one client moves C x in the first rounds of an epoch.

    :math:`\|\sum_i C_{\cdot, i b}\|` clip norms, b the separation: no other
    participation moves it more (Kalinin and Lampert, arXiv:2405.13763, Theorem
    2). `rounds` None is the whole epoch.
    """
    last = self.rounds if rounds is None else min(rounds, self.rounds)
    checks.count('rounds', last)
    return math.sqrt(self._squares[last - 1]) * (1 + _SAFE)

  @functools.cached_property
  def _squares(self) -> np.ndarray:
    """Squared sensitivity after each round of an epoch, f64[rounds]."""
    apart = min(self.separation, self.rounds)
    column = np.pad(self.strategy, (0, -self.rounds % apart))
    total = column.reshape(-1, apart).cumsum(axis=0).ravel()[: self.rounds]
    return np.cumsum(total**2)

  def releases(self, rounds: int) -> int:
    """Epochs in which a client takes part, in a run of so many rounds."""
    checks.count('rounds', rounds)
    return -(-rounds // max(self.rounds, self.separation))

  def mechanism(
    self, noise_multiplier: float, rounds: int, **spec: Any
  ) -> GaussianMechanism:
    """Return a run of so many rounds as one Gaussian release for each epoch.

    `noise_multiplier` is the standard deviation of a draw z_s over the clip
    norm; `spec` are other fields of the mechanism.
    """
    multiplier = noise_multiplier / self.sensitivity(min(rounds, self.rounds))
    return GaussianMechanism(multiplier, self.releases(rounds), **spec)

  def rounding(self, numbers: int) -> float:
    r"""By how much rounding of the noise raises the clip norm, in grid steps.

    :math:`\max_m \|C_m\|_2 \sqrt{m d}` over the sensitivity of the first m
    rounds, d the numbers of a release.
    """
    norms = np.cumsum(self.strategy) * np.sqrt(np.arange(self.rounds) + 1)
    worst = (norms / np.sqrt(self._squares)).max()
    return float(worst * math.sqrt(numbers) * (1 + _SAFE))
