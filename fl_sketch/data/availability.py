"""Simulate over-selection, dropouts, stragglers and byzantine clients.

A server selects more clients than the cohort (over-selection) and takes the
first that answer. The work of stragglers, which answer later, is lost; dropouts
never answer. Every draw is a pure function of (seed, round, client).
"""

from typing import Any

from fl_sketch.rounds import fates
from fl_sketch.utils import checks, seeding
from fl_sketch.utils.types import Key, Params
import jax
import jax.numpy as jnp
import numpy as np
import optax


def selected(cohort: int, over_sampling: float) -> int:
  """Return how many clients the server selects for a cohort."""
  return checks.ceil(cohort * over_sampling)


def in_force(config: Any) -> bool:
  """Return whether a config has dropouts, a deadline or over-selection."""
  losses = config.dropout > 0 or config.deadline is not None
  return losses or config.over_sampling > 1


def outcomes(
  seed: int,
  round: int,
  ids: np.ndarray,
  present: np.ndarray,
  *,
  cohort: int | None = None,
  dropout: float = 0.0,
  deadline: float | None = None,
  sigma: float = 1.0,
) -> np.ndarray:
  """Draw the outcome of each client of ids int[C], int8[C].

  >>> ids = np.arange(5)
  >>> outcomes(0, 0, ids, ids < 4, cohort=2).tolist()
  [1, 2, 2, 1, 0]

  Codes are those of `fates`. An id with `present`, bool[C], False is padding
  and not selected. The round ends after `cohort` answers (None: all) or at the
  `deadline`, in medians of `response_times`; `dropout` is the probability that
  a client never answers. With sigma=0 the first answers are a random choice.

  Source: over-selection by 30 % and a deadline are those of Bonawitz et al.,
    MLSys 2019, arXiv:1902.01046; the distribution of the times is ours.
  """
  draw = lambda tag: _uniform(seed, tag, round, ids)
  answers = present & (draw('dropout') >= dropout)
  times = response_times(seed, round, ids, sigma)
  participates = answers & (times <= (np.inf if deadline is None else deadline))
  if cohort is not None:
    order = np.lexsort((draw('tie'), times, ~participates))
    participates[order[cohort:]] = False
  codes = [fates.PARTICIPATED, fates.STRAGGLER, fates.DROPPED_OUT]
  conditions = [participates, answers, present]
  return np.select(conditions, codes, fates.NOT_SELECTED).astype(np.int8)


def response_times(
  seed: int, round: int, ids: np.ndarray, sigma: float
) -> np.ndarray:
  r"""Draw the response time of each client, f64[C], in medians.

  :math:`\exp(\sigma (a_i + b_{i, r}) / \sqrt2)` with standard normal a and b:
  half the variance of the logarithm is the client's in every round, so that
  slow clients stay slow; half is drawn in every round.
  """
  client = _normal(seed, 'speed of a client', 0, ids)
  of_round = _normal(seed, 'speed in a round', round, ids)
  return np.exp(sigma * (client + of_round) / np.sqrt(2))


def _normal(seed, tag, round, ids):
  # Box and Muller's transform of two uniform draws.
  radius = np.sqrt(-2 * np.log(_uniform(seed, f'{tag}, radius', round, ids)))
  angle = 2 * np.pi * _uniform(seed, f'{tag}, angle', round, ids)
  return radius * np.cos(angle)


def _uniform(seed, tag, round, ids):
  """Uniform draws from the open interval (0, 1), f64[C]."""
  root = int(seeding.generator(seed, tag).integers(2**63))
  bits = seeding.fold(seeding.fold(root, round), ids) >> np.uint64(11)
  return (bits + 0.5) * 2.0**-53


def byzantine_clients(seed: int, population: int, share: float) -> np.ndarray:
  """Draw round(share x population) byzantine clients, True in bool[population].

  Those of a smaller share are among those of a larger one.
  """
  # The tag is part of the draw: it keeps its name, so that runs do not change.
  rank = seeding.generator(seed, 'hostile').permutation(population)
  return rank < round(share * population)


def sign_flip(update: Params, key: Key) -> Params:
  """Multiply the update by -10: Damaskinos et al., ICML 2018."""
  return optax.tree.scale(-10.0, update)


def scale(update: Params, key: Key) -> Params:
  """Multiply the update by 1e12."""
  return optax.tree.scale(1e12, update)


def noise(update: Params, key: Key) -> Params:
  """Return Gaussian noise of standard deviation 200 in place of the update.

  Source: Blanchard et al., NeurIPS 2017, arXiv:1703.02757.
  """
  z = optax.tree.random_like(key, update, jax.random.normal)
  return optax.tree.scale(200.0, z)


def nan(update: Params, key: Key) -> Params:
  """Return NaN in place of the update; every round rejects it."""
  return jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), update)


BEHAVIOURS = {send.__name__: send for send in (sign_flip, noise, scale, nan)}
