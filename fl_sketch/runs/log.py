"""Make the records of rounds: metrics, communication cost and epsilon."""

from collections.abc import Callable
from typing import Any

from fl_sketch.accounting import types
from fl_sketch.rounds import Cohort, comms, mesh as mesh_lib, traffic
from fl_sketch.rounds.algorithm import with_hyper
from fl_sketch.runs import (
  Experiment,
  caveats,
  client_metrics,
  metrics as metrics_lib,
  sampler,
)
from fl_sketch.runs.method import hyper_of
from fl_sketch.runs.metrics import Row
from fl_sketch.utils import UserError
from fl_sketch.utils.types import Tree
import jax
from jax.sharding import Mesh, PartitionSpec as P
import numpy as np


class DivergedError(UserError, FloatingPointError):
  """The server's state, or the updates of all clients, are not finite."""


class RunLog:
  """The records of the rounds of one run, made in order, and its bytes."""

  def __init__(self, exp: Experiment, ledger: traffic.Ledger | None = None):
    self._exp = exp
    self.ledger = empty_ledger(exp) if ledger is None else ledger
    self._epsilons = epsilons_by_round(exp)

  def record(self, number: int, cohort: Cohort, metrics: Row) -> Row:
    """Return the record of a round, and charge its bytes to the ledger.

    `cohort` is in host memory, `metrics` an element of `on_host`. Raises
    DivergedError, which names the round and what is not finite.
    """
    if what := _not_finite(self._exp, cohort, metrics):
      raise DivergedError(f'Round {number}: {what} are not finite')
    record, config = {'round': number, **metrics}, self._exp.config
    names = 'finite', 'uplink_bytes', 'downlink_bytes'
    _, up, down = (record.pop(name) for name in names)
    if config.shows_all:
      ids, weight = np.asarray(cohort.ids), np.asarray(cohort.weight)
      outcome = cohort.outcome
    else:  # of the same distribution, by the public seed
      ids, weight, outcome = sampler.selection(config, number, config.seed)
    charged = self.ledger.charge(ids, weight, up, down, outcome)
    for name, value in charged.items():
      if config.shows_all or name.endswith('_bytes'):
        record[name] = value
    if self._epsilons is not None:
      record['epsilon'] = self._epsilons[number]
    real = (cohort.ids < config.population).sum()
    full = config.shows_all and config.max_cohort == real
    self.ledger.note_left_out(record | {'full_cohorts': int(full)})
    return record


def metrics_of(exp: Experiment) -> Callable[..., Any]:
  """Return the metrics of a model, ((params, hyper), batch) -> sums."""

  def metrics_fn(model, batch):
    params, hyper = model
    return with_hyper(exp.metrics_fn, hyper)(params, batch)

  return metrics_fn


def evaluator(
  fn: Callable[..., Any], exp: Experiment, mesh: Mesh
) -> Callable[..., Row]:
  """Return evaluate(params, hyper) -> metrics of a row of the log.

  These are means over the test samples, and statistics over clients, without
  those that `config.public_metrics` leaves out. `fn` is the jitted
  `rounds.run_evaluation` of `metrics_of(exp)`.
  """
  of_clients = client_metrics.evaluator(metrics_of(exp), exp, mesh)
  if caveats.is_left_out(exp.config, exp.test_of_clients, 'test_loss'):
    return lambda params, hyper: of_clients((params, hyper))
  test = mesh_lib.pad(exp.test, mesh.size)
  test = mesh_lib.place(mesh, test, P(comms.SHARD))

  def evaluate(params, hyper):
    sums = jax.device_get(fn((params, hyper), test))
    count = sums.pop('count')
    mean = lambda name: float(metrics_lib.mean(name, sums[name], count))
    means = {f'test_{name}': mean(name) for name in sums}
    return means | of_clients((params, hyper))

  return evaluate


def empty_ledger(exp: Experiment) -> traffic.Ledger:
  """Return the ledger of bytes before the first round."""
  algorithm = exp.make(exp.hyper)
  state = comms.nbytes(jax.eval_shape(algorithm.server.init, exp.params))
  dense, population = comms.nbytes(exp.params), exp.config.population
  return traffic.Ledger.empty(population, dense, state, algorithm.epoch)


def on_host(metrics: Tree, points: int, count: int) -> list[list[Row]]:
  """Transfer metrics, leaves [points x count], to the host: by point, round."""
  arrays = jax.device_get(metrics)
  arrays = {k: v.reshape(points, count) for k, v in arrays.items()}
  return [
    [{k: v[p, r].item() for k, v in arrays.items()} for r in range(count)]
    for p in range(points)
  ]


def privacy_summary(exp: Experiment) -> Row:
  """Return the privacy statement of a private run, for its summary."""
  guarantee = exp.guarantee
  return {'privacy': guarantee.statement.as_dict()} if guarantee else {}


def epsilons_by_round(exp: Experiment) -> list[float | str] | None:
  """Return epsilon after every round of a private run; 'inf' without noise.

  The accountant is slow: it computes epsilon after the last round and after
  m 2^k rounds with m < 8; other rounds have the epsilon of the next of these.
  Raises ValueError if the hyperparameters are not those of the config.
  """
  if exp.guarantee is None:
    return None
  # With other hyperparameters the noise would have another size.
  hyper = hyper_of(exp.config, exp.guarantee)
  current = exp.hyper._replace(frozen=None)
  if jax.device_get(current) != jax.device_get(hyper):
    raise ValueError(
      f'A private run requires the hyperparameters of its config, {hyper}; got '
      f'{current}. Set them in the config.'
    )
  last = exp.config.rounds
  coarse = {m << k for m in range(1, 8) for k in range(last.bit_length())}
  grid = sorted({r for r in coarse if r < last} | {last})
  epsilons = types.plain(exp.guarantee.epsilons(grid))
  return [epsilons[i] for i in np.searchsorted(grid, np.arange(1, last + 1))]


def _not_finite(exp, cohort, metrics) -> str | None:
  """Return what is not finite after a round, or None."""
  if not metrics['finite']:
    return 'parts of the server state'
  # All of a small cohort may be rejected. A private run must not stop because
  # of its clients' updates: that would leak.
  defences = exp.attack, exp.max_payload_norm, exp.guarantee
  if any(x is not None for x in defences):
    return None
  sent = int((cohort.weight > 0).sum())
  return 'all updates' if 0 < sent == metrics['rejected_clients'] else None
