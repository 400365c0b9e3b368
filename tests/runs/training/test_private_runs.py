"""Private runs from config to files: what they report, hide and reject."""

import dataclasses
import functools
import json
import shutil

from cases import ALGORITHMS, HP, KEY, SECRET, cohort, jit, start
import chex
from fl_sketch import accounting, rounds, runs
from fl_sketch.accounting import types
from fl_sketch.rounds import keys as keys_lib, mesh as mesh_lib
from fl_sketch.runs import log, noise_secret, same_run
from harness import DP, SMALL, rows
import jax
import jax.numpy as jnp
import numpy as np
from own_problem import PRIVATE as OWN, build
import pytest

PRIVATE = SMALL | DP | {
  'model': 'linear', 'model_options': None, 'sampling': 'poisson',
  'noise_multiplier': 2.0, 'delta': 1e-2,
}  # fmt: skip
SAMPLES = {
  'algorithm': 'private_iterative_sketching', 'sampling': 'fixed_size',
  'sketch': {'kind': 'block_cyclic', 'size': 100}, 'batch_order': 'poisson',
}  # fmt: skip


def train(folder, extend=False, **fields):
  exp = runs.build(PRIVATE | fields)
  return runs.train(exp, folder, progress=False, extend=extend)


def summary(folder):
  return json.loads((folder / 'summary.json').read_text())


def clients(steps):
  """The mechanism of `PRIVATE`, whose max_cohort is the population."""
  drawn = types.Sampling.POISSON, 4 / 6, 6, 6
  return types.GaussianMechanism(2.0, steps, *drawn)


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


@pytest.mark.representatives('not logged')
@pytest.mark.parametrize('way', ['logged', 'not logged', 'forgotten'])
def test_without_its_secret_a_run_does_not_go_on(way, cut):
  """Also where its checkpoint alone shows that rounds are done."""
  if way == 'not logged':
    (cut / 'metrics.jsonl').write_text('')
  before = (cut / 'metrics.jsonl').read_bytes()
  if way == 'forgotten':  # of a finished run that is trained longer
    noise_secret.forget(cut)
  else:
    shutil.rmtree(cut / 'secret')
  rounds = 6 if way == 'forgotten' else 4
  refused = pytest.raises(noise_secret.SecretError)
  with refused, pytest.warns(UserWarning, match='secret'):
    train(cut, rounds=rounds, extend=True)
  assert (cut / 'metrics.jsonl').read_bytes() == before


def test_a_finished_run_needs_no_secret(whole, tmp_path):
  """Catches a start that asks for what may be deleted after the last round."""
  folder, result = whole
  shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
  shutil.rmtree(tmp_path / 'secret')
  with pytest.warns(UserWarning, match='secret'):
    again = train(tmp_path)
  chex.assert_trees_all_equal(again.state, result.state)
  assert not (tmp_path / 'secret').exists()


def test_no_published_file_holds_the_secret(whole):
  """Catches a key in a checkpoint, a config or a summary."""
  folder, result = whole
  exp = runs.build(PRIVATE)
  roots = noise_secret.of_run(
    exp.config, same_run.problem_of(exp), folder, resumed=True
  )
  keys = [roots.noise_key]
  for r in range(4):
    keys += keys_lib.noise_keys(roots.noise_key, r)
  words = [np.asarray(jax.random.key_data(key)) for key in keys]
  entropy = (folder / 'secret' / 'entropy').read_bytes()
  secrets = [entropy, roots.sampling_seed, *(x.tobytes() for x in words)]
  secrets = [x[:8] for x in secrets]  # a part of each is enough
  texts = [str(x.tolist()).encode() for x in words]
  texts += [form for x in secrets for form in written(x)]
  paths = [p for p in folder.rglob('*') if p.is_file()]
  paths = [p for p in paths if p.parent.name != 'secret']
  assert len(paths) > 10
  for path in paths:
    content = path.read_bytes()
    assert not any(trace in content for trace in secrets + texts), path
  # Files of checkpoints are compressed; these are the values in them.
  for leaf in jax.tree.leaves(jax.device_get(result.state)):
    bits = np.ascontiguousarray(leaf).tobytes()
    assert not any(trace in bits for trace in secrets)


def written(secret):
  """The texts that a file may have of eight bytes: hexadecimal, a number."""
  numbers = (int.from_bytes(secret, order) for order in ('little', 'big'))
  return [secret.hex().encode(), *(str(n).encode() for n in numbers)]


@pytest.mark.nightly
def test_private_samples_are_those_of_the_smallest_client():
  """Catches a guarantee for the mean client: the smallest is the worst."""
  exp = runs.build(PRIVATE | SAMPLES | {'partition': 'size_skew'})
  mechanism, statement = exp.guarantee.mechanism, exp.guarantee.statement
  share = 8 / exp.partition.sizes.min()
  # The probability that a batch is cut is far below delta.
  want = types.GaussianMechanism(
    2.0, 4 * 2, types.Sampling.POISSON, share, unit='sample'
  )
  for name in 'unit', 'steps', 'sampling_probability':
    assert getattr(mechanism, name) == getattr(want, name)
  assert statement.trust == 'local'
  assert statement.units == exp.partition.sizes.sum()
  assert statement.epsilon == pytest.approx(epsilon_of(want), rel=1e-3)


@pytest.mark.parametrize('name', ['noise_multiplier', 'client_lr'])
def test_hyperparameters_are_those_of_the_config(name):
  """Catches a noise or a rate that no file of the run tells."""
  exp = build(OWN)
  assert log.epsilons_by_round(exp)
  hyper = exp.hyper._replace(**{name: np.float32(0.01)})
  with pytest.raises(ValueError, match='hyperparameters'):
    log.epsilons_by_round(exp._replace(hyper=hyper))


jitted = functools.cache(lambda *args: jit(rounds.run_round(*args)))


def played(name, clients):
  make, mesh = ALGORITHMS[name].make, mesh_lib.cohort_mesh()
  state = start(make, mesh)
  return jitted(make, mesh)(HP, state, clients, KEY, None, SECRET)


def spoiled(clients, slots, value):
  """The cohort with `value` in all batches of the clients in `slots`."""

  def spoil(x):
    x = np.array(x)
    x[list(slots)] = value
    return x

  return clients._replace(batches=jax.tree.map(spoil, clients.batches))


@pytest.mark.representatives('dp_fedavg_local')
@pytest.mark.parametrize('name', ['dp_fedavg', 'dp_fedavg_local'])
def test_nonsense_counts_as_an_update_of_zero(name):
  """Batches of zeros have a gradient of 0 where the parameters are 0."""
  clients = cohort(absent=0, size=4)
  clients = clients._replace(weight=np.ones(4, np.float32))
  state, metrics = played(name, spoiled(clients, [1, 3], np.nan))
  expected, _ = played(name, spoiled(clients, [1, 3], 0.0))
  chex.assert_trees_all_equal(state.params, expected.params)
  assert metrics['rejected_clients'] == 2
  assert metrics['participants'] == 2
  assert bool(metrics['finite'])


def test_a_cohort_of_nonsense_leaves_its_noise_and_does_not_stop_the_run():
  clients = cohort(absent=0, size=4)
  nonsense = spoiled(clients, range(4), np.inf)
  state, metrics = played('dp_fedavg_local', nonsense)
  assert jnp.abs(state.params['w']).min() > 0
  one = {k: v.item() for k, v in jax.device_get(metrics).items()}
  exp = runs.build(SMALL)
  private = exp._replace(guarantee='some')
  assert log._not_finite(exp, nonsense, one) == 'all updates'
  assert log._not_finite(private, nonsense, one) is None
