"""Privacy formulas of the papers, labelled loose, unproven or heuristic.

They return plain floats, which no accountant takes: `accounting` is exact. The
textbook lemmas come first: valid but loose.

Source: Song, Wang, Yu and Zhang, arXiv:2210.08371, section 6 and appendix H;
Das, Hashemi, Sanghavi and Dhillon, arXiv:2106.07094, section 4; Haddadpour,
Karimi, Li and Li, arXiv:2008.04975, Theorem 1.
"""

import math
from typing import Annotated
import warnings

from . import conditions
from .conditions import Count, Fraction, Positive, Share
from .evaluation import with_checks


@with_checks
def gaussian_mechanism_sigma(
  epsilon: Positive,
  delta: Fraction,
  sensitivity: Positive,
  *,
  allow_unproven: bool = False,
) -> float:
  """Return sigma = sqrt(2 ln(1.25 / delta)) sensitivity / epsilon; loose.

  Proven for epsilon < 1 and false above 8.4 at delta 1e-5;
  `accounting.gaussian_noise_multiplier` is exact. Source: Song, Lemma H.7; Das,
  Definition 2; Dwork and Roth, Theorem A.1.

  >>> round(gaussian_mechanism_sigma(1.0, 1e-5, sensitivity=1.0), 3)
  4.845
  """
  if epsilon > 1 and not allow_unproven:
    raise ValueError(f'epsilon={epsilon} must be <= 1, where it is proven.')
  return math.sqrt(2 * math.log(1.25 / delta)) * sensitivity / epsilon


@with_checks
def advanced_composition(
  epsilon: Positive,
  delta: Share,
  k: Count,
  *,
  delta_slack: Fraction,
  form: Annotated[str, conditions.choice(('h3', 'drv10'))] = 'h3',
) -> tuple[float, float]:
  """Return (epsilon, delta) of k adaptive steps of (epsilon, delta); loose.

  sqrt(2 k ln(1 / delta_slack)) epsilon + 2 k epsilon^2 for 'h3', proven for
  epsilon <= 1 (Song, Lemma H.3); the last term is k epsilon (e^epsilon - 1) for
  'drv10' (Dwork, Rothblum and Vadhan, FOCS 2010). delta_slack + k delta.

  >>> eps, _ = advanced_composition(0.01, 1e-9, 500, delta_slack=5e-7)
  >>> round(eps, 4)
  1.3045
  """
  spread = math.sqrt(2 * k * math.log(1 / delta_slack)) * epsilon
  if form == 'drv10':
    drift = k * epsilon * math.expm1(epsilon)
  else:
    drift = 2 * k * epsilon**2
    if epsilon > 1:
      raise ValueError(f"epsilon={epsilon} must be <= 1 for form='h3'.")
  return spread + drift, delta_slack + k * delta


@with_checks
def subsample_amplification(
  epsilon: Positive,
  delta: Share,
  q: Positive,
  *,
  form: Annotated[str, conditions.choice(('tight', 'h4'))] = 'tight',
) -> tuple[float, float]:
  """Return (epsilon, delta) of a step on a sample of the fraction q.

  ln(1 + q (e^epsilon - 1)) and q delta for 'tight': one release, by Poisson
  under add/remove or of fixed size under replace-one (Balle, Barthe and
  Gaboardi, arXiv:1807.01647). 6 q epsilon and 4 q e^(6 q epsilon) delta for
  'h4', with replacement, epsilon <= 1 and q <= 1/2 (Song, Lemma H.4): it is
  worse than no sampling for q >= 1/6.

  >>> round(subsample_amplification(1.0, 1e-5, 0.2)[0], 3)
  0.295
  """
  bound = 1 if form == 'tight' else 0.5
  if q > bound:
    raise ValueError(f'q={q} must be <= {bound} for {form=}.')
  if form == 'tight':
    return math.log1p(q * math.expm1(epsilon)), q * delta
  if epsilon > 1:
    raise ValueError(f'epsilon={epsilon} must be <= 1 for {form=}.')
  return 6 * q * epsilon, 4 * q * math.exp(6 * q * epsilon) * delta


