"""Clients are evaluated on what they hold out, and never train on it."""

import math

import fl_sketch
from fl_sketch import runs
from fl_sketch.data import partitions
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.runs import caveats, client_metrics, log
import harness
from hypothesis import given, settings, strategies as st
import jax
import numpy as np
import pytest

pytestmark = pytest.mark.xdist_group('training')
FIELDS = harness.SAFL | {
  'partition': 'size_skew', 'sigma': 2.5, 'population': 30,
  'client_holdout': 0.3,
}  # fmt: skip


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
  st.lists(st.integers(1, 40), min_size=1, max_size=8), st.floats(0.01, 0.99),
  st.booleans(), st.integers(0, 9),
)  # fmt: skip
def test_a_split_loses_no_sample_and_leaves_each_client_one(
  sizes, share, indices, seed
):
  """Catches a sample in both parts or in none, and a client without any."""
  offsets = np.concatenate([[0], np.cumsum(sizes)])
  order = np.random.default_rng(0).permutation(offsets[-1])
  p = partitions.Partition(order if indices else None, offsets)
  rest, held = partitions.hold_out(p, share, seed)
  for i, size in enumerate(sizes):
    both = [*rest.client(i), *held.client(i)]
    assert sorted(both) == sorted(p.client(i))
    assert held.sizes[i] == min(round(share * size), size - 1)


def test_a_split_takes_any_place_at_the_same_rate():
  """Catches the first samples of a client; false alarms are below 1e-6."""
  p = partitions.Partition(None, np.array([0, 500]))
  held = [partitions.hold_out(p, 0.3, seed)[1].client(0) for seed in range(9)]
  first = np.mean([(part < 250).sum() / 250 for part in held])
  assert abs(first - 0.3) < 5 * (0.3 * 0.7 / (9 * 250)) ** 0.5
  assert len({part.tobytes() for part in held}) == 9


@pytest.mark.parametrize(
  'fields',
  [{}, {'batch_order': 'cycle'}, {'batch_order': 'mask'}, {'batch_size': 0}],
  ids=['replace', 'cycle', 'mask', 'full'],
)
def test_no_client_trains_on_what_it_holds_out(fields):
  """Catches batches that are drawn from the whole partition."""
  exp = runs.build(FIELDS | fields)
  drawn = {i for r in range(30) for i in exp.sample(r).batches.ravel().tolist()}
  assert len(drawn) > 100
  assert drawn.isdisjoint(exp.held_out.indices.tolist())


def evaluated(exp, mesh):
  """The metrics of clients, of the first model."""
  of_clients = client_metrics.evaluator(log.metrics_of(exp), exp, mesh)
  return of_clients((exp.params, exp.hyper))


def by_hand(exp, params):
  """The metrics of each client that holds out a sample, one after another."""
  values, metrics_fn = [], jax.jit(exp.metrics_fn)
  for i in np.flatnonzero(exp.held_out.sizes):
    ids = exp.held_out.client(i)
    batch = {k: x[np.resize(ids, 500)] for k, x in exp.held_data.items()}
    sums = metrics_fn(params, batch | {'mask': np.arange(500) < len(ids)})
    values.append({k: float(v) for k, v in sums.items()})
  return {k: np.array([v[k] for v in values]) for k in values[0]}


@pytest.mark.parametrize(('devices', 'most'), [(1, 4000), (2, 70)])
def test_metrics_are_those_of_each_client_alone(
  devices, most, monkeypatch, tmp_path
):
  """Catches a sample of a neighbour, padding, a chunk that counts twice."""
  monkeypatch.setattr(client_metrics, '_most', lambda exp: most)
  exp = runs.build(FIELDS)
  np.save(tmp_path / 'x.npy', exp.data['x'])
  mapped = exp.data | {'x': np.load(tmp_path / 'x.npy', mmap_mode='r')}
  metrics = evaluated(exp._replace(data=mapped), mesh_lib.cohort_mesh(devices))
  assert 1 < len(np.flatnonzero(exp.held_out.sizes)) < 30
  check(metrics, by_hand(exp, exp.params), 'client')


def check(found, sums, prefix):
  """Compares statistics over clients with those of sums of each client."""
  count, names = sums['count'], sums.keys() - {'count'}
  assert {n for n in found if n.startswith(prefix)} == {
    f'{prefix}_{name}_{how}'
    for name in names
    for how in ('mean', 'pooled', 'worst_decile', 'q10', 'q50', 'q90')
  }
  for name in names:
    values = np.sort(sums[name] / count)
    worst = math.ceil(len(values) / 10)
    worst = values[:worst] if name == 'accuracy' else values[-worst:]
    expected = {'mean': values.mean(), 'worst_decile': worst.mean()}
    expected |= {f'q{q}': np.quantile(values, q / 100) for q in (10, 50, 90)}
    expected['pooled'] = sums[name].sum() / count.sum()
    for how, value in expected.items():
      got = found[f'{prefix}_{name}_{how}']
      assert got == pytest.approx(value, rel=1e-5), (name, how)


def test_the_account_is_of_the_samples_that_are_trained_on():
  """Catches an epsilon of more samples than clients train on."""
  fields = FIELDS | harness.DP | {
    'algorithm': 'private_iterative_sketching', 'batch_order': 'poisson',
    'batch_size': 4, 'partition': 'iid', 'sigma': None, 'server_lr': 1.0,
    'rounds': 1,
  }  # fmt: skip
  exp = runs.build(fields)
  mechanism, least = exp.guarantee.mechanism, exp.partition.smallest
  assert mechanism.population == least < len(exp.data['y']) // 30
  assert mechanism.sampling_probability == 4 / least
  # Nor does the guarantee seem to cover metrics of clients.
  assert 'client_*' in caveats.published(exp.config, False, False)[0]


@pytest.mark.nightly
def test_processes_evaluate_their_shares_together(tmp_path):
  """Catches sums of one process, and a best that two of them write."""
  flags = [
    '--config.rounds_per_dispatch=1', '--config.rounds=4',
    '--config.eval_every=2', '--config.checkpoint_every=4',
    '--config.client_holdout=0.2', '--config.keep_best=client_loss_mean',
    '--config.personal_steps=2',
  ]  # fmt: skip
  one, two = tmp_path / 'one', tmp_path / 'two'
  harness.finish_all(harness.launch_all(two, 2, *flags))
  harness.finish(harness.launch(one, *flags, '--cpu_devices=2'))
  for ours, theirs in zip(harness.rows(one), harness.rows(two), strict=True):
    assert ours.keys() == theirs.keys()
    for name in ours:
      if name.startswith(('client_', 'personal_')):
        assert ours[name] == pytest.approx(theirs[name], rel=1e-4)
  assert fl_sketch.load(two, best=True).round == 4
