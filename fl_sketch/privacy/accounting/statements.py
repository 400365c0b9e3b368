"""The statement of a private run: what is guaranteed, to whom, and what is not.

No JAX.
"""

import dataclasses
import math
from typing import Any

from fl_sketch.privacy.accounting import types
from fl_sketch.utils import checks

NOISE = ('secret', 'reproducible: not private', 'simulated: not private')
_NOT = {
  NOISE[1]: 'Not private: noise_seed fixes the noise. With secret noise:',
  NOISE[2]: 'Not private: its cohort is simulated. A real one would have',
}
_TRUST = {
  'central': 'anyone but the trusted server',
  'secure_aggregation': 'anyone who sees only securely aggregated sums',
  'local': 'everyone, the server included',
}


@dataclasses.dataclass(frozen=True)
class PrivacyStatement:
  """A DP guarantee: epsilon, delta, unit, adjacency, trust and conditions."""

  epsilon: float  # at `delta`
  delta: float  # in (0, 1)
  accountant: str  # what computed it
  mechanism: types.Mechanism  # what is released
  trust: types.Trust  # against whom
  noise: str = 'secret'  # whether it is secret
  caveats: tuple[str, ...] = ()  # what is left out
  mu: float | None = None  # of Gaussian DP, down to `delta`
  # The largest of any test of whether a unit took part, at a false-positive
  # rate of 1e-3; None, like mu, if it was not computed.
  true_positive_rate: float | None = None

  def __post_init__(self):
    checks.choice('trust', self.trust, types.TRUSTS)
    checks.choice('noise', self.noise, NOISE)
    checks.fraction('delta', self.delta)
    if not self.epsilon >= 0:
      raise ValueError(f'epsilon={self.epsilon} is no guarantee; use >= 0.')

  def as_dict(self) -> dict[str, Any]:
    """Return values for JSON: enums as their values, infinity as 'inf'."""
    return {k: types.plain(v) for k, v in dataclasses.asdict(self).items()}

  def sentence(self) -> str:
    """Return the statement in one to three plain lines."""
    part = types.parts_of(self.mechanism)[0]
    relation = part.adjacency.value.replace('_', ' ')
    promise = (
      f'({self.epsilon:.4g}, {self.delta:.3g})-differential privacy of one '
      f'{part.unit} ({relation}) against {_TRUST[self.trust]}, by '
      f'{self.accountant.upper()}; {_sampling(part)}.'
    )
    if self.noise in _NOT:
      promise = f'{_NOT[self.noise]} {promise}'
    elif math.isinf(self.epsilon):
      promise = f'Not private: {promise}'
    lines = [promise, self._tests(part), ' '.join(self.caveats)]
    return '\n'.join(filter(None, lines))

  def headline(self, where: str) -> str:
    """Return the first line of `sentence`, and `where` its caveats are."""
    count, first = len(self.caveats), self.sentence().partition('\n')[0]
    return f'{first}\nIts conditions and caveats, {count}: {where}'

  def _tests(self, part: types.GaussianMechanism) -> str:
    """Return what a test of one unit's presence can tell, in words."""
    silent = self.noise != 'secret' or math.isinf(self.epsilon)
    if silent or self.mu is None or self.true_positive_rate is None:
      return ''
    rate = 100 * self.true_positive_rate
    return (
      f'As a test of whether one {part.unit} took part: mu {self.mu:.4g} of '
      f'Gaussian differential privacy at every delta >= {self.delta:.3g}; at '
      f'most {rate:.3g} % true positives at 0.1 % false positives.'
    )


def _sampling(part: types.GaussianMechanism) -> str:
  """Return how a mechanism samples, in words."""
  kind = part.sampling.value.replace('_', ' ')
  words = f'{part.steps} steps, sampling {kind}'
  if part.epoch_steps is not None:
    words += f' to one of {part.epoch_steps}'
  elif part.sampling_probability < 1:
    words += f' with probability {part.sampling_probability:.4g}'
  limit = part.max_cohort
  return words if limit is None else f'{words}, at most {limit}'
