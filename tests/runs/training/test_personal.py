"""Clients evaluate what they make of the model by steps of their own."""

from fl_sketch import runs
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.runs import caveats, client_metrics, metrics, sampler
import harness
import jax
import numpy as np
import pytest

from tests.runs.training.test_client_metrics import check, evaluated

pytestmark = pytest.mark.xdist_group('training')
FIELDS = harness.SMALL | {
  'model': 'linear', 'model_options': None, 'standardize': False,
  'partition': 'size_skew', 'sigma': 2.0, 'population': 23, 'cohort': 4,
  'client_holdout': 0.3, 'personal_steps': 3, 'client_lr': 0.5,
}  # fmt: skip


def of_personal(exp, devices=1):
  mesh = mesh_lib.cohort_mesh(devices)
  found = evaluated(exp, mesh)
  return {k: v for k, v in found.items() if k.startswith('personal_')}


def log_probabilities(w, x):
  logits = x @ w['kernel'] + w['bias']
  logits = logits - logits.max(1, keepdims=True)
  return logits - np.log(np.exp(logits).sum(1, keepdims=True))


def by_numpy(exp, lr, steps, decay=0.0):
  """Softmax regression of each client, then its loss on what it holds out."""
  image = lambda index: exp.data['x'][index].reshape(len(index), -1) / 255.0
  sums = {'loss': [], 'accuracy': [], 'count': []}
  for i in np.flatnonzero(exp.held_out.sizes):
    drawn = sampler.personal_batches(exp.config, exp.partition, np.array([i]))
    w = jax.tree.map(np.float64, exp.params['dense'])
    for k in range(steps):
      index = drawn[0, k % drawn.shape[1]]
      index = index[index >= 0]
      if not len(index):
        continue
      x, y = image(index), exp.data['y'][index]
      away = np.exp(log_probabilities(w, x))
      away[np.arange(len(y)), y] -= 1
      grad = {'kernel': x.T @ away / len(y), 'bias': away.mean(0)}
      w = {k: w[k] - lr * (grad[k] + decay * w[k]) for k in w}
    index = exp.held_out.client(i)
    logs, y = log_probabilities(w, image(index)), exp.data['y'][index]
    sums['loss'].append(-logs[np.arange(len(y)), y].sum())
    sums['accuracy'].append((logs.argmax(1) == y).sum())
    sums['count'].append(len(y))
  return {k: np.array(v, float) for k, v in sums.items()}


@pytest.mark.representatives('full')
@pytest.mark.parametrize('fields', [
  {},
  {'batch_order': 'mask', 'batch_size': 5},
  {'batch_size': 0},
  {'personal_lr': 0.05, 'weight_decay': 0.1},
], ids=['replace', 'mask', 'full', 'rate'])  # fmt: skip
def test_own_steps_are_those_of_a_numpy_loop(fields):
  """Catches steps on held-out samples, and on those of another client."""
  exp = runs.build(FIELDS | fields)
  c = exp.config
  want = by_numpy(exp, c.personal_lr or c.client_lr, 3, c.weight_decay)
  assert 5 < len(want['count']) < 23
  check(of_personal(exp), want, 'personal')


@pytest.mark.representatives('2-1-1')
@pytest.mark.parametrize(
  ('devices', 'lanes', 'most'), [(2, 0, 4000), (1, 3, 700), (2, 1, 1)]
)
def test_own_steps_depend_on_no_device_or_chunk(
  devices, lanes, most, monkeypatch
):
  """Catches a lane that is lost or doubled, and a part of a large client."""
  exp = runs.build(FIELDS | {'clients_per_step': lanes})
  want = by_numpy(exp, 0.5, 3)
  # Parts of what a client holds out; chunks of clients.
  monkeypatch.setattr(client_metrics.problem, 'EVAL_BATCH', 7)
  monkeypatch.setattr(client_metrics, '_most', lambda exp: most)
  assert want['count'].max() > 14
  check(of_personal(exp, devices), want, 'personal')


def test_tokens_are_pooled_over_all_clients():
  """Catches a mean of perplexities in place of that of all tokens."""
  losses = np.array([2.0, 9.0, 0.0])
  sums = {'loss': losses, 'perplexity': losses, 'count': np.array([4, 3, 0])}
  found = metrics.over_clients(sums)
  assert found['client_perplexity_pooled'] == pytest.approx(np.exp(11 / 7))
  assert found['client_loss_mean'] == pytest.approx((2 / 4 + 9 / 3) / 2)


@pytest.mark.parametrize('kind', ['all', 'hidden', 'private'])
def test_a_private_run_leaves_them_out_as_it_says(kind):
  """Catches statistics of clients without noise, and without a caveat."""
  exp = runs.build(FIELDS | harness.DP | {'public_metrics': kind})
  mesh = mesh_lib.cohort_mesh(1)
  found = evaluated(exp, mesh)
  columns, _, _ = caveats.published(exp.config, False, False)
  assert bool(found) == (kind == 'all')
  assert ('personal_*' in columns) == (kind == 'all')


@pytest.mark.nightly
def test_each_client_draws_by_itself():
  """Catches dropout that is the same on all clients."""

  def metrics_fn(params, batch):
    count = batch['mask'].sum()
    value = params if isinstance(params, jax.Array) else 0.0
    return {'loss': value * count, 'count': count}

  exp = runs.build(FIELDS)._replace(
    personalize=lambda hp, params, batches, key: jax.random.uniform(key),
    metrics_fn=metrics_fn,
  )
  found = of_personal(exp)
  assert 0 < found['personal_loss_q10'] < found['personal_loss_q90'] < 1
