"""The privacy statements of Song et al., section 6 and appendix H.

Song, Wang, Yu and Zhang, arXiv:2210.08371. None of them is how a budget should
be computed: `accounting` is exact.
"""

import math
from typing import Annotated

from fl_sketch import accounting

from ...common import conditions, privacy_bounds as bounds
from ...common.conditions import Count, Form, Fraction, Positive
from ...common.statements import statement

parallel = statement('S0-H2', 'Lemma H.2', printed='holds')(
  accounting.parallel_composition
)
composition = statement('S0-H3', 'Lemma H.3', printed='holds')(
  bounds.advanced_composition
)
mechanism = statement('S0-H7', 'Lemma H.7', printed='wrong')(
  bounds.gaussian_mechanism_sigma
)


@statement('S0-H4', 'Lemma H.4', printed='holds', corrected='holds')
def amplification(
  epsilon: float, delta: float, q: float, *, form: Form = 'corrected'
) -> tuple[float, float]:
  """(epsilon, delta) of a step on the share q: 'h4', corrected 'tight'.

  Of `privacy_bounds.subsample_amplification`.

  >>> round(amplification(1.0, 1e-5, 0.2, form='printed')[0], 3)
  1.2
  """
  own = 'h4' if form == 'printed' else 'tight'
  return bounds.subsample_amplification(epsilon, delta, q, form=own)


@statement('S0-H8', 'Lemma H.8', printed='wrong', corrected='holds')
def mean_sensitivity(
  lipschitz: Positive,
  batch: Count,
  *,
  relation: Annotated[
    str, conditions.choice(('add_remove', 'replace_one'))
  ] = 'replace_one',
  form: Form = 'corrected',
) -> float:
  """The l2 sensitivity of a batch's sum of gradients over `batch`.

  Printed l_c for an l_c-Lipschitz f_c, which bounds the length of the mean, not
  what one sample moves. Corrected, for gradients that are clipped to l_c each:
  l_c / batch (add/remove), twice that (replace-one).

  >>> mean_sensitivity(1.0, batch=4), mean_sensitivity(1.0, 4, form='printed')
  (0.5, 1.0)
  """
  if form == 'printed':
    return lipschitz
  return (1 + (relation == 'replace_one')) * lipschitz / batch


@statement('S0-6.1', 'Lemma 6.1 = H.9', printed='wrong', corrected='holds')
def local_epsilon(
  epsilon_hat: Positive,
  delta_hat: Fraction,
  steps: Count,
  *,
  delta_slack: Fraction = 1e-6,
  form: Form = 'corrected',
) -> tuple[float, float]:
  """`total_epsilon` of one round: sqrt(K) epsilon_hat, corrected Lemma H.3.

  >>> local_epsilon(0.125, 1e-8, steps=16, form='printed')
  (0.5, 1.6e-07)
  """
  return total_epsilon(
    epsilon_hat, delta_hat, steps, 1, delta_slack=delta_slack, form=form
  )


@statement('S0-6.2', 'Theorem 6.2 = H.11', printed='wrong', corrected='holds')
def total_epsilon(
  epsilon_hat: Positive,
  delta_hat: Fraction,
  steps: Count,
  rounds: Count,
  *,
  delta_slack: Fraction = 1e-6,
  form: Form = 'corrected',
) -> tuple[float, float]:
  """(epsilon, delta) of T rounds of K steps, each (epsilon_hat, delta_hat).

  Printed sqrt(T K) epsilon_hat, T K delta_hat up to constants, of which none
  will do: two terms of Lemma H.3 are missing. Corrected, Lemma H.3, with its
  `delta_slack`. Clients' data are disjoint: it is the epsilon of all of them.

  >>> total_epsilon(0.125, 1e-8, steps=4, rounds=16, form='printed')
  (1.0, 6.4e-07)
  """
  k = steps * rounds
  if form == 'printed':
    return math.sqrt(k) * epsilon_hat, k * delta_hat
  return bounds.advanced_composition(
    epsilon_hat, delta_hat, k, delta_slack=delta_slack
  )
