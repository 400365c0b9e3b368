"""FedSKETCHGATE: FedSKETCH with gradient tracking for heterogeneous clients."""

import functools

from fl_sketch import sketches
from fl_sketch.algorithms import control_variates as cv, fedsketch
from fl_sketch.local import Task
from fl_sketch.rounds import aggregation, chain, comms, transforms as t
from fl_sketch.rounds.algorithm import Algorithm, Hyper, federated
from fl_sketch.utils import fields
import jax
import optax


def fedsketchgate(
  task: Task,
  hp: Hyper,
  *,
  sketch: sketches.Sketch,
  local_steps: int,
  k: fields.Count | None = None,
  control_gain: fields.Positive | None = None,
  printed: bool = False,
  privacy: aggregation.PrivateMean | None = None,
) -> Algorithm:
  r"""Local steps along :math:`g_j - c_j`, with c_j updated from sketches.

  :math:`x \leftarrow x - \gamma \Phi(\bar S)` and :math:`c_j \leftarrow c_j -
  \frac\beta{\eta\tau}(D(\bar S) - D(S_j))`, with D the mean over the rows of
  the table that :math:`\Phi` may read by the median (the sketch's
  `linear_reader`). A linear D keeps :math:`\sum_j c_j = 0`, hence the fixed
  point is the optimum of :math:`\sum_j f_j` whatever their heterogeneity. Every
  client takes part in every round, with equal weights.

  Options:
    sketch: ``sketches.count_sketch(rows, cols)``, whose `combine` is that of
      Phi, or any operator that is linear or has a `linear_reader`.
    k: Phi is HEAPRIX with k heavy coordinates; None is the sketch's desketch.
    control_gain: beta; None is 1 / (1 + alpha) of D, the fastest for c_j.
    printed: the paper's own update of c_j: D is the sketch's desketch, the
      median, and the factor 1 / tau, whatever the ``control_gain``.
    privacy: bounds and noise on every uplink; it makes all c_j drift equally.

  Symbols: client_lr eta; server_lr gamma; local_steps tau; rows t; cols m.

  Departures: the paper prints no factor 1 / eta, and the median as D, under
  which :math:`\sum_j c_j` drifts and the iterates stall. Phi is read before
  c_j. Our gain is that of DIANA (Mishchenko et al., arXiv:1901.09269).

  Raises ValueError if the sketch is not linear and has no linear reader, or, in
  a round, the cohort is partial.

  Source: Haddadpour, Karimi, Li, Li, arXiv:2008.04975, Algorithm 6.
  """
  scale = 1 / (local_steps if printed else hp.client_lr * local_steps)
  reader = sketch if printed else linear_reader(sketch)
  bound = (lambda table: table) if privacy is None else privacy.clipped
  means = aggregation.cohort_means(1 if k is None else 2, privacy=privacy)
  encode, mean, read = t.sketch(sketch), _mean, t.desketch(sketch)
  table_of = lambda payload: payload
  if k is not None:
    encode = fedsketch.heaprix_tables(sketch)
    mean = functools.partial(fedsketch.heaprix_mean, sketch, k)
    read = fedsketch.heaprix_reader(sketch)
    table_of = lambda payload: payload.table

  def update(payloads, state, params=None, *, keys, **extra):
    message, bill = mean(payloads, params, keys=keys, **extra)
    tables = jax.vmap(bound)(table_of(payloads))
    gain = 1 if printed else control_gain
    if gain is None:
      alpha = reader.properties.alpha
      gain = 1 if alpha is None else 1 / (1 + alpha(params))
    of_client = lambda _, table: reader.desketch(keys.round, table, params)
    estimates = t.over_lanes(of_client, tables, keys=keys, **extra)
    of_mean = of_client(keys, table_of(message))
    move = lambda c, phi, phi_j: c - gain * scale * (phi[None] - phi_j)
    moved = jax.tree.map(move, state.client.value, of_mean, estimates)
    return message, cv.Variates(comms.PerClient(moved), (), bill)

  return federated(
    task.steps(hp),
    encode,
    chain.exchange(cv.client_variates, update, means=means, broadcasts=True),
    read,
    optax.scale_by_learning_rate(hp.server_lr),
    correction=cv.less_variate,
    full_participation=True,
  )


def _mean(tables, params, *, comm, means, **extra):
  """Clients' tables -> (their mean, the bill)."""
  mean, up = means[0](tables, comm=comm, **extra)
  mean = comm.announce(mean)
  return mean, comms.total_bill([up, comms.bill(down=comms.nbytes(mean))])


def linear_reader(op: sketches.Sketch) -> sketches.Sketch:
  """The operator if it is linear, or its linear reader; ValueError if none."""
  reader = op if op.properties.linear else op.linear_reader
  if reader is None:
    raise ValueError(f'sketch={op.properties.name!r} has no linear_reader.')
  return reader
