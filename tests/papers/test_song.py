"""Song's theorems as functions: their ranges, and what follows from what."""

import functools
import inspect
from typing import Any

from fl_sketch import sketches
import numpy as np
from papers.song import statements as song
from papers.song.statements import lemmas
import pytest

BOUNDS = {
  'E1': song.single_step_strongly_convex, 'E2': song.single_step_convex,
  'E3': song.single_step_nonconvex, 'F7': song.convex,
  'F9': song.strongly_convex, 'G2': song.nonconvex,
}  # fmt: skip
VALUES: dict[str, Any] = {
  'alpha': 3.0, 'smoothness': 2.0, 'strong_convexity': 0.5, 'gap': 1.5,
  'distance_squared': 1.75, 'heterogeneity': 0.75, 'gradient_bound': 1.25,
  'local_steps': 5,
}  # fmt: skip
# The largest steps of these numbers, by hand.
LARGEST = {
  'E1': 1 / 8, 'E2': 1 / 16, 'E3': 1 / 8, 'F5': 1 / 80, 'F6': 1 / 8,
  'F7': 1 / 320, 'F9': 1 / 320, 'G1': 1 / 20, 'G2': 1 / 20,
}  # fmt: skip
every = pytest.mark.parametrize('theorem', BOUNDS)


def setting(function, **changes):
  """Values for all that a bound asks for but the rounds."""
  values = VALUES | changes
  names = inspect.signature(function).parameters
  return {k: values[k] for k in names if k in values}


def largest(theorem, **changes):
  return song.largest_step(theorem, **setting(song.largest_step, **changes))


def bound(theorem, **changes):
  function = BOUNDS[theorem]
  changes = {'client_lr': largest(theorem)} | changes
  return functools.partial(function, **setting(function, **changes))


@pytest.mark.covers('S0-Thm5.3=F7')
@every
def test_steps_are_checked(theorem):
  client_lr = largest(theorem)
  assert bound(theorem)(9) > 0
  message = rf'client_lr=.* must be <= {client_lr}\.'
  with pytest.raises(ValueError, match=message):
    bound(theorem, client_lr=1.01 * client_lr)(9)


def test_largest_steps():
  assert {k: largest(k) for k in LARGEST} == pytest.approx(LARGEST)


@pytest.mark.covers('S0-Tab1')
@pytest.mark.parametrize('d', [64, 100])
def test_alpha_is_that_of_the_operators(d):
  operators = {
    'gaussian': sketches.gaussian(8),
    'srht': sketches.srht(8),
    'ams': sketches.ams(8),
    'count_sketch': sketches.count_sketch(1, 8, combine='mean'),
    'sparse_embedding': sketches.sparse_embedding(8, 4),
  }
  assert set(operators) == set(lemmas.OPERATORS)
  for name, op in operators.items():
    promises: Any = sketches.properties(op)
    exact = lemmas.alpha(name, d, 8)
    printed = lemmas.alpha(name, d, 8, form='printed')
    assert exact == pytest.approx(promises.alpha(d))
    of_table = 3 if name in ('gaussian', 'count_sketch') else 2
    assert printed == pytest.approx(of_table * d / 8)
    assert exact < printed < 4 * exact


@pytest.mark.covers('S0-Asm3.1')
def test_constants_of_quadratics():
  rng = np.random.default_rng(0)
  factors = rng.standard_normal((3, 4, 4))
  hessians = factors @ factors.transpose(0, 2, 1)
  mu, smoothness = lemmas.quadratic_constants(hessians)
  x = rng.standard_normal((1000, 4))
  for h in hessians:
    curvature = np.einsum('ni,ij,nj->n', x, h, x) / np.square(x).sum(1)
    assert mu <= curvature.min()
    assert curvature.max() <= smoothness
  assert lemmas.quadratic_constants(-hessians[:1] * 0)[0] == 0
  flat = factors[:, :, :1] @ factors[:, :, :1].transpose(0, 2, 1)
  assert lemmas.quadratic_constants(flat.astype(np.float32))[0] < 1e-5


@pytest.mark.covers('S0-Eq1')
def test_heterogeneity_is_a_mean_over_clients():
  gradients = np.array([[3.0, 4.0], [-3.0, -4.0], [0.0, 0.0]])
  assert lemmas.heterogeneity(gradients) == pytest.approx(50 / 3)
