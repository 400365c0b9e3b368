"""Private configs that mean nothing, or whose epsilon nobody knows."""

import math

from fl_sketch import experiment
from fl_sketch.experiment import config
import pytest
from refusals import refused

from tests.training.test_private_runs import PRIVATE, SAMPLES

NAN = math.nan
FIXED = {'sampling': 'fixed_size'}  # four of six
ALLOCATED = {'sampling': 'random_allocation', 'cohort': 3}  # of six
PUBLIC = {'noise_multiplier': None, 'clip_norm': None}
NOISY = {'public_metrics': 'private'}
MASKED = FIXED | {'trust': 'secure_aggregation'}


test_a_config_that_means_nothing_is_refused = refused(
  lambda fields: config.Config.from_mapping(PRIVATE | fields),
  ({'epsilon': 1.0}, 'Expected one of epsilon=1.0 and noise_multiplier=2.0'),
  ({'delta': None}, 'Expected delta in a private config'),
  ({'clip_norm': None}, 'Expected clip_norm in a private config'),
  ({'weights': 'samples'}, "Expected weights='samples' to be 'equal'"),
  ({'sampling': 'with_replacement'}, "sampling='with_replacement'"),
  ({'algorithm': 'scaffold'}, 'scaffold has no private form'),
  (PUBLIC | {'delta': None}, 'or noise_multiplier with dp_fedavg'),
  (PUBLIC | {'algorithm': 'fedavg'}, "or noise_multiplier beside .'delta'"),
  ({'noise_multiplier': NAN}, 'Expected noise_multiplier=nan >= 0'),
  ({'noise_multiplier': -1.0}, 'Expected noise_multiplier=-1.0 >= 0'),
  ({'epsilon': NAN, 'noise_multiplier': None}, 'Expected epsilon=nan > 0'),
  ({'epsilon': 0.0, 'noise_multiplier': None}, 'Expected epsilon=0.0 > 0'),
  ({'delta': NAN}, 'Expected delta=nan > 0'),
  ({'delta': 0.0}, 'Expected delta=0.0 > 0'),
  ({'delta': 1.5}, 'delta=1.5'),
  ({'clip_norm': NAN}, 'Expected clip_norm=nan > 0'),
  ({'clip_norm': math.inf}, 'Expected clip_norm=inf > 0 and finite'),
  ({'bound': 'quantile', 'quantile': NAN}, 'quantile=nan'),
  ({'bound': 'quantile', 'count_stddev': NAN}, 'Expected count_stddev=nan'),
  ({'bound': 'quantile', 'quantile_lr': NAN}, 'Expected quantile_lr=nan'),
  ({'lr_decay': NAN}, 'Expected lr_decay=nan'),
  ({'lr_decay': 1.1}, 'lr_decay=1.1'),
  (SAMPLES | {'client_clip': 1.0}, 'Expected no client_clip=1.0 with algori'),
  ({'bound': 'normalize'}, "Expected bound='normalize' in"),
  ({'algorithm': 'dp_normfedavg', 'bound': 'clip'}, "Expected bound='clip'"),
  ({'quantile': 0.5}, 'Expected nothing in quantile=0.5'),
  ({'trust': 'nobody'}, "Expected trust='nobody' in"),
  ({'trust': 'secure_aggregation'}, "Expected sampling='fixed_size' with"),
  (ALLOCATED | {'trust': 'secure_aggregation'}, "trust='central' with sampl"),
  (ALLOCATED | {'trust': 'local'}, "not trust='local': who sees"),
  ({'simulated_cohort': 4}, 'Expected simulated_cohort=4 > cohort=4'),
  ({'simulated_cohort': 5}, 'whole population .* population=6 x simulated_co'),
  ({'simulated_cohort': 8, 'max_cohort': 6}, 'Expected no max_cohort=6 with'),
  ({'simulated_cohort': 8, 'trust': 'local'}, "simul.*=8, not trust='local'"),
  (MASKED | {'simulated_cohort': 8}, "not trust='secure_aggregation'"),
  ({'simulated_cohort': 8, 'bound': 'quantile'}, "bound='quantile': noise of"),
  (SAMPLES | {'simulated_cohort': 8}, r"Expected nothing in \['simulated_co"),
  (
    {
      'population': 7,
      'epoch_rounds': 3,
      'cohort': 2,
      'simulated_cohort': 4,
      'sampling': 'random_allocation',
    },
    'whole population of the same share: population=7 x',
  ),
  (
    PUBLIC | {'algorithm': 'fedavg', 'delta': None, 'simulated_cohort': 8},
    "beside .'simulated_cohort'",
  ),
  (MASKED | {'min_honest': 5}, 'Expected min_honest=5 <= cohort=4'),
  (MASKED | {'neighbours': 3}, 'Expected neighbours=3 to be even and < cohort'),
  (MASKED | {'neighbours': 4}, 'Expected neighbours=4 to be even and < cohort'),
  ({'min_honest': 2}, 'Expected nothing in min_honest=2'),
  ({'neighbours': 2}, 'Expected nothing in neighbours=2'),
  ({'adjacency': 'swap'}, "Expected adjacency='swap' in"),
  ({'accountant': 'gdp'}, "Expected accountant='gdp' in"),
  ({'before_sketch': True}, 'Expected a sketch, .* with before_sketch'),
  ({'batch_order': 'poisson'}, "batch_order='poisson'"),
  (SAMPLES | {'batch_order': 'replace'}, "batch_order='replace' to be"),
  (SAMPLES | {'batch_size': 0}, 'batch_size=0 >= 1'),
  (SAMPLES | {'trust': 'local'}, r"Expected nothing in \['trust'\]"),
  (SAMPLES | {'clip_norm': None}, 'Expected clip_norm in a private config'),
  (SAMPLES | {'local_work': 'gram'}, 'local_work='),
  ({'noise_generator': 'aes'}, "Expected noise_generator='aes' in"),
  ({'public_metrics': 'some'}, "Expected public_metrics='some' in"),
  ({'metrics_share': 0.1}, 'public_metrics=None .* beside metrics_share=0.1'),
  (
    {'public_metrics': 'none', 'loss_bound': 2.0},
    "public_metrics='none' .* beside loss_bound=2.0",
  ),
  (NOISY | {'metrics_share': 1.0}, 'metrics_share=1.0'),
  (NOISY | {'metrics_share': NAN}, 'metrics_share=nan'),
  (NOISY | {'loss_bound': 0.0}, 'loss_bound=0.0 > 0'),
  (NOISY | {'bound': 'quantile'}, "Expected bound='quantile' not to be"),
  (NOISY | {'adjacency': 'zero_out'}, "adjacency='zero_out' not 'zero_out'"),
  (NOISY | MASKED, "unless trust='central' protects"),
  (NOISY | FIXED | {'trust': 'local'}, "unless trust='central' protects"),
  (NOISY | SAMPLES, "unless trust='central' protects"),
)


