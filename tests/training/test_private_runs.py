"""Private runs from config to files: what they report, and what they hide."""

import dataclasses
import functools
import itertools
import json
import shutil

import chex
from fl_sketch import experiment, sweeps, training
from fl_sketch.privacy import accounting
from fl_sketch.privacy.accounting import types
from fl_sketch.reporting import label_distribution, learning_curves
from fl_sketch.rounds import keys as keys_lib
from fl_sketch.training import identity, log, noise_secret, workdir
import jax
import numpy as np
import pytest
from runs import SMALL, rows

PRIVATE = SMALL | {
  'standardize': False,
  'algorithm': 'dp_fedavg',
  'model': 'linear',
  'model_options': None,
  'sampling': 'poisson',
  'noise_multiplier': 2.0,
  'clip_norm': 1.0,
  'delta': 1e-2,
}
SAMPLES = {
  'algorithm': 'private_iterative_sketching',
  'sampling': 'fixed_size',
  'sketch': {'kind': 'block_cyclic', 'size': 100},
  'batch_order': 'poisson',
}


@pytest.fixture(scope='module', autouse=True)
def quick():
  """Programs that are hardly optimised, and no pictures."""
  name = 'jax_disable_most_optimizations'
  before = jax.config.values[name]
  jax.config.update(name, True)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(learning_curves, 'draw_run', lambda *_: None)
    patch.setattr(label_distribution, 'draw', lambda *_, **__: 0)
    yield
  jax.config.update(name, before)


def train(folder, **fields):
  exp = experiment.build(PRIVATE | fields)
  return training.train(exp, folder, progress=False)


def weights(state):
  return np.asarray(state.params['dense']['kernel'])


def summary(folder):
  return json.loads((folder / 'summary.json').read_text())


def clients(steps, noise_multiplier=2.0):
  """The mechanism of `PRIVATE`, whose max_cohort is the population."""
  drawn = types.Sampling.POISSON, 4 / 6, 6, 6
  return types.GaussianMechanism(noise_multiplier, steps, *drawn)


epsilon_of = functools.partial(accounting.compute_epsilon, delta=1e-2)


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  """A run that was never stopped."""
  folder = tmp_path_factory.mktemp('whole')
  return folder, train(folder)


@pytest.fixture
def cut(whole, tmp_path):
  """The same run, killed after its first checkpoint."""
  shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
  shutil.rmtree(tmp_path / 'checkpoints' / '4')
  return tmp_path


def test_every_row_and_the_summary_tell_epsilon(whole):
  folder, _ = whole
  want = [epsilon_of(clients(steps)) for steps in (1, 2, 3, 4)]
  epsilons = [row['epsilon'] for row in rows(folder)]
  np.testing.assert_allclose(epsilons, want, rtol=1e-6)
  privacy = summary(folder)['privacy']
  assert privacy['epsilon'] == epsilons[-1]
  assert (privacy['delta'], privacy['trust']) == (1e-2, 'central')
  assert (privacy['accountant'], privacy['noise']) == ('pld', 'secret')
  assert privacy['mechanism'] == types.plain(dataclasses.asdict(clients(4)))
  assert privacy['mechanism']['sampling'] == types.Sampling.POISSON.value


def test_noise_is_calibrated_to_an_epsilon_and_its_rounds(tmp_path):
  fields = {'epsilon': 3.0, 'noise_multiplier': None, 'cohort': 6}
  fields |= {'sampling': 'fixed_size', 'rounds': 2}
  exp = experiment.build(PRIVATE | fields)
  want = accounting.gaussian_noise_multiplier(3.0, delta=1e-2, steps=2)
  np.testing.assert_allclose(exp.hyper.noise_multiplier, want, rtol=1e-3)
  assert 2.99 < exp.guarantee.statement.epsilon <= 3
  files = workdir.Workdir(tmp_path, exp.config, identity.of(exp))
  files.begin(0)
  files.close()
  with pytest.raises(workdir.WorkdirError, match='rounds: 2 then, 4 now'):
    train(tmp_path, **fields | {'rounds': 4})


@pytest.mark.nightly
def test_a_resumed_run_is_the_run_that_was_never_stopped(whole, cut):
  folder, result = whole
  chex.assert_trees_all_equal(train(cut).state, result.state)
  assert rows(cut) == rows(folder)
  assert summary(cut)['privacy'] == summary(folder)['privacy']


