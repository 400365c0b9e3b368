"""Private configs that mean nothing, and caveats of the others."""

from fl_sketch import runs
from fl_sketch.data import partitions
from fl_sketch.runs import config
import numpy as np
import pytest

from tests.runs.training.test_private_runs import PRIVATE, SAMPLES

FIXED = {'sampling': 'fixed_size'}  # four of six
ALLOCATED = {'sampling': 'random_allocation', 'cohort': 3}  # of six
QUANTILE = {'bound': 'quantile'}
MASKED = FIXED | {'trust': 'secure_aggregation'}
NOISY = {'public_metrics': 'private'}
COUNT = {'sketch': {'kind': 'count_sketch', 'rows': 3, 'cols': 20}}
GATE = COUNT | {'algorithm': 'fedsketchgate', 'sampling': 'fixed_size'}
STATE = FIXED | COUNT | {
  'algorithm': 'sketched_sgd', 'local_steps': 1, 'options': {'k': 5},
}  # fmt: skip


@pytest.mark.parametrize(('fields', 'name'), [
  ({'epsilon': 1.0}, 'epsilon'),
  ({'delta': None}, 'delta'),
  ({'clip_norm': None}, 'clip_norm'),
  ({'weights': 'samples'}, 'weights'),
  ({'sampling': 'with_replacement'}, 'sampling'),
  ({'algorithm': 'scaffold'}, 'algorithm'),
  # Its variates add up to 0 where the mean is over those who take part.
  (COUNT | {'algorithm': 'fedsketchgate'}, 'fedsketchgate'),
  (GATE | {'cohort': 6, 'dropout': 0.1}, 'fedsketchgate'),
  ({'bound': 'normalize'}, 'bound'),
  ({'standardize': True}, 'standardize'),
  # What an adversary sees.
  ({'trust': 'secure_aggregation'}, 'sampling'),
  (ALLOCATED | {'trust': 'local'}, 'trust'),
  (FIXED | {'adjacency': 'add_or_remove_one'}, 'adjacency'),
  (FIXED | {'accountant': 'pld'}, 'accountant'),
  (ALLOCATED | {'adjacency': 'replace_one'}, 'accountant'),
  (MASKED | {'min_honest': 5}, 'min_honest'),
  (MASKED | {'neighbours': 3}, 'neighbours'),
  (STATE, 'sketched_sgd'),
  # Noise of another size than the account's.
  (QUANTILE, 'noise_multiplier'),
  (QUANTILE | {'count_stddev': 3.0, 'dropout': 0.1}, 'bound'),
  ({'trust': 'local', 'deadline': 1.0}, 'deadline'),
  ({'max_payload_norm': 1.0}, 'max_payload_norm'),
  # Steps of a client, and metrics.
  ({'batch_order': 'poisson'}, 'batch_order'),
  (SAMPLES | {'batch_order': 'replace'}, 'batch_order'),
  (SAMPLES | {'batch_size': 10**4}, 'batch_size'),
  (SAMPLES | {'trust': 'local'}, 'trust'),
  (NOISY | MASKED, 'public_metrics'),
  (NOISY | SAMPLES, 'public_metrics'),
])  # fmt: skip
def test_what_has_no_account_is_refused(fields, name):
  """Catches an epsilon of another mechanism than that of the run."""
  with pytest.raises(ValueError, match=rf'\b{name}\b'):
    runs.build(PRIVATE | fields)


def test_an_account_is_refused_where_the_run_is():
  """What a client keeps depends on fixed-size cohorts of the past."""
  with pytest.raises(ValueError, match='sketched_sgd'):
    runs.account(config.Config.from_mapping(PRIVATE | STATE))


pytestmark = pytest.mark.usefixtures('unproven')
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
