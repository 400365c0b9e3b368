"""Rounds that iterative sketching needs to a loss, at the best step."""

from collections.abc import Callable, Mapping, Sequence
import functools
from typing import Any, NamedTuple

from fl_sketch import algorithms, sketches
from fl_sketch.utils.types import Params, Tree
import jax
import jax.numpy as jnp
import numpy as np

from ...common import programs


class Race(NamedTuple):
  """Losses of clients, and how they train to a share of the first loss."""

  loss_fn: Callable[[Params, Tree], jax.Array]
  data: Callable[[int], Tree]  # seed -> leaves [clients, samples, ...]
  start: Callable[[jax.Array], Params]  # key -> parameters
  least: float  # of the loss of all data
  target: float
  most: int  # rounds
  local_steps: int = 1
  batch: int = 0  # samples of a local step; 0: all
  server: str = 'sgd'
  client_lr: float | None = None  # None: it is tuned, and the server's is 1


class Finish(NamedTuple):
  """How one run ended."""

  rounds: float  # inf if it did not reach the target
  bytes: float  # of one client, up and down, in a round
  curve: np.ndarray  # f32[rounds + 1], the loss over the first
  params: Params


def runner(race: Race, op: sketches.Sketch) -> Callable[..., Finish]:
  """Build run(rate, seed, most) of a race; most is at most that of the race."""
  make = algorithms.make(
    'iterative_sketching', race.loss_fn, sketch=op, server_optimizer=race.server
  )

  @jax.jit
  def play(rate, seed, data, most):
    key, draws, first = jax.random.split(jax.random.key(seed), 3)
    one, own = jnp.float32(1), race.client_lr
    hp = algorithms.Hyper(rate, one) if own is None else algorithms.Hyper(
      jnp.float32(own), rate
    )  # fmt: skip
    gap = lambda p: jax.lax.map(lambda x: race.loss_fn(p, x), data).mean()
    over = lambda p: (gap(p) - race.least) / (begun - race.least)

    def step(carry):
      state, count, curve, _ = carry
      batches = _batches(race, data, jax.random.fold_in(draws, count))
      state, metrics = play_round(state, batches)
      sent = metrics['uplink_bytes'] + metrics['downlink_bytes']
      curve = curve.at[count + 1].set(over(state.params))
      return state, count + 1, curve, sent.astype(jnp.float32)

    def goes_on(carry):
      _, count, curve, _ = carry
      return (
        (count < most) & (curve[count] > race.target) & (curve[count] < 100)
      )

    params = race.start(first)
    begun = gap(params)
    begin = programs.everybody(make, jax.tree.leaves(data)[0].shape[0])
    state, play_round = begin(hp, key, params)
    curve = jnp.full(race.most + 1, jnp.nan).at[0].set(1.0)
    start = state, jnp.int32(0), curve, jnp.float32(0)
    state, *rest = jax.lax.while_loop(goes_on, step, start)
    return state.params, *rest

  cached_data = functools.lru_cache(race.data)

  def run(rate: float, seed: int, most: int | None = None) -> Finish:
    arguments = jnp.float32(rate), jnp.int32(seed), cached_data(seed)
    params, count, curve, sent = play(*arguments, most or race.most)
    curve = np.asarray(curve)[: int(count) + 1]
    reached = curve[-1] <= race.target
    return Finish(int(count) if reached else np.inf, float(sent), curve, params)

  return run


def _batches(race: Race, data: Tree, key: jax.Array) -> Tree:
  """The samples of every local step, leaves [clients, local_steps, ...]."""
  n, samples = jax.tree.leaves(data)[0].shape[:2]
  if not race.batch:
    every = lambda x: jnp.broadcast_to(
      x[:, None], (n, race.local_steps, *x.shape[1:])
    )
    return jax.tree.map(every, data)
  shape = n, race.local_steps, race.batch
  picked = jax.random.randint(key, shape, 0, samples)
  return jax.tree.map(lambda x: jax.vmap(lambda a, i: a[i])(x, picked), data)


def tuned(
  run: Callable[..., Finish], rate: float, seeds: Sequence[int], most: int
) -> tuple[float, dict[str, float]]:
  """Climb by factors of 2, then of its root, to the rate of fewest rounds.

  Returns it and the mean rounds of all rates that were tried, inf for those
  that reach nothing or are no better. The best is inside.
  """
  trials: dict[float, float] = {}

  def cost(x):
    total, least = 0.0, min(trials.values(), default=np.inf)
    for seed in seeds:
      left = min(least - total, most)
      total += run(x, seed, int(left)).rounds if left >= 1 else np.inf
    trials[x] = total
    return total

  best, fewest = rate, cost(rate)
  for factor in (0.5, 2.0, 0.5**0.5, 2.0**0.5):
    for _ in range(10):
      rounds = cost(best * factor)
      if rounds >= fewest and np.isfinite(fewest):
        break
      best, fewest = best * factor, rounds
  return best, {f'{x:.3g}': trials[x] / len(seeds) for x in sorted(trials)}


def race(
  registered: Mapping[str, Any], setting: Race, op: sketches.Sketch,
  start_rate: float, score: Callable[[Params], float] = lambda _: 0.0,
) -> dict[str, Any]:  # fmt: skip
  """Tune a race on the tuning seeds and run it on the others, as JSON."""
  run, tuning = runner(setting, op), registered['tuning_seeds']
  rate, trials = tuned(run, start_rate, tuning, setting.most)
  ends = [run(rate, seed) for seed in registered['seeds']]
  shortest = min(len(end.curve) for end in ends)
  shown = np.unique(np.linspace(0, shortest - 1, 40).astype(int))
  return {
    'rate': rate, 'trials': trials,
    'rounds': [end.rounds for end in ends], 'bytes': ends[0].bytes,
    'score': [score(end.params) for end in ends],
    'curve': [shown.tolist(), *(end.curve[shown].tolist() for end in ends)],
  }  # fmt: skip


def operator(kind: str, size: int) -> sketches.Sketch:
  """The operator of Table 1 of this size, a Count Sketch being one table."""
  if kind == 'count_sketch':
    return sketches.make(kind, rows=1, cols=size, combine='mean')
  options = {'sparsity': 2} if kind.startswith('sparse') else {}
  return sketches.make(kind, size=size, **options)
