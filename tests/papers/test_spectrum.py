"""Spectra against dense matrices; statistics at less than 1e-6 false alarms."""

from fl_sketch.models import losses
import jax
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
import numpy as np
from papers.chen.curvature import spectrum
import pytest
from scipy import stats

KEY = jax.random.key(7)
D, PROBES = 24, 64  # few pairs of steps and probes, as each is compiled
MULTIPLE = np.repeat([-2.0, 0.0, 1.0, 3.0, 10.0], [3, 12, 5, 3, 1])
WIDE = np.sort(np.concatenate([[-30.0, 100.0], np.linspace(-1, 1, D - 2)]))


def matrix_loss(params, batch):
  return jnp.mean(params @ batch['matrix'] @ params) / 2


def symmetric(eigenvalues):
  """A loss's arguments whose Hessian has these eigenvalues."""
  rng = np.random.default_rng(len(eigenvalues))
  basis, _ = np.linalg.qr(rng.standard_normal((len(eigenvalues),) * 2))
  matrix = (basis * eigenvalues) @ basis.T
  matrix = ((matrix + matrix.T) / 2).astype(np.float32)
  batches = {'matrix': matrix[None, None]}
  return matrix_loss, np.ones(len(matrix), np.float32), batches


def slq(eigenvalues, steps=D, probes=PROBES):
  args = symmetric(np.asarray(eigenvalues, np.float64))
  return spectrum.slq(*args, KEY, steps=steps, probes=probes)


def mlp_loss(params, batch):
  hidden = jnp.tanh(batch['x'] @ params['first'] + params['bias'][None])
  values = jnp.square(hidden @ params['last'] - batch['y']).sum(1)
  mask = losses.row_mask(batch, values)
  return losses.masked_sum(values, mask) / mask.sum()


def test_products_over_masked_batches_are_those_of_the_dense_hessian():
  """Catches batches that count alike, whatever their masks leave of them."""
  rng = np.random.default_rng(0)
  normal = lambda *shape: rng.standard_normal(shape).astype(np.float32)
  params = {'first': normal(3, 4), 'bias': normal(4), 'last': normal(4, 2)}
  batches = {'x': normal(3, 5, 3), 'y': normal(3, 5, 2)}
  mask = np.ones((3, 5), np.float32)
  mask[1, 2:] = mask[2] = 0
  rows = {k: x[mask > 0] for k, x in batches.items()}
  flat, unravel = ravel_pytree(params)
  full = jax.jit(jax.hessian(lambda w: mlp_loss(unravel(w), rows)))
  dense = np.asarray(full(flat))
  batches |= {'mask': mask}
  product = spectrum.hessian_vector_product(mlp_loss, params, batches)
  one = lambda v: ravel_pytree(product(unravel(v)))[0]
  estimate = jax.jit(lambda vs: jax.lax.map(one, vs))(jnp.eye(flat.size))
  np.testing.assert_allclose(estimate, dense, atol=1e-5 * np.abs(dense).max())


@pytest.mark.covers('S0-Asm3.1')
def test_few_steps_find_the_ends_and_know_how_far_they_are():
  args = symmetric(WIDE)
  values, errors = spectrum.slq(*args, KEY, steps=8).top(8)
  ends = values[[0, -1]]
  np.testing.assert_allclose(ends, [100, -30], rtol=1e-5)
  away = np.abs(values[:, None] - WIDE[None]).min(1)
  assert (away <= errors + 1e-4).all()
  assert errors[0] < 1e-3 < errors[3]


def interlaces(nodes, eigenvalues):
  """Cauchy: from either end the k-th node is inside the k-th eigenvalue."""
  m, slack = len(nodes), 1e-4 * np.abs(eigenvalues).max()
  high = nodes <= eigenvalues[len(eigenvalues) - m :] + slack
  return (high & (nodes >= eigenvalues[:m] - slack)).all()


@pytest.mark.parametrize(('steps', 'probes'), [(8, 1), (D, PROBES)])
def test_exhausted_directions_leave_neither_nan_nor_ghosts(steps, probes):
  estimate = slq(MULTIPLE, steps, probes)
  for nodes, weights in zip(estimate.nodes, estimate.weights, strict=True):
    assert interlaces(nodes, MULTIPLE)
    np.testing.assert_allclose(weights.sum(), 1)
    # The density is on the five eigenvalues, whatever has been added.
    nonzero = nodes[weights > 1e-6]
    assert np.abs(nonzero[:, None] - MULTIPLE[None]).min(1).max() < 1e-4
    assert len({*nonzero.round(2)}) == 5


def test_reorthogonalised_steps_leave_no_ghosts():
  """Without it, copies of the eigenvalue 10 break the interlacing."""
  eigenvalues = np.sort(np.append(0.7 ** np.arange(63), 10.0))
  assert interlaces(slq(eigenvalues, 40, 1).nodes[0], eigenvalues)


@pytest.mark.covers('S4-Fig5')
@pytest.mark.parametrize('power', [1, 2, 3])
def test_moments_agree_with_the_truth(power):
  """Student's t of 64 probes; 3 comparisons at 1e-7 each."""
  bound, true = stats.t.isf(0.5e-7, PROBES - 1), (WIDE**power).sum()
  lanczos = slq(WIDE).trace_of(lambda x: x**power)
  assert abs(lanczos.value - true) < bound * lanczos.error
  # And the errors are of use: of the size that theory gives them.
  if power == 1:
    expected = (2 * np.sum((WIDE - WIDE.mean()) ** 2) / PROBES) ** 0.5
    assert 0.3 * expected < lanczos.error < 3 * expected


@pytest.mark.covers('S4-Asm4, Def3.1')
def test_intrinsic_dimensions():
  assert slq(np.full(D, 2.0)).intrinsic_dimension == pytest.approx(D)
  signs = np.repeat([-3.0, 3.0], D // 2)
  assert slq(signs).intrinsic_dimension == pytest.approx(D)
  geometric = 0.6 ** np.arange(D)[::-1]
  estimate = slq(geometric)
  error = estimate.trace_of(np.abs).error  # lambda_max is 1
  bound = stats.t.isf(0.5e-7, PROBES - 1)
  assert abs(estimate.intrinsic_dimension - geometric.sum()) < bound * error


@pytest.mark.covers('S4-Fig4')
def test_an_exact_power_law_is_found():
  values = 3 * np.arange(1.0, 51) ** -0.8
  law = spectrum.power_law(np.random.default_rng(0).permutation(values))
  assert law.exponent == pytest.approx(0.8)
  assert law.r_squared == pytest.approx(1)
  assert spectrum.power_law(np.exp(-np.arange(50.0))).r_squared < 0.9
  with pytest.raises(ValueError, match='3 eigenvalues'):
    spectrum.power_law(np.array([2, 1, 0]))
