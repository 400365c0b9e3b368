"""Local steps, their schedules, and their Gram form."""

import math

import cases
import chex
from fl_sketch import local, models, runs
from fl_sketch.local import gram, schedules
from fl_sketch.models import losses
from fl_sketch.rounds import keys
from fl_sketch.runs import config
from harness import SMALL
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import refused

BATCHES = tuple(x[0] for x in cases.cohort().batches)  # three batches


def run(batches=BATCHES, **options):
  work = local.sgd(cases.loss_fn, 0.1, **options)
  return work(cases.PARAMS, batches, cases.KEY, None)


def slope(theta, batch, clip=np.inf, decay=0.0):
  """The loss, its gradient, clipped and with decay, and its length before."""
  loss, grad = jax.value_and_grad(cases.loss_fn)(theta, batch)
  squares = [np.square(np.float64(g)).sum() for g in jax.tree.leaves(grad)]
  scale = np.float32(min(1, clip / np.sqrt(sum(squares))))
  grad = jax.tree.map(lambda g, p: scale * g + decay * p, grad, theta)
  return loss, grad, np.sqrt(sum(squares))


def by_hand(order, **options):
  theta, rows = cases.PARAMS, []
  for k in order:
    rows.append(slope(theta, tuple(x[k] for x in BATCHES), **options))
    theta = jax.tree.map(lambda p, g: p - 0.1 * g, theta, rows[-1][1])
  losses, _, lengths = zip(*rows, strict=True)
  moved = jax.tree.map(jnp.subtract, cases.PARAMS, theta)
  return moved, np.mean(losses), lengths


@pytest.mark.parametrize(('held', 'steps', 'order'), [
  (3, None, [0, 1, 2]), (3, 7, [0, 1, 2, 0, 1, 2, 0]), (3, 2, [0, 1]),
  (1, 4, [0] * 4),
])  # fmt: skip
def test_the_steps_visit_the_batches_in_turn(held, steps, order):
  moved, metrics = run(tuple(x[:held] for x in BATCHES), local_steps=steps)
  want, loss, _ = by_hand(order)
  chex.assert_trees_all_close(moved, want, atol=1e-6)
  np.testing.assert_allclose(metrics['train_loss'], loss, rtol=1e-6)


@pytest.mark.parametrize('clip', [0.3, 1e6])
def test_a_gradient_is_clipped_before_all_else(clip):
  """Catches a norm of one array, and a decay that is clipped as well."""
  want, _, lengths = by_hand(range(3), clip=clip, decay=0.2)
  moved, _ = run(clip=clip, weight_decay=0.2)
  chex.assert_trees_all_close(moved, want, atol=1e-6)
  assert (min(lengths) > clip) == (clip < 1)
  whole = tuple(x.reshape(-1, *x.shape[2:]) for x in BATCHES)
  one = local.gradient(cases.loss_fn, weight_decay=0.2, clip=clip)
  found, _ = one(cases.PARAMS, BATCHES, None, None)
  _, grad, _ = slope(cases.PARAMS, whole, clip, 0.2)
  chex.assert_trees_all_close(found, grad, atol=1e-6)


def test_no_step_is_made_on_a_batch_of_padding():
  def loss(params, batch):
    return jnp.where(batch['mask'].any(), jnp.sum(params**2), 0)

  masks = jnp.array([[1, 1], [0, 0], [1, 0], [0, 0]], bool)
  work = local.sgd(loss, 0.1, weight_decay=0.5)
  moved, metrics = work(jnp.ones(1), {'mask': masks}, cases.KEY, None)
  want, _ = work(jnp.ones(1), {'mask': masks[jnp.array([0, 2])]}, None, None)
  np.testing.assert_allclose(moved, want, rtol=1e-6)
  loss = (1 + 0.75**2) / 2
  np.testing.assert_allclose(metrics['train_loss'], loss, rtol=1e-6)


def drawing(params, batch, key):
  """Its gradient is a draw."""
  del batch
  return params * jax.random.normal(key)


@pytest.mark.nightly
def test_a_loss_draws_anew_in_every_round_client_and_step():
  """A dropout mask that stays would train a part of the model alone."""
  only = tuple(x[:1] for x in BATCHES)
  again = lambda k: local.sgd(drawing, 1.0, local_steps=k)
  works = [cases.jit(again(k)) for k in (1, 2, 3)]

  def draws(r, client):
    roots = keys.round_keys(cases.KEY, r)
    key = keys.local_key(keys.for_client(roots, client))
    return np.diff([0.0, *(work(0.0, only, key, None)[0] for work in works)])

  found = np.ravel([draws(r, c) for r in range(2) for c in range(2)])
  apart = np.abs(np.subtract.outer(found, found))[np.triu_indices(12, 1)]
  assert apart.min() > 1e-4
  three = local.sgd(drawing, 1.0)(0.0, BATCHES, cases.KEY, None)[0]
  np.testing.assert_allclose(three, works[2](0.0, only, cases.KEY, None)[0])
  one = local.gradient(drawing)(0.0, BATCHES, cases.KEY, None)[0]
  first = keys.step_key(cases.KEY, 0)
  np.testing.assert_allclose(one, jax.random.normal(first), rtol=1e-6)


ROUNDS = 9
DECAYS = {
  'constant': lambda t, final: 1.0,
  'linear': lambda t, final: 1 - t * (1 - final),
  'cosine': lambda t, final: (
    final + (1 - final) * (1 + math.cos(math.pi * t)) / 2
  ),
}


