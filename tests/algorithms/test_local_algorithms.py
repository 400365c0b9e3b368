"""FedProx, FedDyn, FedNova, and optimizers of optax on clients."""

import functools

import cases
import chex
from fl_sketch import algorithms, local, rounds
from fl_sketch.algorithms.ferret import allocate
from fl_sketch.local import optimizers
from fl_sketch.rounds import aggregation, transforms
from fl_sketch.rounds.algorithm import RoundLocal, federated
from fl_sketch.runs.config import Config
from generators import costs
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from refusals import refused
from twins_language import shares

N = cases.POPULATION
ADAMW = {'kind': 'adamw', 'b2': 0.9, 'eps': 1e-3}


def make(name, **options):
  return algorithms.make(name, cases.loss_fn, **options)


@pytest.mark.nightly
def test_fednova_weighs_directions_not_lengths():
  """Catches a mean in which a client with more steps counts more."""
  steps = np.array([1, 2, 4])
  mask = np.arange(4)[None] < steps[:, None]
  targets = np.array([[1.0], [-2.0], [5.0]])
  batches = {'mask': mask[..., None], 'x': np.repeat(targets, 4, 1)[..., None]}
  loss = lambda w, batch: 0.5 * jnp.mean((w - batch['x']) ** 2)
  cohort = rounds.Cohort(np.arange(3), np.array([1.0, 1.0, 2.0]), batches)
  cohort = jax.tree.map(lambda x: x.astype(np.float32), cohort)
  cohort = cohort._replace(ids=np.arange(3, dtype=np.int32))
  build = algorithms.make('fednova', loss)
  build.params = jnp.zeros(1)
  state, _ = cases.play(build, 1, count=1, cohort_of=lambda r: cohort)
  client_lr, server_lr = map(float, (cases.HP.client_lr, cases.HP.server_lr))
  ways = (1 - (1 - client_lr) ** steps) * targets[:, 0] / steps
  weight = np.array([0.25, 0.25, 0.5])
  want = server_lr * (weight * steps).sum() * (weight * ways).sum()
  np.testing.assert_allclose(state.params, [want], rtol=1e-5)


@pytest.mark.parametrize('form', [
  'adamw(b2=0.9, eps=1e-3)',
  local.Optimizer(lambda rate: optax.adamw(rate, b2=0.9, eps=1e-3)),
  functools.partial(optax.adamw, b2=0.9, eps=1e-3),
], ids=['text', 'optimizer', 'function'])  # fmt: skip
def test_every_form_of_an_optimizer_is_the_optimizer(form):
  """Catches options or a learning rate that get lost in one of the forms."""
  params, rate = cases.PARAMS, cases.HP.client_lr
  steps = []
  for x in (form, ADAMW):
    optimizer = optimizers.as_optimizer(x).make(rate)
    grad = jax.tree.map(jnp.ones_like, params)
    steps.append(optimizer.update(grad, optimizer.init(params), params)[0])
  chex.assert_trees_all_close(*steps, rtol=1e-6)
  assert optax.tree.norm(steps[0]) > 0.1


@pytest.mark.parametrize('name', algorithms.names())
def test_a_mark_says_what_an_algorithm_makes_of_its_task(name, monkeypatch):
  """Catches a mark that lets through steps that the algorithm would lose."""
  entry, seen = algorithms.entry(name), []
  for kind in ('steps', 'gradient', 'private_steps'):
    record = lambda task, hp, kind=kind, **terms: seen.append((kind, terms))
    monkeypatch.setattr(local.Task, kind, record)
  options = costs.example(name)
  if 'privacy' in options:
    options['privacy'] = options['privacy'].with_hyper(cases.HP)
  task = local.Task(cases.loss_fn)
  algorithms.REGISTRY.build(name, task, cases.HP, options)
  if entry.work in ('task', 'slopes'):
    assert name == 'fednova' or ('steps', {}) not in seen
  else:
    assert seen[-1] == (entry.work, {})


adam = lambda name, **options: make(name, local_optimizer='adam', **options)
own = lambda name, **options: algorithms.make(
  name, local=lambda hp: None, **options
)
test_what_a_task_does_not_suit_is_refused = refused(
  lambda call: call(),
  (lambda: adam('scaffold', local_steps=2, population=N), 'local_optimizer'),
  (lambda: own('fedavg', client_clip=1.0), 'client_clip'),
  (lambda: make('fedsgd', local_steps=2), 'local_steps'),
  (lambda: cases.play(make('cocktail_sgd', codec=cases.TOP, mask_ratio=0.5,
    local_optimizer=ADAMW | {'keep_state': True})), 'local_optimizer'),
)  # fmt: skip


@pytest.mark.nightly
def test_a_table_is_shared_by_norms_and_dimensions():
  """Catches shares that do not add up, and layers without a number."""
  rng = np.random.default_rng(0)

  def check(squares, dims, size):
    given = np.asarray(allocate(squares, dims, size))
    assert given.sum() == size
    assert given.min() >= 1
    assert (given <= dims + 1).all()  # where boundaries are rounded
    return given

  for _ in range(20):
    dims = rng.integers(1, 2000, 12)
    squares = rng.lognormal(0, 3, 12).astype(np.float32)
    size = int(rng.integers(12, dims.sum()))
    given = check(squares, dims, size)
    weights = np.sqrt(np.float64(squares) * dims)
    weights = np.maximum(weights / weights.max(), 1e-6)
    want = 1 + shares(weights, dims - 1, size - 12)
    assert np.abs(given - want).max() <= 1
  dims = np.array([5, 1, 300])
  zeros = np.zeros(3, np.float32)
  assert check(zeros, dims, 306).tolist() == [5, 1, 300]
  assert check(zeros, dims, 3).tolist() == [1, 1, 1]
  assert check(np.float32([1, 0, 0]), dims, 100)[0] == 5


def private_round_local():
  links = (
    aggregation.mean_over_cohort(privacy=cases.RELEASE.with_hyper(cases.HP)),
    transforms.broadcast(),
  )
  return federated(RoundLocal(lambda *_: None), *links)


test_slopes_have_no_privacy = refused(
  lambda call: call(),
  (lambda: Config(dataset='quadratics', algorithm='decomfl', epsilon=1.0),
    'decomfl'),
  (private_round_local, 'RoundLocal'),
)  # fmt: skip
