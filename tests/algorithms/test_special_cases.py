"""Limits in which algorithms coincide: each option off, or at its maximum."""

import cases
from cases import full_participation
import chex
from fl_sketch import algorithms, codecs, local, rounds, sketches
from fl_sketch.algorithms import server_optimizers, topology
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

N, D, K = cases.POPULATION, cases.DIMENSION, 3
COUNT, MEAN = cases.COUNT, cases.MEAN
IDENTITY, EXACT = sketches.identity(), codecs.identity()
SMALL = codecs.rand_k(3)


def one_client(r: int) -> rounds.Cohort:
  return cases.cohort(0, r, 1)._replace(weight=np.ones(1, np.float32))


def one_batch(r: int) -> rounds.Cohort:
  """All of a client's samples in one batch, for one full step."""
  cohort = cases.one_absent(r)
  whole = lambda x: x.reshape(len(x), 1, -1, x.shape[-1])
  return cohort._replace(batches=jax.tree.map(whole, cohort.batches))


def make(name, **options):
  return algorithms.make(name, cases.loss_fn, **options)


def at(variant, **numbers):
  """The same algorithm where some hyperparameters have fixed values."""
  numbers = {k: jnp.float32(v) for k, v in numbers.items()}
  return lambda hp: variant(hp._replace(**numbers))


FEDAVG = make('fedavg')
FEDSGD = make('fedsgd')
ONE_STEP = algorithms.make(
  'fedavg', local=lambda hp: local.sgd(cases.loss_fn, 1.0, local_steps=1)
)
STEPS = {'local_steps': K}

IDENTITY_SKETCH = [
  ('iterative_sketching', {}),
  ('fedsketch_privix', {}),
  ('fedsketch_heaprix', {'k': 3}),
  ('fedsketch_heaprix', {'k': 3, 'exact': False}),
  ('safl', {'server_optimizer': 'sgd'}),
]
FULL_SIZE = sketches.dct(D), sketches.layerwise(sketches.block_cyclic, D)
# Codecs that send all of a tree, as far as float32 goes.
COMPLETE = [EXACT, codecs.contract(codecs.rand_k(D))]


def fedavg_rows():
  for name, options in IDENTITY_SKETCH:
    yield f'{name} {options}', make(name, sketch=IDENTITY, **options), FEDAVG
  for op in FULL_SIZE:
    name = op.properties.name
    yield f'{name} b=d', make('iterative_sketching', sketch=op), FEDAVG
  yield 'heaprix k=d', make('fedsketch_heaprix', sketch=COUNT, k=D), FEDAVG
  for codec in [*COMPLETE, codecs.rand_k(D)]:
    yield f'fedcom {codec}', make('fedcom', codec=codec), FEDAVG
  for codec in COMPLETE:
    variant = make('fedcom', codec=codec, error_feedback=True)
    yield f'fedcom feedback {codec}', variant, FEDAVG
  yield 'power_sgd without factors', make('power_sgd', rank=2), FEDAVG
  cocktail = make('cocktail_sgd', codec=codecs.top_k(D), mask_ratio=1.0)
  yield 'cocktail', cocktail, FEDAVG
  sgd = {'kind': 'sgd', 'keep_state': True}
  yield 'fedavg local sgd', make('fedavg', local_optimizer=sgd), FEDAVG
  yield 'fedprox mu=0', make('fedprox', mu=0.0), FEDAVG
  yield 'fednova', make('fednova'), FEDAVG
  yield 'ferret b=d', make('ferret', size=D), FEDAVG
  gamma_one = at(FEDAVG, server_lr=1)
  yield 'diffsketch', make('diffsketch', sketch=IDENTITY), gamma_one


def other_steps_rows():
  amsgrad = {'server_optimizer': 'amsgrad'}
  for name, option in (
    ('fedcom', {'codec': EXACT}),
    ('safl', {'sketch': IDENTITY}),
  ):
    variant = make(name, **option, **amsgrad)
    yield f'{name} amsgrad', variant, make('fedavg', **amsgrad)
  for clip in ('client', 'server'):
    safl = at(make('safl', sketch=cases.CYCLIC, clip=clip), clip_norm=1e9)
    yield f'safl clip={clip}', safl, make('safl', sketch=cases.CYCLIC)
  one_row = sketches.count_sketch(1, 5)
  mean = sketches.count_sketch(1, 5, combine='mean')
  privix = make('fedsketch_privix', sketch=one_row)
  yield 'one row', privix, make('iterative_sketching', sketch=mean)
  noiseless = make('diffsketch', sketch=COUNT)
  gamma_one = at(make('fedsketch_privix', sketch=COUNT), server_lr=1)
  yield 'diffsketch is privix', noiseless, gamma_one
  safl = make('safl', sketch=MEAN, server_optimizer='momentum')
  song = make('iterative_sketching', sketch=MEAN, server_optimizer='momentum')
  yield 'safl is song', safl, song


