"""Caveats of statements: what they name, and where they stand."""

from fl_sketch import runs
from fl_sketch.data import partitions
from fl_sketch.runs import config
import numpy as np
import pytest

from tests.runs.training.test_private_runs import PRIVATE, SAMPLES

pytestmark = pytest.mark.usefixtures('unproven')
COUNT = {'sketch': {'kind': 'count_sketch', 'rows': 3, 'cols': 20}}
GATE = COUNT | {'algorithm': 'fedsketchgate', 'sampling': 'fixed_size'}
EVERYONE = {'sampling': 'fixed_size', 'cohort': 6, 'adjacency': 'zero_out'}
RESIDUALS = COUNT | {
  'algorithm': 'sketched_sgd', 'local_steps': 1, 'options': {'k': 5},
}  # fmt: skip


def text_of(**fields):
  c = config.Config.from_mapping(PRIVATE | fields)
  return ' '.join(runs.account(c).statement.caveats)


@pytest.mark.parametrize(('fields', 'said'), [
  (EVERYONE, False),
  (EVERYONE | GATE, True),
  (EVERYONE | GATE | {'adjacency': 'replace_one'}, False),
  (EVERYONE | RESIDUALS, True),
  (EVERYONE | {'weight_decay': 0.1}, True),
])  # fmt: skip
def test_zero_out_is_no_absent_client_where_clients_keep_something(
  fields, said
):
  """Catches a statement that a client without data is hidden by zero-out."""
  assert ('Zero-out is of the contribution' in text_of(**fields)) == said


def test_a_sample_has_no_control_variate():
  """Catches the caveat under example-level privacy, which it does not suit."""
  exp = runs.build(PRIVATE | SAMPLES | {'delta': 1e-3, 'weight_decay': 0.1})
  assert exp.guarantee.mechanism.adjacency.value == 'zero_out'
  caveats = ' '.join(exp.guarantee.statement.caveats)
  assert 'Zero-out' not in caveats


@pytest.mark.parametrize('kind', partitions.KINDS)
def test_partitions_by_label_are_those_that_labels_change(kind):
  """Catches a new partition that is drawn from the data of several clients."""
  labels = np.arange(24) % 3
  others = labels.copy()
  others[0] = 2
  population = 24 if kind == 'one_each' else 4
  p, q = (partitions.partition(kind, y, population) for y in (labels, others))
  same = np.array_equal(p.offsets, q.offsets)
  same &= np.array_equal(p.take(np.arange(24)), q.take(np.arange(24)))
  assert same == (kind not in partitions.BY_LABEL)
  fields = {'partition': kind}
  if kind == 'one_each':
    return
  told = f'partition={kind!r}' in text_of(**fields)
  assert told == (kind in partitions.BY_LABEL)


def test_a_statement_names_the_generator_of_a_secret():
  """Catches a run with a noise_seed that claims keys of 256 bits."""
  assert 'ChaCha20 with keys of 256 bits' in text_of()
  assert 'ChaCha20' not in text_of(noise_seed=0)
