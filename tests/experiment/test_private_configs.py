"""Private configs that mean nothing, or whose epsilon nobody knows."""

from fl_sketch import experiment
from fl_sketch.experiment import config
import pytest
from refusals import refused

from tests.training.test_private_runs import PRIVATE, SAMPLES

FIXED = {'sampling': 'fixed_size'}  # four of six
ALLOCATED = {'sampling': 'random_allocation', 'cohort': 3}  # of six
PUBLIC = {'noise_multiplier': None, 'clip_norm': None}
NOISY = {'public_metrics': 'private'}
MASKED = FIXED | {'trust': 'secure_aggregation'}


test_a_config_that_means_nothing_is_refused = refused(
  lambda fields: config.Config.from_mapping(PRIVATE | fields),
  ({'epsilon': 1.0}, 'Set epsilon or noise_multiplie'),
  ({'delta': None}, 'A private config requires'),
  ({'clip_norm': None}, 'A private config requires'),
  ({'weights': 'samples'}, "weights='samples',"),
  ({'sampling': 'with_replacement'}, "sampling='with_replacement'"),
  ({'algorithm': 'scaffold'}, "algorithm='scaffold' has no"),
  (PUBLIC | {'delta': None}, "algorithm='dp_fedavg'"),
  (PUBLIC | {'algorithm': 'fedavg'}, 'delta=0.01 has no effect'),
  (SAMPLES | {'client_clip': 1.0}, 'client_clip=1.0 is not'),
  ({'bound': 'normalize'}, "bound='normalize' is not"),
  ({'quantile': 0.5}, 'quantile=0.5 has no effect'),
  ({'trust': 'secure_aggregation'}, "trust='secure_aggregation'"),
  (ALLOCATED | {'trust': 'secure_aggregation'}, "sampling='random_allocation'"),
  (ALLOCATED | {'trust': 'local'}, "sampling='random_allocation'"),
  ({'simulated_cohort': 4}, 'simulated_cohort=4 requires a'),
  ({'simulated_cohort': 5}, 'The simulated population'),
  ({'simulated_cohort': 8, 'max_cohort': 6}, 'simulated_cohort=8 requires a'),
  ({'simulated_cohort': 8, 'trust': 'local'}, 'simulated_cohort=8 does not'),
  (MASKED | {'simulated_cohort': 8}, 'simulated_cohort=8 does not'),
  ({'simulated_cohort': 8, 'bound': 'quantile'}, "bound='quantile': noise of"),
  (SAMPLES | {'simulated_cohort': 8}, r'simulated_cohort=8 has no'),
  (ALLOCATED | {'population': 7, 'cohort': 2, 'simulated_cohort': 4},
    'The simulated population'),
  (MASKED | {'min_honest': 5}, 'min_honest=5 exceeds cohort=4'),
  (MASKED | {'neighbours': 3}, 'neighbours=3 must be even and'),
  (MASKED | {'neighbours': 4}, 'neighbours=4 must be even and'),
  ({'min_honest': 2}, 'min_honest=2 has no effect'),
  ({'neighbours': 2}, 'neighbours=2 has no effect'),
  ({'before_sketch': True}, 'before_sketch=True has no'),
  ({'batch_order': 'poisson'}, "batch_order='poisson'"),
  (SAMPLES | {'batch_order': 'replace'}, "algorithm='private_iterative_s"),
  (SAMPLES | {'batch_size': 0}, "algorithm='private_iterative_s"),
  (SAMPLES | {'trust': 'local'}, r"trust='local' has no effect"),
  (SAMPLES | {'local_work': 'gram'}, 'local_work='),
  ({'metrics_share': 0.1}, 'metrics_share=0.1 has no'),
  (NOISY | {'bound': 'quantile'}, "public_metrics='private' does"),
  (NOISY | {'adjacency': 'zero_out'}, "public_metrics='private' does"),
  (NOISY | MASKED, "public_metrics='private'"),
  (NOISY | FIXED | {'trust': 'local'}, "public_metrics='private'"),
  (NOISY | SAMPLES, "public_metrics='private'"),
)  # fmt: skip


test_what_has_no_account_is_refused_before_training = refused(
  lambda fields: experiment.build(PRIVATE | fields),
  ({'delta': 1.0}, 'delta=1.0'),
  (FIXED | {'accountant': 'pld'}, 'pld'),
  (FIXED | {'adjacency': 'add_or_remove_one'}, 'add_or_remove_one'),
  (ALLOCATED | {'adjacency': 'replace_one'}, "accountant='pld'"),
  (ALLOCATED | {'accountant': 'rdp'}, "accountant='pld'"),
  ({'bound': 'quantile'}, "bound='quantile' requires"),
  ({'bound': 'quantile', 'count_stddev': 1.0}, "bound='quantile' requires"),
  ({'noise_multiplier': 0.0, 'bound': 'quantile'}, "bound='quantile' requires"),
  (SAMPLES | {'batch_size': 10**4}, 'batch_size=10000'),
  ({'max_cohort': 4}, 'max_cohort'),
)


def test_a_private_language_model_is_refused_for_its_true_reason():
  """Catches a message about pixels where there are none."""
  fields = {'dataset': 'store', 'dataset_options': {'folder': 'x'}}
  fields |= {'model': 'gpt_nano', 'loss': 'tokens', 'standardize': True}
  with pytest.raises(config.ConfigError) as error:
    config.Config.from_mapping(PRIVATE | fields | {'model_options': None})
  assert 'takes tokens; set standardize=False' in str(error.value)
  assert 'pixel' not in str(error.value)


def test_an_account_is_refused_where_the_run_is():
  """What a client keeps depends on fixed-size cohorts of the past."""
  fields = PRIVATE | FIXED | {'algorithm': 'sketched_sgd', 'local_steps': 1}
  fields |= {'sketch': {'kind': 'count_sketch', 'rows': 3, 'cols': 20}}
  fields |= {'options': {'k': 5}}
  for attempt in experiment.account, experiment.build:
    with pytest.raises(ValueError, match='A private sketched_sgd keeps'):
      attempt(config.Config.from_mapping(fields))