def fedsgd_rows():
  always = {'codec': SMALL, 'sync_probability': 1.0}
  yield 'marina p=1', make('marina', **always), FEDSGD
  marina = make('marina', server_optimizer='adam', **always)
  yield 'marina p=1 adam', marina, make('fedsgd', server_optimizer='adam')
  for momentum in (0.0, 0.9):  # what got through is masked: all of it
    exact = {'sketch': COUNT, 'k': D, 'candidates': 1, 'momentum': momentum}
    yield f'sketched_sgd {momentum}', make('sketched_sgd', **exact), FEDSGD
  momentum = make('fedsgd', server_optimizer='momentum')
  for error_update in ('zero', 'subtract'):
    options = {'sketch': IDENTITY, 'k': D, 'error_update': error_update}
    variant = make('fetchsgd', momentum=0.0, **options)
    yield f'fetchsgd {error_update}', variant, FEDSGD
    variant = make('fetchsgd', momentum_masking=False, **options)
    yield f'fetchsgd {error_update} momentum', variant, momentum
  variant = make('fetchsgd', sketch=IDENTITY, k=D)
  yield 'fetchsgd masked', variant, FEDSGD
  yield 'demo mean', make('demo', codec=EXACT, signs=False), FEDSGD


def everyone_rows():
  for codec in COMPLETE:
    options = {'codec': codec, 'population': N}
    yield f'ef21 {codec}', make('ef21', **options), FEDSGD
    corrected = server_optimizers.corrected_amsgrad(b2=0.99)
    corrected = make('fedsgd', server_optimizer=corrected)
    yield f'cd_adam {codec}', make('cd_adam', **options), corrected
  song = make('iterative_sketching', sketch=MEAN)
  options = {'sketch': MEAN, 'population': N}
  over = lambda graph, q: make(
    'decentralised', graph=graph, gossip_steps=q, **options
  )
  yield 'tree', over(topology.grid(2, 4), None), song
  yield 'complete graph', over(topology.complete(N), 1), song
  # Its second eigenvalue is 0.80.
  yield 'long gossip', over(topology.ring(N), 90), song
  yield from tracking_rows()


def tracking_rows():
  """Gradient tracking is one algorithm, and with K = 1 none."""
  scaffold = make('scaffold', population=N, **STEPS)
  gate = make('fedsketchgate', sketch=IDENTITY, **STEPS)
  yield 'gate is scaffold', gate, scaffold
  heaprix = make('fedsketchgate', sketch=IDENTITY, k=3, **STEPS)
  yield 'heaprix gate is scaffold', heaprix, scaffold
  fedcomgate = make('fedcomgate', codec=EXACT, **STEPS)
  yield 'fedcomgate is scaffold', fedcomgate, scaffold
  one = {'local_steps': 1}
  single = make('fedavg', **one)
  yield 'scaffold K=1', make('scaffold', population=N, **one), single
  yield 'fedcomgate K=1', make('fedcomgate', codec=EXACT, **one), single
  for name, options in [('privix', {}), ('heaprix', {'k': 3})]:
    gate = make('fedsketchgate', sketch=COUNT, **options, **one)
    plain = make(f'fedsketch_{name}', sketch=COUNT, **options, **one)
    yield f'gate {name} K=1', gate, plain


def one_client_rows():
  signs = make('fedsgd', server_optimizer='sign_sgd')
  yield 'signsgd', make('signsgd'), signs
  yield 'demo', make('demo', codec=EXACT), signs


ROWS = [
  pytest.param(variant, want, cohort_of, id=f'{cohort_of.__name__}: {name}')
  for cohort_of, rows in [
    (cases.one_absent, [*fedavg_rows(), *other_steps_rows(), *fedsgd_rows()]),
    (full_participation, everyone_rows()),
    (one_batch, [('fedsgd is one local step', FEDSGD, ONE_STEP)]),
    (one_client, one_client_rows()),
  ]
  for name, variant, want in rows
]


@pytest.mark.representatives('full_participation: gate is scaffold')
@pytest.mark.parametrize(('variant', 'want', 'cohort_of'), ROWS)
def test_a_special_case_is_the_other_algorithm(variant, want, cohort_of):
  play = lambda make: cases.play(make, 1, cohort_of=cohort_of)[0].params
  result, want = play(variant), play(want)
  assert optax.tree.norm(want) > 2e-3, 'nothing moved'
  chex.assert_trees_all_close(result, want, atol=1e-6)
