"""The NumPy twins against each other, where they must agree."""

import cases
from fl_sketch import codecs
from fl_sketch import rounds
from fl_sketch import sketches
import numpy as np
import pytest
import reference
from twins import TWINS
from twins_cases import ALL
from twins_cases import CASES
from twins_cases import COUNT
from twins_cases import CYCLIC
from twins_cases import EXACT
from twins_cases import FULL
from twins_cases import IDENTITY
from twins_cases import MEAN
from twins_cases import SOME
from twins_cases import START
from twins_cases import STILL
from twins_cases import D
from twins_cases import Hyper
from twins_cases import N
from twins_cases import edit
from twins_cases import play
from twins_cases import same

BY_LAYER = sketches.layerwise(sketches.block_cyclic, D)


def test_every_twin_is_here():
  assert set(CASES) | {'decentralised'} == set(TWINS)


@pytest.mark.parametrize('name', CASES)
def test_the_absent_and_the_order_of_lanes_leave_no_trace(name):
  def spoil(cohort):
    absent = cohort.weight == 0
    ids = np.where(absent, N + 5, cohort.ids).astype(np.int32)
    batches = [x.copy() for x in cohort.batches]
    for x in batches:
      x[absent] = np.nan
    batches = tuple(x[::-1] for x in batches)
    return rounds.Cohort(ids[::-1], cohort.weight[::-1], batches)

  spoiled = play(name, [spoil(cohort) for cohort in SOME], **CASES[name])
  same(spoiled, play(name, **CASES[name]))


@pytest.mark.parametrize('name', ['fedavg', 'fedsgd'])
def test_equal_weights_are_no_weights(name):
  double = [c._replace(weight=2 * c.weight) for c in ALL]
  same(play(name, double), play(name, ALL))
  triple = [cases.cohort(3, r) for r in range(4)]  # one client, of weight 3
  alone = [c._replace(weight=c.weight / 3) for c in triple]
  same(play(name, triple), play(name, alone))


def test_fedsgd_takes_the_gradient_of_one_big_batch():
  big = edit(SOME, lambda x: x.reshape(4, 1, -1, x.shape[-1]))
  same(play('fedsgd', big), play('fedsgd'))


def test_one_step_of_fedavg_is_fedsgd():
  one = edit(SOME, lambda x: x[:, :1])
  slow = Hyper(server_lr=Hyper().client_lr * Hyper().server_lr)
  same(play('fedavg', one), play('fedsgd', one, slow))


@pytest.mark.parametrize(
  ('name', 'options'),
  [
    ('iterative_sketching', {'sketch': FULL}),
    ('iterative_sketching', {'sketch': BY_LAYER}),
    ('fedsketch_privix', {'sketch': IDENTITY}),
    ('safl', {'sketch': FULL, 'server_optimizer': 'sgd'}),
    ('fedsketch_heaprix', {'sketch': COUNT, 'k': D}),
    ('fedsketch_heaprix', {'sketch': IDENTITY, 'k': 3}),
    ('fedsketch_heaprix', {'sketch': IDENTITY, 'k': 3, 'exact': False}),
    ('fedcom', {'codec': EXACT}),
    ('fedcom', {'codec': codecs.top_k(D), 'error_feedback': True}),
    ('cocktail_sgd', {'codec': EXACT, 'mask_ratio': 1.0}),
  ],
)
def test_without_loss_it_is_fedavg(name, options):
  same(play(name, **options), play('fedavg'))


@pytest.mark.parametrize(
  ('name', 'options', 'optimizer'),
  [
    ('marina', {'codec': codecs.top_k(1), 'sync_probability': 1.0}, 'sgd'),
    ('marina', {'codec': EXACT, 'sync_probability': 0.3}, 'sgd'),
    ('ef21', {'codec': EXACT}, 'sgd'),
    ('cd_adam', {'codec': EXACT}, 'amsgrad'),
    ('sketched_sgd', {'sketch': COUNT, 'k': D, 'momentum': 0.5}, 'sgd'),
    ('fetchsgd', {'sketch': FULL, 'k': D}, 'sgd'),
    (
      'fetchsgd',
      {'sketch': FULL, 'k': D, 'momentum_masking': False},
      'momentum',
    ),
  ],
)
def test_without_loss_it_is_gradient_descent(name, options, optimizer):
  want = play('fedsgd', STILL, server_optimizer=optimizer)
  same(play(name, STILL, **options), want)