@with_checks
def das_sigma_squared(
  epsilon: Positive,
  delta: Fraction,
  *,
  clip_norm: Positive,
  population: Count,
  rounds: Count,
  constant: Positive,
) -> float:
  """Return constant rounds clip_norm^2 ln(1 / delta) / (population epsilon)^2.

  The variance of the noise of the mean over the expected cohort. No absolute
  constant exists: right values run from 1.3 to 10. The paper asks for an
  epsilon below the order of rounds (cohort / population)^2, which 5 is not
  below in 124 rounds of a fifth. Source: Das, Theorem 1.

  >>> spec = {'clip_norm': 1.0, 'population': 50, 'rounds': 100}
  >>> round(das_sigma_squared(5.0, 1e-5, constant=2.0, **spec), 4)
  0.0368
  """
  ratio = clip_norm / (population * epsilon)
  return constant * rounds * -math.log(delta) * ratio**2


@with_checks
def das_rho(
  epsilon: Positive,
  delta: Fraction,
  *,
  dimension: Count,
  population: Count,
  constant: Positive,
) -> float:
  """Return sqrt(constant dimension ln(1 / delta)) / (population epsilon).

  The key quantity of the rates, which need it below 1. Source: Das,
  Definition 5, where the population is that of clients.

  >>> spec = {'dimension': 200, 'population': 100}
  >>> round(das_rho(5.0, 1e-5, constant=1.0, **spec), 4)
  0.096
  """
  spread = math.sqrt(constant * dimension * -math.log(delta))
  return spread / (population * epsilon)


@with_checks
def das_noise_multiplier(
  epsilon: Positive,
  delta: Fraction,
  *,
  population: Count,
  cohort: Positive,
  rounds: Count,
  constant: Positive = 1.0,
) -> float:
  """Return the accountant's noise multiplier of `das_sigma_squared`.

  >>> spec = {'population': 100, 'cohort': 100, 'rounds': 500}
  >>> round(das_noise_multiplier(5, 1e-6, **spec), 4)
  16.6226
  """
  size = {'population': population, 'rounds': rounds, 'constant': constant}
  variance = das_sigma_squared(epsilon, delta, clip_norm=1.0, **size)
  return cohort * math.sqrt(variance)


@with_checks
def count_sketch_heuristic_epsilon(
  *,
  rows: Count,
  cols: Count,
  dimension: Count,
  max_value: Positive,
  stddev: Positive,
  alpha: Positive = 4.0,
) -> float:
  """Return rows ln(1 + a): a heuristic, NOT differential privacy.

  a = alpha max_value^2 m (m - 1) (1 + ln(l - m)) / (stddev^2 (l - 2)) with
  m = cols, l = dimension. The probability is over an input of independent
  N(0, stddev^2), not over the mechanism, which adds no noise: for two given
  inputs and a public hash, epsilon is infinite. Source: FedSKETCH, Theorem 1,
  after Li, Liu, Sekar and Smith, arXiv:1911.00972; it needs a <= 1/2 - 1/alpha.
  """
  if dimension <= max(cols, 2):
    raise ValueError(f'{dimension=} must be > max(cols={cols}, 2).')
  a = alpha * (max_value / stddev) ** 2 * cols * (cols - 1) / (dimension - 2)
  a *= 1 + math.log(dimension - cols)
  if not a <= 0.5 - 1 / alpha:
    raise ValueError(f'a={a:.4g} must be <= 1/2 - 1/alpha={0.5 - 1 / alpha}.')
  warnings.warn(
    'This is NOT differential privacy: it assumes a distribution of the input.',
    UserWarning,
    stacklevel=3,
  )
  return rows * math.log1p(a)
