"""Private configs that mean nothing, or whose epsilon nobody knows."""

from fl_sketch import runs
from fl_sketch.runs import config
import pytest

from tests.runs.training.test_private_runs import PRIVATE, SAMPLES

FIXED = {'sampling': 'fixed_size'}  # four of six
ALLOCATED = {'sampling': 'random_allocation', 'cohort': 3}  # of six
QUANTILE = {'bound': 'quantile'}
MASKED = FIXED | {'trust': 'secure_aggregation'}
NOISY = {'public_metrics': 'private'}
STATE = FIXED | {
  'algorithm': 'sketched_sgd', 'local_steps': 1, 'options': {'k': 5},
  'sketch': {'kind': 'count_sketch', 'rows': 3, 'cols': 20},
}  # fmt: skip


@pytest.mark.parametrize(('fields', 'name'), [
  ({'epsilon': 1.0}, 'epsilon'),
  ({'delta': None}, 'delta'),
  ({'clip_norm': None}, 'clip_norm'),
  ({'weights': 'samples'}, 'weights'),
  ({'sampling': 'with_replacement'}, 'sampling'),
  ({'algorithm': 'scaffold'}, 'algorithm'),
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
  ({'simulated_cohort': 5}, 'simulated'),
  ({'simulated_cohort': 8, 'trust': 'local'}, 'simulated_cohort'),
  ({'simulated_cohort': 8} | QUANTILE, 'simulated_cohort'),
  (QUANTILE, 'noise_multiplier'),
  (QUANTILE | {'count_stddev': 3.0, 'dropout': 0.1}, 'bound'),
  ({'trust': 'local', 'deadline': 1.0}, 'deadline'),
  ({'max_payload_norm': 1.0}, 'max_payload_norm'),
  # Steps of a client, and metrics.
  ({'batch_order': 'poisson'}, 'batch_order'),
  (SAMPLES | {'batch_order': 'replace'}, 'batch_order'),
  (SAMPLES | {'batch_size': 10**4}, 'batch_size'),
  (SAMPLES | {'trust': 'local'}, 'trust'),
  (NOISY | QUANTILE, 'public_metrics'),
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
