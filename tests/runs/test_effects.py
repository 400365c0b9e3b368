"""Every field of a config changes what is built from it."""

import dataclasses
import operator
import re

from fl_sketch import runs
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.runs import config, program
from fl_sketch.utils import digests
from harness import DP, SAFL, SMALL
import jax
import numpy as np
import pytest

PLAIN = SMALL | {
  'model': 'linear', 'model_options': None, 'rounds': 30,
  'rounds_per_dispatch': 10, 'checkpoint_every': 10, 'eval_every': 10,
}  # fmt: skip
PRIVATE = PLAIN | DP | {'noise_multiplier': 3.0, 'clip_norm': 2.0, 'cohort': 5}
ADAPTERS = {'kind': 'ffa', 'rank': 2, 'targets': ('Dense_0',)}
ROBUST = {'robust': 'median', 'groups': 3, 'byzantine': 0.3, 'attack': 'scale'}
ALLOCATED = {'sampling': 'random_allocation', 'population': 7, 'cohort': 2}
# Other values of fields, in a config in which they have an effect.
OTHERS = (
  (PLAIN, {
    'seed': 1, 'rounds': 25, 'rounds_per_dispatch': 5, 'clients_per_step': 1,
    'feed': 'host', 'server_state': 'sharded', 'eval_every': 5,
    'checkpoint_every': 5, 'dataset': 'simulated', 'train_slice': ':900',
    'test_slice': ':90', 'model': 'mlp', 'standardize': False,
    'label_smoothing': 0.1, 'compute_dtype': 'bfloat16', 'population': 7,
    'partition': 'dirichlet', 'samples_per_client': 9, 'client_holdout': 0.3,
    'cohort': 3, 'sampling': 'poisson', 'weights': 'samples',
    'over_sampling': 1.5, 'dropout': 0.5, 'deadline': 1.0, 'local_steps': 3,
    'batch_size': 4, 'batch_order': 'cycle', 'client_lr': 0.2, 'lr_decay': 0.9,
    'client_schedule': 'cosine', 'client_clip': 1.0, 'weight_decay': 0.1,
    'local_optimizer': 'adam', 'algorithm': 'fedprox', 'server_lr': 0.5,
    'max_payload_norm': 1.0,
  }),
  (SMALL | {'algorithm': 'scaffold'}, {'client_state': 'host'}),
  (PLAIN | {'batch_size': 0}, {'local_work': 'gram'}),
  (PLAIN | {'algorithm': 'fedprox'}, {'options': {'mu': 0.7}}),
  (PLAIN | {'partition': 'label_shards'}, {'shards_per_client': 2}),
  (PLAIN | {'partition': 'classes_per_client'}, {'classes': 5}),
  (PLAIN | {'partition': 'dirichlet'}, {'alpha': 5.0}),
  (PLAIN | {'partition': 'size_skew'}, {'sigma': 0.1}),
  (PLAIN | {'sampling': 'poisson'}, {'max_cohort': 5}),
  (PLAIN | ALLOCATED, {'epoch_rounds': 3}),
  (PLAIN | {'client_holdout': 0.3, 'personal_steps': 2},
    {'personal_steps': 3, 'personal_lr': 0.7}),
  (PLAIN | ROBUST, {'robust': 'geometric_median', 'groups': 4,
    'byzantine': 0.5, 'attack': 'nan'}),
  (SMALL, {'model_options': {'widths': (5,)}}),
  (SMALL | {'lora': ADAPTERS}, {'lora': ADAPTERS | {'rank': 1}}),
  (SAFL | {'server_optimizer': 'adam'}, {
    'sketch': 'srht(size=50)', 'codec': 'int8', 'downlink_codec': 'int8',
    'hash_rounds': 0, 'server_optimizer': 'yogi', 'b1': 0.5, 'b2': 0.5,
    'eps': 0.1, 'final_server_lr': 0.001, 'server_schedule': 'linear',
  }),
  (SAFL | {'server_optimizer': 'momentum'}, {'momentum': 0.3}),
  (PRIVATE, {
    'noise_multiplier': 4.0, 'delta': 1e-4, 'clip_norm': 1.0,
    'per_layer': True, 'trust': 'local', 'noise_seed': 1,
    'public_metrics': 'hidden',
  }),
  (PRIVATE | {'sampling': 'poisson'},
    {'accountant': 'rdp', 'adjacency': 'zero_out'}),
  (PRIVATE | {'noise_multiplier': 0.2}, {'bound': 'quantile'}),
  (PRIVATE | {'bound': 'quantile', 'count_stddev': 2.0},
    {'count_stddev': 3.0, 'quantile': 0.9, 'quantile_lr': 0.7}),
  (PRIVATE | {'noise_multiplier': None, 'epsilon': 9.0}, {'epsilon': 8.0}),
  (PRIVATE | {'public_metrics': 'private'}, {'loss_bound': 2.0}),
  (PRIVATE | {'trust': 'secure_aggregation'},
    {'min_honest': 2, 'neighbours': 2}),
  (PRIVATE | {'sampling': 'cyclic', 'noise': 'banded'},
    {'noise': None, 'noise_bands': 2}),
)  # fmt: skip
# Of hashes, of the files of a run, and of what other tests make.
ELSEWHERE = (
  'sketch_seed log_every keep_checkpoints keep_best plugins sweep '
  'dataset_options pretrained loss before_sketch'
)


def test_every_field_has_another_value():
  """Catches a new field whose effect nobody has looked at."""
  names = {name for _, others in OTHERS for name in others}
  fields = {field.name for field in dataclasses.fields(config.Config)}
  assert names == fields - {*ELSEWHERE.split()}


def built(fields):
  """Arrays, the account, what three rounds draw, and the programs, as text."""
  exp, mesh = runs.build(fields), mesh_lib.cohort_mesh()
  secret = None if exp.guarantee is None else 0
  run, drawn = (
    program.program(exp, mesh),
    [exp.sample(r, secret) for r in (0, 1)],
  )
  parts = [vars(p) for p in (exp.partition, exp.held_out) if p is not None]
  arrays = exp.hyper, exp.params, exp.data, exp.test, parts, drawn
  yield [digests.of_array(np.asarray(x)) for x in jax.tree.leaves(arrays)]
  yield exp.guarantee, [exp.config.dispatch(done) for done in (0, 20)]
  programs = [(run.fn, run.args)]
  programs += [(run.evaluate, ((exp.params, exp.hyper), run.test))]
  if exp.personalize is not None:
    batches = {k: x[None, :1] for k, x in exp.data.items()}
    args = exp.hyper, exp.params, batches, jax.random.key(0)
    programs += [(exp.personalize, args)]
  texts = [f'{jax.make_jaxpr(fn)(*args)}' for fn, args in programs]
  yield [re.sub('0x[0-9a-f]+', '', text) for text in texts]  # addresses


@pytest.mark.nightly
@pytest.mark.parametrize(('base', 'others'), OTHERS)
def test_another_value_makes_another_experiment(base, others, unproven):
  """Catches a field that is read, checked and printed, but has no effect."""
  plain = [*built(base)]
  assert [*built(base)] == plain
  same = lambda fields: all(map(operator.eq, built(fields), plain))
  assert not [k for k, value in others.items() if same(base | {k: value})]
