"""Song et al.: ranges of the theorems, and the lemmas on every step of runs."""

import functools

import cases
import jax.numpy as jnp
import numpy as np
import paper_runs
from papers.song.statements import convergence as song, lemmas
import pytest
import quadratics
import song_problems as problems
from song_problems import OPERATORS, mean_and_error, operators, player

BOUNDS = {
  'E1': song.single_step_strongly_convex, 'E2': song.single_step_convex,
  'E3': song.single_step_nonconvex, 'F7': song.convex,
  'F9': song.strongly_convex, 'G2': song.nonconvex,
}  # fmt: skip
VALUES = {
  'alpha': 3.0, 'smoothness': 2.0, 'strong_convexity': 0.5, 'gap': 1.5,
  'distance_squared': 1.75, 'heterogeneity': 0.75, 'gradient_bound': 1.25,
  'local_steps': 5,
}  # fmt: skip
# The largest steps of these numbers, by hand.
LARGEST = {
  'E1': 1 / 8, 'E2': 1 / 16, 'E3': 1 / 8, 'F5': 1 / 80, 'F6': 1 / 8,
  'F7': 1 / 320, 'F9': 1 / 320, 'G1': 1 / 20, 'G2': 1 / 20,
}  # fmt: skip


@pytest.mark.parametrize('theorem', LARGEST)
def test_the_largest_steps_and_no_larger_ones_are_taken(theorem):
  """Catches a step of another theorem, and a bound that takes any step."""
  own = problems.accepted(song.largest_step, VALUES)
  largest = song.largest_step(theorem, **own)
  assert largest == pytest.approx(LARGEST[theorem])
  if bound := BOUNDS.get(theorem):
    own = problems.accepted(bound, VALUES)
    assert bound(9, client_lr=largest, **own) > 0
    with pytest.raises(ValueError, match='client_lr'):
      bound(9, client_lr=1.01 * largest, **own)


def test_constants_of_quadratics():
  rng = np.random.default_rng(0)
  factors = rng.standard_normal((3, 4, 4))
  hessians = factors @ factors.transpose(0, 2, 1)
  mu, smoothness = lemmas.quadratic_constants(hessians)
  x = rng.standard_normal((1000, 4))
  curved = np.einsum('ni,hij,nj->hn', x, hessians, x) / np.square(x).sum(1)
  assert mu <= curved.min() <= curved.max() <= smoothness
  assert lemmas.quadratic_constants(-hessians[:1] * 0)[0] == 0
  flat = factors[:, :, :1] @ factors[:, :, :1].transpose(0, 2, 1)
  assert lemmas.quadratic_constants(flat.astype(np.float32))[0] < 1e-5


STEPS = 4
LEMMAS = problems.ROUND, problems.UNLIKE, *problems.CONVEX[1:]
square = lambda x: np.square(x).sum(-1)


@functools.cache
def watched(operator, index):
  """A problem, its step size by Lemma F.5, averages of a run, f - f*."""
  problem = LEMMAS[index]
  client_lr = song.largest_step(
    'F5', smoothness=problem.smoothness, local_steps=STEPS
  )
  run = player(operator).play(problem, client_lr, 30, STEPS)
  averages = lemmas.averages(run.models, run.gradients, problem.optimum)
  return problem, client_lr, run, averages, problem.value(averages.model)


@operators
def test_lemmas_hold_in_every_step(operator):
  """And are met to a hundredth, so that none of them is loose."""
  most = np.zeros(3)
  for index in range(len(LEMMAS)):
    problem, client_lr, _, at, gap = watched(operator, index)
    number = {'smoothness': problem.smoothness}
    gradient = lemmas.mean_gradient_squared(at.variance, gap, **number)
    mu, offset = problem.strong_convexity, square(at.offset)
    inner = lemmas.inner_product(
      at.variance, gap, offset, strong_convexity=mu, **number
    )
    number |= {'heterogeneity': problem.constants()['heterogeneity']}
    number |= {'client_lr': client_lr, 'local_steps': STEPS}
    drift = lemmas.drift(gap.sum(1), **number)
    ratios = (
      square(at.gradient) / gradient,
      inner / (at.offset * at.gradient).sum(-1),
      at.variance.sum(1) / drift,
    )
    most = np.maximum(most, [ratio.max() for ratio in ratios])
  assert (0.01 < most).all()
  assert (most <= 1 + 1e-9).all()


