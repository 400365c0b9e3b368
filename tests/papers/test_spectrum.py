"""Spectra against dense matrices; statistics at less than 1e-6 false alarms."""

import json
from unittest import mock

from fl_sketch import runs
from fl_sketch.models import losses
from fl_sketch.runs import problem as problem_lib
from harness import SMALL
import jax
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
from launch import configs
import numpy as np
from papers.chen.curvature import during_training, spectrum, spectrum_report
import pytest
from scipy import stats

KEY = jax.random.key(7)
D, PROBES = 24, 64  # few pairs of steps and probes, as each is compiled
BOUND = stats.t.isf(0.5e-7, PROBES - 1)  # of Student's t, at 1e-7
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


@pytest.mark.parametrize('power', [1, 2, 3])
def test_moments_agree_with_the_truth(power):
  lanczos = slq(WIDE).trace_of(lambda x: x**power)
  assert abs(lanczos.value - (WIDE**power).sum()) < BOUND * lanczos.error
  # And the errors are of use: of the size that theory gives them.
  if power == 1:
    expected = (2 * np.sum((WIDE - WIDE.mean()) ** 2) / PROBES) ** 0.5
    assert 0.3 * expected < lanczos.error < 3 * expected


def test_intrinsic_dimensions():
  assert slq(np.full(D, 2.0)).intrinsic_dimension == pytest.approx(D)
  signs = np.repeat([-3.0, 3.0], D // 2)
  assert slq(signs).intrinsic_dimension == pytest.approx(D)
  geometric = 0.6 ** np.arange(D)[::-1]
  estimate = slq(geometric)
  error = estimate.trace_of(np.abs).error  # lambda_max is 1
  assert abs(estimate.intrinsic_dimension - geometric.sum()) < BOUND * error


def test_an_exact_power_law_is_found():
  values = 3 * np.arange(1.0, 51) ** -0.8
  law = spectrum.power_law(np.random.default_rng(0).permutation(values))
  assert law.exponent == pytest.approx(0.8)
  assert law.r_squared == pytest.approx(1)
  assert spectrum.power_law(np.exp(-np.arange(50.0))).r_squared < 0.9
  with pytest.raises(ValueError, match='3 eigenvalues'):
    spectrum.power_law(np.array([2, 1, 0]))


OPTIONS = during_training.Options(lanczos_steps=12, probes=2, top=5, samples=70)
FIELDS = SMALL | {'model': 'linear', 'model_options': None, 'eval_every': 4}


def run(folder, every=2, options=OPTIONS, **fields):
  return during_training.run(
    FIELDS | fields, str(folder), every=every, options=options, progress=False
  )


@pytest.fixture(scope='module')
def watched(tmp_path_factory):
  """A folder with the spectra of rounds 0, 2 and 4, and its rows."""
  folder = tmp_path_factory.mktemp('spectra')
  return folder, run(folder)


def test_every_other_round_has_its_spectrum(watched):
  folder, rows = watched
  assert [row['round'] for row in rows] == [0, 2, 4]
  record = json.loads((folder / 'spectrum.json').read_text())
  assert record['spectra'] == rows
  assert record['options'] == OPTIONS._asdict()
  assert (folder / 'spectrum.md').read_text() == spectrum_report.table(rows)
  assert (folder / 'spectrum.png').stat().st_size > 10_000
  for row in rows:
    assert -1e-4 < row['lambda_min'] < row['eigenvalues'][-1]  # it is convex
    assert row['eigenvalues'][0] <= row['lambda_max']
    assert len(row['eigenvalues']) == 5
    assert np.shape(row['nodes']) == np.shape(row['weights']) == (2, 12)
    assert 1 <= row['intrinsic_dimension'] <= row['dimension'] == 650
    assert 0 <= row['near_zero'] <= 1


@pytest.mark.long
def test_the_last_spectrum_is_that_of_the_trained_model(watched):
  folder, rows = watched
  exp = runs.build(FIELDS)
  batches = during_training._sampled(exp, OPTIONS.samples)
  assert batches['x'].shape == (2, 50, 8, 8, 1)
  assert batches['mask'].sum() == 70
  last = runs.train(exp, str(folder), progress=False).state.params
  loss_fn = problem_lib.load(exp.config, None).loss_fn
  problem = loss_fn, jax.device_get(last), batches, jax.random.key(0)
  nodes = spectrum.slq(*problem, steps=12, probes=2).nodes
  np.testing.assert_allclose(nodes, rows[-1]['nodes'], rtol=1e-5)


@pytest.mark.long
def test_started_again_it_takes_only_what_is_missing(watched, monkeypatch):
  folder, rows = watched
  slq = mock.Mock(wraps=spectrum.slq)
  monkeypatch.setattr(spectrum, 'slq', slq)
  assert run(folder) == rows
  assert slq.call_count == 0
  path = folder / 'spectrum.json'
  record = json.loads(path.read_text())
  record['spectra'].pop(1)  # as if it had been stopped before
  path.write_text(json.dumps(record))
  assert run(folder) == rows
  assert slq.call_count == 1
  longer = run(folder, rounds=6)
  assert longer[:3] == rows
  assert [row['round'] for row in longer] == [0, 2, 4, 6]
  assert slq.call_count == 2


def test_a_private_run_has_no_spectrum(tmp_path):
  """Catches a spectrum of the clients' data beside a guarantee."""
  private = configs.load('das_quadratics').get_config('quick').to_dict()
  with pytest.raises(ValueError, match='private'):
    run(tmp_path, every=10, **private)
  assert not list(tmp_path.iterdir())