def test_one_bit_adam_warming_up_is_adam_without_bias_correction(monkeypatch):
  got = play('onebit_adam', warmup=9)
  late = reference.Server('adam', D)
  late.t = 10**6  # its bias correction is over
  monkeypatch.setattr(reference, 'Server', lambda name, d: late)
  same(got, play('fedsgd', server_optimizer='adam'))


def test_diffsketch_is_privix_of_server_lr_one():
  one = Hyper(server_lr=1.0)
  same(
    play('diffsketch', sketch=COUNT),
    play('fedsketch_privix', hp=one, sketch=COUNT),
  )


def test_no_clipping_is_safl():
  options = {'sketch': CYCLIC, 'server_optimizer': 'amsgrad'}
  want = play('safl', **options)
  for clip in ('client', 'server'):
    loose = Hyper(clip_norm=1e6)
    same(play('safl', hp=loose, clip=clip, **options), want)


def test_clipped_steps_are_as_long_as_is_stated():
  hp, one = Hyper(), SOME[:1]
  sgd = {'server_optimizer': 'sgd'}
  by_client = play('safl', one, sketch=FULL, clip='client', **sgd)
  alone = [cases.cohort(3)]
  by_one = play('safl', alone, sketch=FULL, clip='client', **sgd)
  by_server = play('safl', one, sketch=CYCLIC, clip='server', **sgd)
  length = lambda theta: np.linalg.norm(theta - START)
  bound = hp.server_lr * hp.clip_norm
  assert length(by_client) < bound
  np.testing.assert_allclose(length(by_one), bound, rtol=1e-5)
  # sqrt(1 + alpha) of `block_cyclic(4)`, which pads 10 to 12
  alpha = sketches.properties(CYCLIC).alpha(D)
  stretched = bound * np.sqrt(1 + alpha)
  np.testing.assert_allclose(length(by_server), stretched, rtol=1e-5)


@pytest.mark.parametrize('name', ['scaffold', 'fedsketchgate', 'fedcomgate'])
def test_the_first_round_knows_no_drift(name):
  kind = {'codec': EXACT} if name == 'fedcomgate' else {'sketch': FULL}
  options = {'local_steps': 3} | (kind if name != 'scaffold' else {})
  same(play(name, SOME[:1], **options), play('fedavg', SOME[:1]))
  assert np.abs(play(name, **options) - play('fedavg')).max() > 1e-4


@pytest.mark.parametrize('op', [MEAN, CYCLIC], ids=['mean', 'cyclic'])
def test_a_mean_over_all_neighbours_needs_no_server(op):
  uniform = np.full((N, N), 1 / N)
  want = play('iterative_sketching', ALL, sketch=op)
  same(play('decentralised', ALL, sketch=op, mixing=uniform), want)


def test_without_neighbours_everybody_is_alone():
  def alone(i):
    weights = lambda c: np.float32(c.ids == i)
    cohorts = [c._replace(weight=weights(c)) for c in ALL]
    return play('iterative_sketching', cohorts, sketch=MEAN)

  want = np.mean([alone(i) for i in range(N)], axis=0)
  same(play('decentralised', ALL, sketch=MEAN, mixing=np.eye(N)), want)


def test_mixing_keeps_the_mean_of_tables():
  """Linear reading and equal models: the first mean step is the server's."""
  ring = (np.eye(N) + np.roll(np.eye(N), 1, 0) + np.roll(np.eye(N), -1, 0)) / 3
  want = play('iterative_sketching', ALL[:1], sketch=MEAN)
  got = play('decentralised', ALL[:1], sketch=MEAN, mixing=ring @ ring)
  same(got, want)
