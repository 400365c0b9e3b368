"""Certificates of private runs: their checker accepts them, and no others."""

import dataclasses
import json
import random
import shutil
import subprocess
import sys

import cases
from certificate_changes import CHANGES
from fl_sketch import accounting, rounds, runs
from fl_sketch.accounting import types
from fl_sketch.privacy import check_certificate as checker, noninterference
from fl_sketch.privacy.noninterference import certificate, proof
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.runs import experiment
from fl_sketch.runs.program import program
import harness
import jax
import pytest

from tests.privacy.test_noninterference import CONFIGS, TABLE
from tests.runs.training.test_private_runs import PRIVATE, SAMPLES, train

FULL = {'sampling': 'fixed_size', 'cohort': 6}
# What a config adds to the private run of tests/runs.
SETTINGS = {
  name: fields | {'algorithm': name} for name, fields in CONFIGS.items()
} | {
  'poisson': {}, 'full': FULL, 'samples': SAMPLES | {'delta': 1e-4},
  'replace one': {'adjacency': 'replace_one'},
  'zero out': {'adjacency': 'zero_out'},
  'full, replace one': FULL | {'adjacency': 'replace_one'},
  'truncated': {'max_cohort': 5, 'adjacency': 'zero_out'},
  'fixed size': {'sampling': 'fixed_size', 'noise_multiplier': 4.0},
  'random allocation': {
    'sampling': 'random_allocation', 'cohort': 3, 'epoch_rounds': 2,
  },
  'cyclic': {'sampling': 'cyclic', 'cohort': 2},
  'banded': FULL | {'noise': 'banded'},
  'secure aggregation': FULL | {
    'trust': 'secure_aggregation', 'min_honest': 4,
  },
  'local': FULL | {'trust': 'local'}, 'rdp': {'accountant': 'rdp'},
  'quantile': {'bound': 'quantile', 'count_stddev': 4.0},
  'per layer': {'per_layer': True}, 'seed': {'noise_seed': 3},
  'private metrics': {'public_metrics': 'private'},
  'no noise': {'noise_multiplier': 0.0},
  'calibrated': {'noise_multiplier': None, 'epsilon': 2.0},
  'dispatches': {'rounds_per_dispatch': 2}, 'steps': {'clients_per_step': 1},
  'normalize': TABLE | {'algorithm': 'safl', 'bound': 'quantile',
                        'count_stddev': 4.0},
}  # fmt: skip
TRUSTS = {'dp_fedavg_local': 'local', 'dp_fedavg_masked': 'secure_aggregation'}
# Ten runs whose epsilon the checker computes.
MUTATED = (
  'poisson', 'full', 'samples', 'safl', 'replace one', 'truncated', 'banded',
  'local', 'quantile', 'dispatches',
)  # fmt: skip


def of_config(name):
  """The certificate of a config's own program on two devices."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(experiment, 'proved', lambda exp: exp)
    exp = runs.build(PRIVATE | SETTINGS[name])
  run = program(exp, mesh_lib.cohort_mesh(2))
  return experiment.certificate_of(exp, run.fn, *run.args)


def of_case(name):
  """The certificate of one round of a case of which everybody takes part."""
  case, found = cases.ALGORITHMS[name], []
  cohort, params = cases.cohorts_of(case.make)(0), cases.params_of(case.make)
  init = lambda p: rounds.init(case.make(cases.HP), p, cases.POPULATION)
  fn = rounds.run_round(case.make, mesh_lib.cohort_mesh(2), skip_absent=True)
  unit = 'sample' if name == 'private_iterative_sketching' else 'client'
  args = cases.HP, jax.eval_shape(init, params), cohort, cases.KEY, None
  given = {'unit': unit, 'metrics': True, 'proved': found.append}
  given['trust'] = TRUSTS.get(name, 'central')
  noninterference.check_round(fn, *args, cases.SECRET, **given)
  proved = found[0]._replace(hyper=proof.numbers_of(cases.HP))
  account = {
    'rounds': 1, 'steps_per_round': 1, 'delta': 1e-2,
    'correlation': None, 'accountant': 'pld', 'noise': 'secret',
  }  # fmt: skip
  made = certificate.text(proved, algorithm=name, trust=given['trust'])
  cost = sum(
    x['times'] * x['honest'] / x['noise_multiplier'] ** 2
    for x in json.loads(made)['releases']
  )
  mechanism = types.GaussianMechanism(cost**-0.5, 1)
  account |= {
    'mechanism': types.plain(dataclasses.asdict(mechanism)),
    'noise_multiplier': cost**-0.5,
    'epsilon': accounting.compute_epsilon(mechanism, delta=1e-2),
  }
  return made.replace('{\n', f'{{\n"account": {json.dumps(account)},\n', 1)


@pytest.mark.representatives('dp_fedavg', 'private_safl')
@pytest.mark.parametrize(
  'name', [n for n, c in cases.ALGORITHMS.items() if c.make(cases.HP).releases]
)
def test_every_private_algorithm_is_checked(name):
  """Catches a rule of the checker that the walk has, or has otherwise."""
  assert checker.check(of_case(name)) == []


@pytest.mark.nightly
@pytest.mark.parametrize('name', SETTINGS)
def test_every_private_setting_is_checked(name):
  """Catches an account that the checker reads otherwise than the library."""
  text = of_config(name)
  assert checker.check(text) == []
  assert text == of_config(name), 'the same bytes for the same run'


def accepted(text, number):
  """Changes of a certificate that the checker accepts; none should be."""
  found = []
  for seed in range(number):
    c, r = json.loads(text), random.Random(seed)
    change = CHANGES[seed % len(CHANGES)]
    change(c, r)
    if not checker.check(json.dumps(c)):
      found.append((change.__name__, seed))
  return found


def test_a_changed_certificate_is_refused():
  """Catches a rule, a number or a count that the checker does not compare."""
  text = of_case('dp_fedavg')
  assert checker.check(text) == []
  assert accepted(text, len(CHANGES)) == []
  # Noise of the server is no noise of each client.
  assert checker.check(text.replace('"trust": "central"', '"trust": "local"'))


@pytest.mark.nightly
@pytest.mark.parametrize('name', MUTATED)
def test_fifty_changes_of_a_run_are_refused(name):
  """As above, over ten runs."""
  assert accepted(of_config(name), 50) == []


# Runs a file with its arguments, and looks at what it has loaded.
ALONE = """
import runpy, sys
sys.argv = sys.argv[1:]
try:
  runpy.run_path(sys.argv[0], run_name='__main__')