@pytest.mark.nightly
def test_more_rounds_of_the_same_noise_cost_more(whole, cut):
  train(cut, rounds=6)
  records = rows(cut)
  assert records[:4] == rows(whole[0])
  assert records[5]['epsilon'] > records[3]['epsilon']
  epsilon = summary(cut)['privacy']['epsilon']
  assert epsilon == pytest.approx(epsilon_of(clients(6)))


def test_without_its_secret_a_run_does_not_go_on(cut):
  before = (cut / 'metrics.jsonl').read_bytes()
  shutil.rmtree(cut / 'secret')
  with pytest.raises(noise_secret.SecretError, match='is missing'):
    train(cut)
  assert (cut / 'metrics.jsonl').read_bytes() == before


def test_a_finished_run_needs_no_secret(whole, tmp_path):
  """Catches a start that asks for what may be deleted after the last round."""
  folder, result = whole
  shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
  shutil.rmtree(tmp_path / 'secret')
  again = train(tmp_path)
  chex.assert_trees_all_equal(again.state, result.state)
  assert not (tmp_path / 'secret').exists()


def forms(number, size):
  """The ways to write a number in a file."""
  raw = [number.to_bytes(size, order) for order in ('little', 'big')]
  return [*raw, *(x.hex().encode() for x in raw), str(number).encode()]


def eights(content):
  return [content[i : i + 8] for i in range(0, len(content), 8)]


def traces(kept, entropy):
  """The ways to write a secret, and the noise keys of its rounds."""
  pieces, numbers, texts, seed = eights(entropy), [], [], kept.sampling_seed
  if isinstance(seed, bytes):
    pieces += eights(seed)
  else:
    numbers.append(seed)
  rounds_of_keys = (keys_lib.noise_keys(kept.noise_key, r) for r in range(4))
  for key in (kept.noise_key, *itertools.chain(*rounds_of_keys)):
    words = np.asarray(jax.random.key_data(key))
    texts.append(str(words.tolist()).encode())
    pieces += [*eights(words.tobytes()), *eights(words[::-1].tobytes())]
  numbers += [int.from_bytes(piece, 'little') for piece in pieces]
  return [*texts, *(text for x in numbers for text in forms(x, 8))]


