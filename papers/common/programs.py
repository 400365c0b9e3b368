"""Rounds of an algorithm as a part of a larger program."""

from collections.abc import Callable
from typing import Any

from fl_sketch import rounds
import numpy as np


def everybody(make: rounds.Make, clients: int) -> Callable[..., Any]:
  """Build begin(hyperparameters, key, params) -> state, step.

  step(state, batches) is a round of all clients, of equal weights: it returns
  the state after it, and the metrics. The key is that of all rounds.
  """
  round_fn = rounds.run_round(make, rounds.cohort_mesh(1))
  ids, weights = np.arange(clients), np.ones(clients, np.float32)

  def begin(hp, key, params):
    cohort = lambda batches: rounds.Cohort(ids, weights, batches)
    step = lambda state, batches: round_fn(hp, state, cohort(batches), key)
    return rounds.init(make(hp), params, clients), step

  return begin
