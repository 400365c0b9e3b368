"""Textbook lemmas of the papers' privacy proofs: valid but loose."""

import math
from typing import Annotated

from fl_sketch.utils import checks

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
    checks.refuse(f'Expected epsilon={epsilon} <= 1, where it is proven.')
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
      checks.refuse(f"Expected epsilon={epsilon} <= 1 for form='h3'.")
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
    checks.refuse(f'Expected q={q} <= {bound} for {form=}.')
  if form == 'tight':
    return math.log1p(q * math.expm1(epsilon)), q * delta
  if epsilon > 1:
    checks.refuse(f'Expected epsilon={epsilon} <= 1 for {form=}.')
  return 6 * q * epsilon, 4 * q * math.exp(6 * q * epsilon) * delta