def excess(operator, index, alpha):
  """What Lemma F.6 leaves over, as a part of the bound: f64[T, K, runs]."""
  problem, client_lr, run, at, gap = watched(operator, index)
  number = {'client_lr': client_lr, 'smoothness': problem.smoothness}
  sketched = np.zeros_like(gap)
  sketched[:, -1] = lemmas.sketching_error(
    at.variance.sum(1), gap.sum(1), alpha=alpha, local_steps=STEPS, **number
  )
  number |= {'strong_convexity': problem.strong_convexity}
  offset = square(at.offset)
  bound = lemmas.recursion(
    at.variance, gap, offset, sketched=sketched, **number
  )
  ends = square(run.params[1:] - problem.optimum)[:, None]
  after = np.concatenate([offset[:, 1:], ends], 1)
  return after / bound - 1


@operators
def test_recursion_holds_in_expectation(operator):
  """Within a round in every step; and not without what sketching adds."""
  alpha = player(operator).alpha
  for index in range(len(LEMMAS)):
    rest = excess(operator, index, alpha)
    assert rest[:, :-1].max() < 1e-9
    mean, error = mean_and_error(rest[:, -1].mean(0))
    assert -0.1 < mean < -error
  mean, error = mean_and_error(excess(operator, 0, 0.0)[:, -1].mean(0))
  assert mean > error


@operators
def test_updates_are_unified(operator):
  """Lemma F.2, and not with the operator of the round that follows."""
  _, client_lr, run, at, _ = watched(operator, 1)
  project = player(operator).project
  sums = at.gradient.sum(1)
  errors = []
  for shift in (0, 1):
    lost = np.zeros_like(at.model)
    lost[:, -1] = sums - [project(r + shift, x) for r, x in enumerate(sums)]
    after = lemmas.unified_update(
      at.model, at.gradient, client_lr=client_lr, lost=lost
    )
    want = np.concatenate([at.model[:, 1:], run.params[1:, None]], 1)
    errors.append(np.abs(after - want).max())
  assert errors[0] < 1e-6
  assert errors[1] > 0.1


STEPS_OF = {'gaussian': 3, 'count_sketch': 1, 'srht': 3, 'block_cyclic': 2}


@cases.by_name(STEPS_OF, {*STEPS_OF} - {'gaussian'}, 'operator')
def test_trajectories_are_those_of_the_algorithm(operator):
  local_steps, op = STEPS_OF[operator], OPERATORS[operator]
  like = {'w': jnp.zeros(quadratics.D)}
  cohort = quadratics.heterogeneous()
  options = {'local_steps': local_steps, 'server_lr': 0.3}
  state, gap = quadratics.play(
    'iterative_sketching', cohort, 6, sketch=op, **options
  )
  center, curvature = (x[:, 0, 0] for x in cohort.batches)
  gradients = lambda step, models: curvature * (models - center)
  project = paper_runs.projection(op, cases.KEY, like)
  options |= {'clients': quadratics.CLIENTS, 'rounds': 6}
  start = np.zeros(quadratics.D)
  run = paper_runs.iterative_sketching(
    gradients, project, start, client_lr=0.2, **options
  )
  np.testing.assert_allclose(run.params[-1], state.params['w'], atol=1e-5)
  want = np.linalg.norm(run.params[1:] - quadratics.BEST, axis=1)
  np.testing.assert_allclose(gap, want, atol=1e-5)
  assert np.abs(np.diff(want)).min() > 1e-3