def test_no_published_file_holds_the_secret(whole):
  """Catches a key in a checkpoint, a config or a summary."""
  folder, result = whole
  entropy = (folder / 'secret' / 'entropy').read_bytes()
  exp = experiment.build(PRIVATE)
  of_run = functools.partial(noise_secret.of_run, exp.config, identity.of(exp))
  kept = of_run(folder, resumed=True)
  secrets = traces(kept, entropy)
  assert any(trace in entropy for trace in secrets)  # the search finds it
  searched = 0
  for path in folder.rglob('*'):
    if path.is_file() and path.parent.name != 'secret':
      content = path.read_bytes()
      assert not any(trace in content for trace in secrets), path
      searched += 1
  assert searched > 10
  # Files of checkpoints are compressed; these are the values in them.
  keys = kept.noise_key, keys_lib.noise_keys(kept.noise_key, 0).server
  data = [np.asarray(jax.random.key_data(key)) for key in keys]
  secrets += [x[: 1 + len(x) // 8].tobytes() for x in data]  # 2 words of 8
  for leaf in jax.tree.leaves(jax.device_get(result.state)):
    bits = np.ascontiguousarray(leaf).tobytes()
    assert not any(trace in bits for trace in secrets)


@pytest.mark.nightly
def test_only_a_noise_seed_makes_a_run_reproducible(whole, tmp_path):
  """Also if a dispatch has two rounds."""
  again = train(tmp_path / 'again')
  one = train(tmp_path / 'one', noise_seed=3)
  two = train(tmp_path / 'two', noise_seed=3, rounds_per_dispatch=2)
  chex.assert_trees_all_close(one.state, two.state, atol=1e-6)
  for name in ('epsilon', 'participants'):
    each = [[row[name] for row in rows(tmp_path / x)] for x in ('one', 'two')]
    assert each[0] == each[1]
  for other in (whole[1], one):
    away = np.abs(weights(again.state) - weights(other.state))
    assert away.max() > 0.1
  assert not (tmp_path / 'one' / 'secret').exists()
  privacy = summary(tmp_path / 'one')['privacy']
  assert privacy['noise'] == 'reproducible: not private'


@pytest.mark.nightly
@pytest.mark.covers('S0-Alg2 = Alg3')
def test_private_samples_from_config_to_summary(tmp_path):
  """The worst client is the smallest: every step draws each of its samples."""
  result = train(tmp_path, **SAMPLES, partition='size_skew')
  assert np.isfinite(result.row['test_loss'])
  exp = experiment.build(PRIVATE | SAMPLES | {'partition': 'size_skew'})
  smallest = int(exp.partition.sizes.min())
  privacy = summary(tmp_path)['privacy']
  assert (privacy['trust'], privacy['mechanism']['unit']) == ('local', 'sample')
  assert privacy['mechanism']['steps'] == 4 * 2
  assert privacy['mechanism']['sampling_probability'] == 8 / smallest
  # The probability that a batch is cut is far below delta.
  poisson = types.GaussianMechanism(
    2.0, 8, types.Sampling.POISSON, 8 / smallest, unit='sample'
  )
  assert privacy['epsilon'] == pytest.approx(epsilon_of(poisson), rel=1e-3)


@pytest.mark.long
def test_every_point_of_a_sweep_has_its_noise_and_its_epsilon(tmp_path):
  """Vmapped points equal looped ones, under one secret."""
  multipliers = (2.0, 2.0001, 4.0)
  fields = PRIVATE | {'rounds': 2, 'server_lr': 10.0}
  fields |= {'sweep': {'noise_multiplier': multipliers}}

  def play(name, points_per_program):
    options = {'points_per_program': points_per_program, 'progress': False}
    return sweeps.run(fields, tmp_path / name, **options)

  turns = play('turns', 1)
  kept = [tmp_path / name / 'secret' for name in ('turns', 'at_once')]
  shutil.copytree(*kept)
  at_once = play('at_once', 3)
  for z, row, other in zip(multipliers, turns, at_once, strict=True):
    want = epsilon_of(clients(2, noise_multiplier=z))
    assert row['epsilon'] == other['epsilon'] == pytest.approx(want)
    assert row['test_loss'] == pytest.approx(other['test_loss'], rel=1e-4)
  first, near, _ = (row['test_loss'] for row in turns)
  assert abs(first - near) > 0.01  # not the size alone, which does 3e-4


def test_zero_noise_is_reported_as_no_privacy():
  exp = experiment.build(PRIVATE | {'noise_multiplier': 0.0, 'rounds': 2})
  assert log.epsilons_by_round(exp) == ['inf', 'inf']
  assert exp.guarantee.statement.as_dict()['epsilon'] == 'inf'


@pytest.mark.nightly
def test_nor_does_a_run_that_has_logged_no_round(tmp_path):
  """A checkpoint alone shows that rounds are done."""
  never = {'log_every': 100, 'eval_every': 100, 'checkpoint_every': 2}
  whole = train(tmp_path, **never, rounds=4)
  assert whole.finished
  metrics = tmp_path / 'metrics.jsonl'
  metrics.write_text('')
  shutil.rmtree(tmp_path / 'secret')
  with pytest.raises(noise_secret.SecretError, match='is missing'):
    train(tmp_path, **never, rounds=6)


@pytest.mark.nightly
def test_a_resumed_run_has_the_noise_of_earlier_rounds(tmp_path):
  """Catches noise that is in a state, which a checkpoint would lose."""
  fields = {'sampling': 'cyclic', 'cohort': 2, 'noise': 'banded'}
  fields |= {'noise_bands': 3}
  result = train(tmp_path / 'whole', **fields)
  shutil.copytree(tmp_path / 'whole', tmp_path / 'cut')
  shutil.rmtree(tmp_path / 'cut' / 'checkpoints' / '4')
  again = train(tmp_path / 'cut', **fields)
  chex.assert_trees_all_equal(again.state, result.state)
  assert rows(tmp_path / 'cut') == rows(tmp_path / 'whole')
  # The grid is made for the rounds of the run.
  with pytest.raises(workdir.WorkdirError, match='rounds: 4 then, 6 now'):
    train(tmp_path / 'cut', **fields, rounds=6)
