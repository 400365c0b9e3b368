"""Statements of private runs: what is guaranteed, to whom, and what is not."""

import dataclasses
import math
from typing import Any

from fl_sketch.accounting import types
from fl_sketch.utils import checks

NOISE = 'secret', 'reproducible: not private'
_NOT = 'Not private: noise_seed fixes the noise. With secret noise:'
_TRUST = {
  'central': 'anyone but the trusted server',
  'secure_aggregation': 'anyone who sees only securely aggregated sums',
  'local': 'everyone, the server included',
}

# Beyond these a guarantee means little: Ponomareva et al., arXiv:2303.00654.
_LARGE_EPSILON, _LARGE_DELTA = 10, 0.01


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
  mu: float | None = None  # of Gaussian DP down to `delta`; None: not computed
  true_positive_rate: float | None = None  # the most, at 0.1 % false positives
  units: int | None = None  # clients or samples of the population

  def __post_init__(self):
    checks.fraction('delta', self.delta)
    if not self.epsilon >= 0:
      raise ValueError(f'epsilon={self.epsilon} is no guarantee; use >= 0.')

  def as_dict(self) -> dict[str, Any]:
    """Return values for JSON and the `sentence`; infinity is 'inf'."""
    values = types.plain(dataclasses.asdict(self))
    return values | {'sentence': self.sentence()}

  def sentence(self, where: str = '') -> str:
    """Return the statement; its caveats are replaced by `where`, if given."""
    part = types.parts_of(self.mechanism)[0]
    computed = f'Computed by {self.accountant.upper()}: {_sampling(part)}.'
    caveats = self.caveats
    if where:
      caveats = (f'Conditions and caveats, {len(caveats)}: {where}',)
    lines = self.headline(), computed, self._tests(part), *caveats
    return '\n'.join(filter(None, lines))

  def headline(self) -> str:
    """Return why it means little, if so; epsilon, delta, neighbours, trust."""
    part = types.parts_of(self.mechanism)[0]
    relation = part.adjacency.value.replace('_', ' ')
    promise = (
      f'({self.epsilon:.4g}, {self.delta:.3g})-differential privacy of one '
      f'{part.unit} ({relation}) against {_TRUST[self.trust]}.'
    )
    if self.noise == NOISE[1]:
      promise = f'{_NOT} {promise}'
    elif math.isinf(self.epsilon):
      promise = f'Not private: {promise}'
    return '\n'.join(filter(None, (self._weakness(), promise)))

  def _weakness(self) -> str:
    """Return why a finite guarantee means little, in a line; '' otherwise."""
    unit, e = types.parts_of(self.mechanism)[0].unit, f'{self.epsilon:.4g}'
    reasons: list[str] = []
    if self.delta >= min(1 / (self.units or 1), _LARGE_DELTA):
      share = f'delta={self.delta:.3g} is the share of {self.units or "all"}'
      reasons.append(f'{share} {unit}s whose data may be shown')
    if self.epsilon > _LARGE_EPSILON:
      reasons.append(f'epsilon={e} allows a test that errs once in e^{e}')
    if not reasons or math.isinf(self.epsilon):
      return ''
    return f'This guarantee means little: {"; ".join(reasons)}.'

  def _tests(self, part: types.GaussianMechanism) -> str:
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
  kind = part.sampling.value.replace('_', ' ')
  words = f'{part.steps} steps, sampling {kind}'
  if part.epoch_steps is not None:
    words += f' to one of {part.epoch_steps}'
  elif part.sampling_probability < 1:
    words += f' with probability {part.sampling_probability:.4g}'
  limit = part.max_cohort
  return words if limit is None else f'{words}, at most {limit}'
