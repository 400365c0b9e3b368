"""DeComFL, FedKSeed and Ferret: refusals, and sizes of layers."""

import cases
from fl_sketch.algorithms.ferret import allocate
from fl_sketch.rounds import aggregation, transforms
from fl_sketch.rounds.algorithm import RoundLocal, federated
from fl_sketch.runs.config import Config
import numpy as np
import pytest
from refusals import refused
from twins_language import shares

from tests.sketches.test_layerwise import water_level


@pytest.mark.nightly
def test_a_table_is_shared_by_norms_and_dimensions():
  """Catches shares that do not add up, and layers without a number."""
  rng = np.random.default_rng(0)

  def check(squares, dims, size):
    given = np.asarray(allocate(squares, dims, size))
    assert given.sum() == size
    assert given.min() >= 1
    assert (given <= dims + 1).all()  # where boundaries are rounded
    return given

  for _ in range(20):
    dims = rng.integers(1, 2000, 12)
    squares = rng.lognormal(0, 3, 12).astype(np.float32)
    size = int(rng.integers(12, dims.sum()))
    given = check(squares, dims, size)
    weights = np.sqrt(np.float64(squares) * dims)
    weights = np.maximum(weights / weights.max(), 1e-6)
    want = 1 + shares(weights, dims - 1, size - 12)
    assert np.abs(given - want).max() <= 1
    best = water_level(np.sqrt(squares * dims), dims, size)
    variance = lambda b, dims=dims, squares=squares: (dims * squares / b).sum()
    assert variance(given) <= 1.1 * variance(best)
  dims = np.array([5, 1, 300])
  zeros = np.zeros(3, np.float32)
  assert check(zeros, dims, 306).tolist() == [5, 1, 300]
  assert check(zeros, dims, 3).tolist() == [1, 1, 1]
  assert check(np.float32([1, 0, 0]), dims, 100)[0] == 5


def private_round_local():
  links = (
    aggregation.mean_over_cohort(privacy=cases.RELEASE.with_hyper(cases.HP)),
    transforms.broadcast(),
  )
  return federated(RoundLocal(lambda *_: None), *links)


test_slopes_have_no_privacy = refused(
  lambda call: call(),
  (lambda: Config(dataset='quadratics', algorithm='decomfl', epsilon=1.0),
    'decomfl'),
  (private_round_local, 'RoundLocal'),
)  # fmt: skip