finally:
  assert not {'fl_sketch', 'jax', 'scipy'} & sys.modules.keys()
"""


def test_a_copy_of_the_checker_runs_alone(tmp_path):
  """Catches a checker that shares code with the library, or needs it."""
  copied = shutil.copy(checker.__file__, tmp_path)
  made = tmp_path / 'certificate.json'
  made.write_text(of_case('dp_fedavg'))
  command = [sys.executable, '-I', '-c', ALONE, copied, str(made)]
  done = subprocess.run(command, capture_output=True, text=True, check=False)
  assert done.returncode == 0, done.stderr
  assert done.stdout.endswith('The certificate holds.\n')
  made.write_text(made.read_text().replace('"times":1', '"times":2'))
  done = subprocess.run(command, capture_output=True, text=True, check=False)
  assert done.returncode == 1
  assert done.stdout.endswith('REFUSED\n')


@pytest.mark.nightly
def test_the_certificate_of_a_folder_is_checked(tmp_path):
  """Catches a run without its certificate, and one that was exchanged."""
  train(tmp_path)
  check = lambda: harness.command('privacy', str(tmp_path), '--check')
  assert check().stdout.endswith('The certificate holds.\n')
  path = tmp_path / certificate.NAME
  path.write_text(path.read_text().replace('"times":1', '"times": 1'))
  assert 'its SHA-256 differs' in check().stderr


P, TP = types.Sampling.POISSON, types.Sampling.TRUNCATED_POISSON
REPLACE, ZERO = types.Adjacency.REPLACE_ONE, types.Adjacency.ZERO_OUT
MECHANISMS = {
  'few steps': (2.0, 4, {'sampling': P, 'sampling_probability': 0.5}),
  'rare': (1.0, 100, {'sampling': P, 'sampling_probability': 0.01}),
  'many': (20.0, 10000, {'sampling': P, 'sampling_probability': 0.05}),
  'little noise': (0.6, 1000, {'sampling': P, 'sampling_probability': 0.01}),
  'replaced': (
    1.0, 50, {'sampling': P, 'sampling_probability': 0.02, 'adjacency': REPLACE}
  ),
  'cut off': (
    2.0, 20, {'sampling': TP, 'sampling_probability': 0.1, 'population': 100,
              'max_cohort': 15, 'adjacency': ZERO}),
  'coupled': (
    4.0, 20, {'sampling': TP, 'sampling_probability': 0.1, 'population': 100,
              'max_cohort': 50}),
  'full': (10.0, 300, {'adjacency': REPLACE, 'releases_per_step': 2}),
  'hardly any noise': (0.03, 1, {}),
}  # fmt: skip


@pytest.mark.representatives(
  *MECHANISMS.keys() - {'many', 'little noise', 'rare'}
)
@pytest.mark.parametrize('name', MECHANISMS)
def test_epsilon_is_that_of_the_library(name):
  """Catches an integral, or a truncation, that only one of them has."""
  z, steps, spec = MECHANISMS[name]
  mechanism = types.GaussianMechanism(z, steps, **spec)
  want = accounting.compute_epsilon(mechanism, delta=1e-5)
  plain = types.plain(dataclasses.asdict(mechanism))
  account = {'mechanism': plain, 'delta': 1e-5, 'accountant': 'pld'}
  low, high, _ = checker.epsilon_of(account)
  # The library rounds losses to cells, and never down.
  assert low * (1 - 1e-6) <= want <= high * (1 + 1e-5)