test_what_has_no_account_is_refused_before_training = refused(
  lambda fields: experiment.build(PRIVATE | fields),
  ({'delta': 1.0}, 'delta=1.0'),
  (FIXED | {'accountant': 'pld'}, 'pld'),
  (FIXED | {'adjacency': 'add_or_remove_one'}, 'add_or_remove_one'),
  (ALLOCATED | {'adjacency': 'replace_one'}, "choose accountant='pld'"),
  (ALLOCATED | {'accountant': 'rdp'}, "choose accountant='pld'"),
  ({'bound': 'quantile'}, 'noise_multiplier=2.0 < 2 count_stddev=0.4'),
  ({'bound': 'quantile', 'count_stddev': 1.0}, '=2.0 < 2 count_stddev=2'),
  ({'noise_multiplier': 0.0, 'bound': 'quantile'}, '0 < noise_multiplier=0'),
  (SAMPLES | {'batch_size': 10**4}, 'batch_size=10000'),
  ({'max_cohort': 4}, 'max_cohort'),
)


def test_an_account_is_refused_where_the_run_is():
  """What a client keeps depends on fixed-size cohorts of the past."""
  fields = PRIVATE | FIXED | {'algorithm': 'sketched_sgd', 'local_steps': 1}
  fields |= {'sketch': {'kind': 'count_sketch', 'rows': 3, 'cols': 20}}
  fields |= {'options': {'k': 5}}
  for attempt in experiment.account, experiment.build:
    with pytest.raises(ValueError, match='what clients keep depends on past'):
      attempt(config.Config.from_mapping(fields))


def test_clipped_gradients_and_rates_do_not_change_the_account_of_clients():
  """Catches an epsilon that counts on them: it is of the clipped updates."""
  fields = {'client_clip': 0.1, 'client_schedule': 'cosine(warmup=2)'}
  plain, other = (
    experiment.account(config.Config.from_mapping(PRIVATE | more))
    for more in ({}, fields)
  )
  assert plain.mechanism == other.mechanism
  assert plain.statement.epsilon == other.statement.epsilon
