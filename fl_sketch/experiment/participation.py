"""Who takes part when, where a config fixes it: cyclic sampling, or everybody.

Then noise may be correlated over rounds, and no sampling amplifies privacy.
"""

from typing import Any

from fl_sketch.data import cohorts
from fl_sketch.privacy.accounting import correlation
from fl_sketch.privacy.accounting.correlation import Correlation

_BANDS = 16  # of noise that is correlated over rounds
_ORDER = (
  'The order in which clients take part is public, and supposed not to depend '
  'on any data or on who else is there.',
)


def correlation_of(c: Any) -> Correlation | None:
  """The correlation of a private config's noise over rounds, or None.

  That of independent noise under cyclic sampling says how often a client takes
  part.
  """
  apart = cohorts.groups(c.population, c.cohort)
  if c.noise == 'banded':
    rounds = c.hash_rounds or c.rounds
    weights = correlation.square_root(c.noise_bands or min(_BANDS, rounds))
    return Correlation(weights, rounds, apart)
  if c.sampling == 'cyclic':
    return Correlation((correlation.ONE,), 1, apart)
  return None


def expected_cohort(c: Any) -> float:
  """The mean size of the groups of cyclic sampling; else the cohort."""
  if c.sampling == 'cyclic':
    return c.population / cohorts.groups(c.population, c.cohort)
  return float(c.cohort)


def caveats(c: Any, over_rounds: Correlation | None) -> tuple[str, ...]:
  """Says when clients take part, and what a step of the account is."""
  if over_rounds is None:
    return ()
  apart, length = over_rounds.separation, min(over_rounds.rounds, c.rounds)
  often = 'every round' if apart == 1 else f'one of every {apart} rounds'
  text = f'A client takes part in {often}'
  if c.noise != 'banded':
    return (f'{text}: a step is such a round.', *_ORDER)
  return (
    f'{text}. Noise is correlated over {over_rounds.bands} rounds: a step is '
    f'an epoch of {length} rounds, in which a client moves what is released by '
    f'{over_rounds.sensitivity(length):.4g} times its bound at most.',
    *_ORDER,
  )
