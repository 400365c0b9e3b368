"""Simulates over-selection, dropouts, stragglers and byzantine clients.

A cross-device server selects more clients than the cohort (over-selection),
takes the first that answer and closes the round. A client that answers later is
a straggler, whose work is lost; one that never answers is a dropout. Every draw
is a pure function of (seed, round, client), and none depends on data. Byzantine
clients send other updates than their own.
"""

from collections.abc import Callable
from typing import Any

from fl_sketch.utils import checks, seeding
import jax
import jax.numpy as jnp
import numpy as np
import optax

NOT_SELECTED, PARTICIPATED, STRAGGLER, DROPPED_OUT = range(4)
# (pseudo-gradient, key) -> the update that a byzantine client sends.
Behaviour = Callable[[Any, jax.Array], Any]


def selected(cohort: int, over_sampling: float) -> int:
  """Number of clients that the server selects for a cohort (over-selection).

  >>> selected(100, 1.3)
  130
  """
  return checks.ceil(cohort * over_sampling)


def in_force(c: Any) -> bool:
  """Whether the config simulates dropouts, deadlines or over-selection."""
  return c.over_sampling > 1 or c.dropout > 0 or c.deadline is not None


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
  """Draws the outcome of each client: participated, straggler or dropout.

  >>> ids = np.arange(5)
  >>> outcomes(0, 0, ids, ids < 4, cohort=2).tolist()
  [1, 2, 2, 1, 0]

  Of ids int[C] it is int8[C] of `PARTICIPATED`, `STRAGGLER`, `DROPPED_OUT`, and
  `NOT_SELECTED` where `present`, bool[C], marks padding by False. `cohort` is
  the number of answers that closes the round, None waits for all; `dropout` the
  chance that a client never answers, each round anew; `deadline` when the round
  is closed at the latest, in medians of `response_times`, None for no deadline.
  For `sigma` see `response_times`; if it is 0 the first are a random choice.

  Source: over-selection by 30 % and a deadline are those of
    Bonawitz et al., MLSys 2019, arXiv:1902.01046; the law of the times is ours.
  """
  draw = lambda tag: _uniform(seed, tag, round, ids)
  answers = present & (draw('dropout') >= dropout)
  times = response_times(seed, round, ids, sigma)
  participates = answers & (times <= (np.inf if deadline is None else deadline))
  if cohort is not None:
    order = np.lexsort((draw('tie'), times, ~participates))
    participates[order[cohort:]] = False
  codes = [PARTICIPATED, STRAGGLER, DROPPED_OUT]
  conditions = [participates, answers, present]
  return np.select(conditions, codes, NOT_SELECTED).astype(np.int8)


def response_times(
  seed: int, round: int, ids: np.ndarray, sigma: float
) -> np.ndarray:
  r"""Draws the response time of each client, f64[C], in medians.

  :math:`\exp(\sigma (a_i + b_{i, r}) / \sqrt2)` with standard normal a and b:
  half the variance of the logarithm belongs to the client and is the same in
  every round, so that slow clients stay slow; half is drawn in every round.

  >>> response_times(0, 0, np.arange(3), sigma=0.0).tolist()
  [1.0, 1.0, 1.0]
  """
  client = _normal(seed, 'speed of a client', 0, ids)
  of_round = _normal(seed, 'speed in a round', round, ids)
  return np.exp(sigma * (client + of_round) / np.sqrt(2))


def _normal(seed, tag, round, ids):
  """Standard normal draws: Box and Muller's transform of two uniform ones."""
  radius = np.sqrt(-2 * np.log(_uniform(seed, f'{tag}, radius', round, ids)))
  angle = 2 * np.pi * _uniform(seed, f'{tag}, angle', round, ids)
  return radius * np.cos(angle)


def _uniform(seed, tag, round, ids):
  """Uniform draws from the open interval (0, 1), f64[C]."""
  root = int(seeding.generator(seed, tag).integers(2**63))
  bits = seeding.fold(seeding.fold(root, round), ids) >> np.uint64(11)
  return (bits + 0.5) * 2.0**-53


def byzantine_clients(seed: int, population: int, share: float) -> np.ndarray:
  """Draws the byzantine clients of a run: round(share x population) of them.

  True in bool[population]. Those of a smaller share are among a larger one's.

  >>> int(byzantine_clients(0, population=10, share=0.2).sum())
  2
  """
  # The tag is part of the draw: it keeps its name, so that runs do not change.
  rank = seeding.generator(seed, 'hostile').permutation(population)
  return rank < round(share * population)


def sign_flip(moved: Any, key: jax.Array) -> Any:
  """Multiplies the pseudo-gradient by -10: Damaskinos et al., ICML 2018."""
  return _scaled(moved, -10.0)


def scale(moved: Any, key: jax.Array) -> Any:
  """Multiplies a client's pseudo-gradient by 1e12."""
  return _scaled(moved, 1e12)


def noise(moved: Any, key: jax.Array) -> Any:
  """Replaces the update by Gaussian noise of standard deviation 200.

  Source: Blanchard et al., NeurIPS 2017, arXiv:1703.02757.
  """
  return _scaled(optax.tree.random_like(key, moved, jax.random.normal), 200.0)


def nan(moved: Any, key: jax.Array) -> Any:
  """Replaces the update by NaN; every round rejects non-finite updates."""
  return jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), moved)


BEHAVIOURS = {send.__name__: send for send in (sign_flip, noise, scale, nan)}


def _scaled(tree, factor):
  return jax.tree.map(lambda x: (x * factor).astype(x.dtype), tree)
