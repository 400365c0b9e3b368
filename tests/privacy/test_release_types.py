"""What a private program releases: refused by list, or counted."""

import inspect
import re

import cases
import clean_programs as clean
from fl_sketch import runs
from fl_sketch.privacy import noninterference
from fl_sketch.utils import plugins
import pytest
import release_leaks

from tests.privacy.test_noninterference import (
  check as check_round,
  check_line,
  refused,
)
from tests.runs.training.test_private_runs import PRIVATE


def check(fn, outputs='public'):
  """Checks a function whose arguments are of `release_leaks.ARGS`."""
  kinds, args = zip(
    *(release_leaks.ARGS[name] for name in inspect.signature(fn).parameters),
    strict=True,
  )
  return noninterference.check(
    fn, *args, inputs=kinds, outputs=outputs, name='This'
  )


@pytest.mark.representatives(
  'N2-once-difference', 'N2-once-branch', 'N2-steps-scan',
  'N2-steps-half_index', 'N3-length-while', 'N4-bound-median',
  'N4-multiplier-count', 'N5-rows-centred', 'N5-rows-carried',
  'N2-steps-sum_of_indices', 'N5-again-repeated', 'N6-sum-weighted',
  'N6-sum-twice', 'N6-sum-halves', 'N6-noise-masked',
  'N6-noise-one_number', 'N7-rows-reversed', 'N7-rows-gram',
  'N9-rows-key', 'N9-key-one_bit',
)  # fmt: skip
@pytest.mark.parametrize('name', release_leaks.CALLS)
def test_a_leaking_function_is_refused_with_its_line(name):
  """Catches a rule that types a value as a release, or as of one client."""
  fn, match, outputs = release_leaks.CALLS[name]
  with refused(match) as error:
    check(fn, outputs)
  check_line(error, fn)


@pytest.mark.representatives(
  'sorted', 'halves_joined', 'mapped_in_batches', 'reference',
  'public_matrix', 'outer', 'scanned',
)  # fmt: skip
@pytest.mark.parametrize('name', clean.ROWS)
def test_a_function_of_rows_passes(name):
  """Catches a rule that loses the axis of clients."""
  fn = clean.ROWS[name]
  both = lambda s, key: (fn(s), release_leaks.add(key, fn(s)))
  assert check(both, ('client', 'public')) == 1


@pytest.mark.representatives(
  'folds', 'scan', 'carried_key', 'lane_by_lane', 'released_scale', 'sgd',
)  # fmt: skip
@pytest.mark.parametrize('name', clean.CALLS)
def test_a_clean_function_has_its_releases(name):
  """Catches clean functions refused, and loops that count once."""
  fn, count = clean.CALLS[name]
  key = name in clean.KEY_RESULTS
  assert check(fn, ('public', 'noise') if key else 'public') == count


@pytest.mark.representatives(
  'plain', 'two_means', 'kept_error', 'over_realised_cohort'
)
@pytest.mark.parametrize('name', clean.ROUNDS)
def test_a_clean_round_has_its_releases(name):
  """Catches models, bounds and trusts that the walk refuses."""
  made = clean.ROUNDS[name]()
  cohort = cases.cohorts_of(made.make)(0)
  if made.batches is not None:
    cohort = cohort._replace(batches=made.batches)
  args = made.make, cases.HP, cohort, made.params
  assert check_round(*args, trust=made.trust) == made.releases


CLOSED = """
from fl_sketch import algorithms
from fl_sketch.privacy.mechanisms import private_mean
from fl_sketch.rounds import federated, transforms
import jax
import jax.numpy as jnp
import numpy as np
import optax

EVERYBODY = np.ones((40, 3), np.float32)


@algorithms.register
def closed(task, hp, *, privacy: private_mean.PrivateMean):
  '''Local work that reads an array of all clients.'''
  steps = task.steps(hp)

  def work(*args):
    moved, metrics = steps(*args)
    center = jnp.asarray(EVERYBODY).mean()
    return jax.tree.map(lambda x: x - center, moved), metrics

  down = transforms.broadcast()
  return federated(work, privacy.uplink(), down, optax.scale(-1.0))
"""


@pytest.mark.usefixtures('own_parts')
def test_arrays_that_a_program_closes_over_are_named(tmp_path):
  """Catches clients' data in a closure (N10) that no statement mentions."""
  (tmp_path / 'closed.py').write_text(CLOSED)
  plugins.load(str(tmp_path / 'closed.py'))
  exp = runs.build(PRIVATE | {'algorithm': 'closed'})
  caveats = ' '.join(exp.guarantee.statement.caveats)
  assert re.search(r'closes over .*float32.*40, ?3', caveats), caveats
