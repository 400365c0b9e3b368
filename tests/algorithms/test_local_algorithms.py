"""FedProx, FedDyn, FedNova, and optimizers of optax on clients."""

import cases
import chex
from fl_sketch import algorithms, local, rounds
from fl_sketch.local import optimizers
from fl_sketch.rounds import aggregation, mesh as mesh_lib, transforms as t
from fl_sketch.rounds.algorithm import federated
from generators import costs
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from quadratics import trail
from refusals import refused_calls
import registered

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
  hp = algorithms.Hyper(jnp.float32(0.5), jnp.float32(1.0))
  mesh = mesh_lib.cohort_mesh(1)
  state = rounds.init(build(hp), jnp.zeros(1), 3)
  state, _ = rounds.run_round(build, mesh)(hp, state, cohort, cases.KEY)
  ways = (1 - 0.5**steps) * targets[:, 0] / steps
  weight = np.array([0.25, 0.25, 0.5])
  want = (weight * steps).sum() * (weight * ways).sum()
  np.testing.assert_allclose(state.params, [want], rtol=1e-6)


@pytest.mark.parametrize('form', [
  'adamw(b2=0.9, eps=1e-3)',
  local.Optimizer(lambda rate: optax.adamw(rate, b2=0.9, eps=1e-3)),
  optax.adamw(float(cases.HP.client_lr), b2=0.9, eps=1e-3),
], ids=['text', 'optimizer', 'transformation'])  # fmt: skip
def test_every_form_of_an_optimizer_is_the_optimizer(form):
  """Catches options or a learning rate that get lost in one of the forms."""
  params, rate = cases.PARAMS, cases.HP.client_lr
  steps = []
  for x in (form, ADAMW):
    optimizer = optimizers.of(x).make(rate)
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


def test_a_factory_of_local_work_gets_it():
  """Catches own algorithms that get a task where they have had local work."""
  links = (
    aggregation.mean_over_cohort(), t.broadcast(),
    optax.scale_by_learning_rate(cases.HP.server_lr),
  )  # fmt: skip
  with registered.forgotten():
    own = lambda local, hp: federated(local, *links)
    algorithms.register(own, name='own', work='gradient')
    ends = [trail(make(name))[0][-1].params for name in ('fedsgd', 'own')]
  chex.assert_trees_all_equal(*ends)


adam = lambda name, **options: make(name, local_optimizer='adam', **options)
own = lambda name, **options: algorithms.make(
  name, local=lambda hp: None, **options
)
test_what_a_task_does_not_suit_is_refused = refused_calls(
  (lambda: adam('fedsgd'), 'local_optimizer'),
  (lambda: adam('scaffold', local_steps=2, population=N), 'local_optimizer'),
  (lambda: adam('fednova'), 'local_optimizer'),
  (lambda: own('fedavg', local_optimizer='adam'), 'local_optimizer'),
  (lambda: own('fedavg', client_clip=1.0), 'client_clip'),
  (lambda: make('decomfl', local_steps=2, client_clip=1.0), 'client_clip'),
  (lambda: own('fedprox'), 'loss_fn'),
  (lambda: own('decomfl', local_steps=2), 'loss_fn'),
  (lambda: make('fedsgd', local_steps=2), 'local_steps'),
  (lambda: make('fedavg', expected_batch=8), 'expected_batch'),
  (lambda: algorithms.make('fedavg'), 'loss_fn'),
  (lambda: make('fedavg', local_optimizer='adam(b3=1)'), 'b3'),
)


def test_algorithms_with_work_of_their_own_refuse_state_that_they_would_lose():
  """Catches an optimizer whose state is dropped without a word."""
  build = make(
    'cocktail_sgd', codec=cases.TOP, mask_ratio=0.5,
    local_optimizer=ADAMW | {'keep_state': True},
  )  # fmt: skip
  with pytest.raises(ValueError, match='local_optimizer'):
    trail(build)