@pytest.mark.parametrize('warmup', [0, 1, 4])
@pytest.mark.parametrize('kind', DECAYS)
def test_a_schedule_is_its_numpy_twin(kind, warmup):
  """Catches a round of rate 0, and a decay that begins with the warm-up."""
  final = {} if kind == 'constant' else {'final': 0.25}
  make = lambda: schedules.make(kind, rounds=ROUNDS, warmup=warmup, **final)
  found = jax.jit(jax.vmap(make()))(jnp.arange(ROUNDS))
  want = [
    (r + 1) / warmup
    if r < warmup
    else DECAYS[kind]((r - warmup) / (ROUNDS - warmup), 0.25)
    for r in range(ROUNDS)
  ]
  np.testing.assert_allclose(found, want, rtol=1e-6)
  assert min(want) > 0


def test_a_config_names_its_schedule():
  """Catches a rate of another round, or of the server."""
  decayed = runs.build(SMALL | {'lr_decay': 0.5, 'client_lr': 0.8})
  at = lambda r: decayed.schedule(decayed.hyper, jnp.int32(r)).client_lr
  np.testing.assert_allclose([at(0), at(1), at(2)], [0.8, 0.4, 0.2])
  assert runs.build(SMALL).schedule is None
  cosine = 'cosine(warmup=2, final=0.1)'
  fields = SMALL | {'client_lr': 0.8, 'client_schedule': cosine}
  exp = runs.build(fields)
  of_round = lambda r: exp.schedule(exp.hyper, jnp.int32(r))
  rates = [of_round(r).client_lr for r in range(4)]
  np.testing.assert_allclose(rates, [0.4, 0.8, 0.8, 0.44], rtol=1e-6)
  assert of_round(0).server_lr == exp.hyper.server_lr
  assert exp.config.client_schedule['kind'] == 'cosine'


# Catches a decay that multiplies another, and a rate that nobody reads.
test_schedules_that_mean_nothing_are_refused = refused(
  config.Config.from_mapping,
  ({'client_schedule': 'cosine', 'lr_decay': 0.9}, 'lr_decay'),
  ({'algorithm': 'fedsgd', 'local_steps': 1, 'client_schedule': 'cosine'},
    'client_schedule'),
  error=config.ConfigError,
)  # fmt: skip


STEPS = 20
LR = 0.3
SCALE = {'mean': 0.4, 'std': 0.5}
MODEL = models.make('linear', 3)
RNG = np.random.default_rng(0)
PARAMS = {
  'dense': {
    'kernel': jnp.asarray(RNG.normal(size=(8, 3)), jnp.float32),
    'bias': jnp.asarray(RNG.normal(size=3), jnp.float32),
  }
}
KEY = jax.random.key(9)
ALL = {'label_smoothing': 0.1, 'weight_decay': 0.2}
MASKS = {
  'ragged': [True] * 4 + [False] * 3,
  'weights': [1.0, 0.0, 2.0, 0.5, 1.0, 0.0, 1.0],
  'no row': [False] * 7,
}


def full_batch(mask=None):
  rng = np.random.default_rng(1)
  batch = {
    'x': rng.integers(0, 256, (1, 7, 4, 2), np.uint8),
    'y': rng.integers(0, 3, (1, 7), np.int32),
  }
  return batch if mask is None else batch | {'mask': np.array([mask])}


LOSS_FN = losses.classification(MODEL, label_smoothing=0.1, **SCALE)


@jax.jit
def direct_step(params, batch):
  value, grads = jax.value_and_grad(LOSS_FN)(params, batch)
  move = lambda p, g: p - LR * (g + ALL['weight_decay'] * p)
  return jax.tree.map(move, params, grads), value


def direct_sgd(params, batches):
  """The slow twin: gradients of the loss, one step after another."""
  batch = jax.tree.map(lambda leaf: leaf[0], batches)
  end, values = params, []
  for _ in range(STEPS):
    end, value = direct_step(end, batch)
    values.append(value)
  moved = jax.tree.map(jnp.subtract, params, end)
  return moved, {'train_loss': sum(values) / STEPS}


@pytest.mark.parametrize('mask', MASKS.values(), ids=MASKS)
def test_gram_form_equals_direct_steps(mask):
  batches = full_batch(mask)
  local = lambda lr: gram.gram_sgd(lr, STEPS, **ALL, **SCALE)
  run = jax.jit(lambda lr: local(lr)(PARAMS, batches, KEY, None))
  out = run(LR)
  expected = direct_sgd(PARAMS, batches)
  chex.assert_trees_all_equal_shapes_and_dtypes(out, expected)
  chex.assert_trees_all_close(out, expected, atol=1e-5)


def test_what_it_cannot_do_is_refused():
  """Catches a correction, a layer or a batch that is silently left out."""
  local, batches = gram.gram_sgd(LR, STEPS), full_batch()
  two = jax.tree.map(lambda leaf: np.concatenate([leaf, leaf]), batches)
  deep = PARAMS | {'out': PARAMS['dense']}
  rows = (PARAMS, batches, PARAMS), (deep, batches, None), (PARAMS, two, None)
  for params, data, correction in rows:
    with pytest.raises(ValueError, match='gram_sgd'):
      local(params, data, KEY, correction)
