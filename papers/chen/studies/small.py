"""Runs of a small network by an algorithm: one program for all seeds, rates."""

from collections.abc import Callable
import functools
from typing import Any, NamedTuple

from fl_sketch import algorithms, models, runs
import jax
import jax.numpy as jnp
import numpy as np

from ...common import programs

CLIENTS = 5  # with equal shares, all in every round


class Work(NamedTuple):
  """How long a run is, and what a client does in a round."""

  rounds: int
  steps: int = 1
  batch: int = 32
  client_lr: float = 1.0  # with one step a client sends its gradient


def runner(
  exp: runs.Experiment,
  method: Callable[[Any], Any],
  work: Work,
  marks: int,
  measure: Callable[[Any], Any],
) -> Callable[[float, int], Any]:
  """Compile (rate, seed) -> measures at the start and at so many equal marks.

  `method` is loss -> the algorithm's `make`; seeds draw the model, batches and
  operators. Also the uplink bytes of a client and round.
  """
  begin = programs.everybody(method(exp.loss_fn), CLIENTS)
  data = {k: jnp.asarray(x) for k, x in exp.data.items()}
  share = len(data['x']) // CLIENTS
  begins = share * np.arange(CLIENTS)[:, None, None]

  def one(data, rate, seed):
    hp = algorithms.Hyper(jnp.float32(work.client_lr), rate)
    key, draws, first = jax.random.split(jax.random.key(seed), 3)
    params = models.init_params(exp.model, first, data['x'].shape[1:])

    def step(state, i):
      size = CLIENTS, work.steps, work.batch
      draw = jax.random.randint(jax.random.fold_in(draws, i), size, 0, share)
      batches = {k: x[begins + draw] for k, x in data.items()}
      state, metrics = play_round(state, batches)
      return state, metrics['uplink_bytes']

    def block(state, numbers):
      state, sent = jax.lax.scan(step, state, numbers)
      return state, (measure(state.params), sent[0])

    numbers = jnp.arange(work.rounds).reshape(marks, -1)
    state, play_round = begin(hp, key, params)
    _, (values, sent) = jax.lax.scan(block, state, numbers)
    both = lambda x, y: jnp.concatenate([x[None], y])
    return jax.tree.map(both, measure(params), values), sent[0]

  compiled = jax.jit(one)
  return lambda rate, seed: compiled(data, jnp.float32(rate), seed)


def loss_and_accuracy(exp: runs.Experiment, samples: int = 2000):
  """Make params -> training loss on the first samples, and test accuracy, %.

  A model that is not finite has the accuracy of a constant, 10 %.
  """
  first = {k: jnp.asarray(x[:samples]) for k, x in exp.data.items()}
  test = {k: jnp.asarray(x) for k, x in exp.test.items()}

  def measure(params):
    loss = exp.loss_fn(params, first)
    sums = jax.lax.map(functools.partial(exp.metrics_fn, params), test)
    right = sums['accuracy'].sum() / sums['count'].sum()
    return loss, jnp.where(jnp.isfinite(loss), 100 * right, 10.0)

  return measure
