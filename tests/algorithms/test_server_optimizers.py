"""Server optimizers: any of optax is on the server what it is in a loop."""

import functools

import cases
import chex
from fl_sketch import algorithms, rounds, runs
from fl_sketch.algorithms import server_optimizers
from fl_sketch.local import optimizers
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.runs.config import Config
from harness import DP
import jax
import jax.numpy as jnp
import laws
import numpy as np
import optax
from refusals import refused
import registered

FACTORIES = optimizers.of_optax()
OWN = {'adagrad', 'adam', 'amsgrad', 'sgd', 'yogi'}  # in the form of papers
START = {'w': jnp.array([[1.0, 2], [3, -4], [0.5, 0]]), 'b': jnp.array([0.1])}
BATCHES = np.ones((1, 1, 1), np.float32)  # of one client, its factors
RATES = 0.03, 0.3


def bowl(params, factor):
  w, b = params['w'] - 1, params['b'] - 2
  return (w**2).sum() + (factor * b**2).sum()


def in_a_loop(tx):
  """The parameters after four steps of optax alone."""

  @laws.jit
  def step(params, state):
    grad = jax.grad(bowl)(params, BATCHES[0, 0])
    updates, state = tx.update(grad, state, params)
    return optax.apply_updates(params, updates), state

  params, state = START, tx.init(START)
  for _ in range(4):
    params, state = step(params, state)
  return params


@laws.law(sorted({*FACTORIES} - OWN), fast=('muon',))
def test_rounds_of_a_sweep_are_steps_of_optax(name):
  """Catches a sign, or a rate that is lost or counts twice, and lost params."""
  make = algorithms.make('fedsgd', bowl, server_optimizer=name)
  hps = algorithms.Hyper(jnp.ones(2), jnp.array(RATES))
  states = jax.vmap(lambda hp: rounds.init(make(hp), START, 1))(hps)
  round_fn = rounds.run_round(make, mesh_lib.cohort_mesh(1))
  sweep = laws.jit(jax.vmap(round_fn, (0, 0, None, None)))
  ids, one = np.zeros(1, np.int32), np.ones(1, np.float32)
  for _ in range(4):
    cohort = rounds.Cohort(ids, one, BATCHES)
    states, _ = sweep(hps, states, cohort, cases.KEY)
  for i, rate in enumerate(RATES):
    want = in_a_loop(FACTORIES[name](learning_rate=rate))
    got = jax.tree.map(lambda x, i=i: x[i], states.params)
    chex.assert_trees_all_close(got, want, rtol=1e-5, atol=1e-6)


decayed = functools.partial(optax.adamw, weight_decay=0.1)


halves = lambda count: 0.5**count


def test_names_texts_and_functions_get_options_and_the_scheduled_rate():
  """Catches options that are lost, and decay that a schedule leaves out."""
  with registered.forgotten():
    server_optimizers.register(decayed, name='own_adamw')
    for form in (decayed, 'adamw(weight_decay=0.1)', 'own_adamw'):
      if isinstance(form, str):
        assert Config(server_optimizer=form).server_optimizer == form
      link = server_optimizers.server_step(cases.HP, form, halves)
      tx = decayed(lambda count: cases.HP.server_lr * halves(count))
      chex.assert_trees_all_close(in_a_loop(link), in_a_loop(tx), rtol=1e-5)


free = optax.contrib.schedule_free_sgd
fixed = optax.adam(0.1)  # its rate, which ascended on the server


def made(field, optimizer, **options):
  options |= {field: optimizer}
  algorithms.make('fedavg', bowl, **options)(cases.HP)


# Catches steps up the hill, and optimizers that lack what they need.
test_what_makes_no_step_at_a_rate_is_refused = refused(
  lambda call: call(),
  *[(functools.partial(made, field, optimizer), f'{field}.*{said}')
    for field in ('server_optimizer', 'local_optimizer')
    for optimizer, said in (
      (fixed, 'function of learning_rate'), (optax.lbfgs, "'value'"),
      ('lbfgs', 'the loss'), ('sam', 'two gradients'), (free, 'parameters'),
      ('schedule_free_sgd', 'parameters'), ('lin', "register.*'lion'"),
      (optax.scale_by_lion, 'learning_rate'), ('lion(b3=1)', r"\['b3'\]"),
      ('adamw(mu_dtype="x")', "'x'"),
    )],
  (lambda: made('server_optimizer', 'sm3', schedule=abs), 'with a schedule'),
  (lambda: Config(server_optimizer=fixed), 'server_optimizers.register'),
  (lambda: Config(server_optimizer='lion(b2=0.9)', b2=0.9), 'b2=0.9'),
  error=(TypeError, ValueError),
)  # fmt: skip


def test_epsilon_does_not_depend_on_what_follows_the_release():
  """Catches an account that the server's optimizer moves."""
  private = {'dataset': 'digits'} | DP
  account = lambda x: runs.account(Config(**private, server_optimizer=x))
  assert account('muon').statement == account(None).statement
