"""FedSKETCH with PRIVIX, HEAPRIX or gradient tracking; DiffSketch before it."""

import functools
from typing import NamedTuple

from fl_sketch import sketches
from fl_sketch.algorithms import control_variates as cv
from fl_sketch.algorithms.channel import Channel
from fl_sketch.local import Task
from fl_sketch.rounds import aggregation, chain, comms, transforms as t
from fl_sketch.rounds.algorithm import Algorithm, Hyper, federated
from fl_sketch.rounds.keys import noise_key
from fl_sketch.sketches import estimators
from fl_sketch.utils import fields
from fl_sketch.utils.types import Tree
import jax
import jax.numpy as jnp
import optax


class Heaprix(NamedTuple):
  """Tables and values of HEAPRIX, of a client or in the server's message."""

  table: Tree  # f32[rows, cols], by the key of the round
  fresh: Tree  # f32[rows, cols], by a second key
  exact: Tree  # all d values; in the message means at the heavy support, f32[k]
  support: Tree = None  # int32[k], which clients derive from the table


def fedsketch_privix(task: Task, hp: Hyper, channel: Channel) -> Algorithm:
  r"""FedSKETCH with the PRIVIX decoder: a count sketch decoded by its median.

  :math:`x \leftarrow x - \gamma\,\mathrm{PRIVIX}(\frac1k \sum_j
  \mathrm{CS}(\Delta_j))`, hashes fresh every round.

  Options:
    sketch: R, ``sketches.count_sketch(rows, cols)``.

  Symbols: client_lr eta; server_lr gamma; local_steps tau; rows t; cols m or k.

  Departures: the median of an even number of rows is the mean of the two middle
  values: the lower one is biased. Clients are sampled before the round. The
  mean table goes to all clients: the paper sends it to the next cohort alone,
  whose models would miss the tables before it.

  Source: Haddadpour, Karimi, Li, Li, arXiv:2008.04975, Algorithm 5.
  """
  return federated(
    task.steps(hp), *channel.links(), optax.scale_by_learning_rate(hp.server_lr)
  )


def diffsketch(
  task: Task,
  hp: Hyper,
  *,
  sketch: sketches.Sketch,
  noise_stddev: fields.NonNegative | None = None,
) -> Algorithm:
  r"""DiffSketch: FedSKETCH-PRIVIX with :math:`\gamma = 1` and local noise.

  :math:`x \leftarrow x - \mathrm{PRIVIX}(\frac1k \sum_j \mathrm{CS}(\Delta_j +
  \sigma z_j))`

  Options:
    sketch: as of `fedsketch_privix`.
    noise_stddev: of a client's noise on each coordinate; None: no noise.

  Symbols: noise_stddev sigma; as FedSKETCH for the rest. server_lr is not read.

  Departures: no privacy is claimed: the paper's epsilon assumes Gaussian
  updates, and this noise is drawn from public keys.

  Source: Li, Liu, Sekar, Smith, arXiv:1911.00972.
  """

  def add_noise(updates, _, *, keys, **__):
    z = optax.tree.random_like(noise_key(keys), updates, jax.random.normal)
    return jax.tree.map(lambda x, n: x + noise_stddev * n, updates, z)

  channel, noisy = Channel(sketch), noise_stddev is not None
  noise = [t.per_client(t.stateless(add_noise))] if noisy else []
  return federated(task.steps(hp), *noise, *channel.links(), optax.scale(-1.0))


def fedsketch_heaprix(
  task: Task,
  hp: Hyper,
  *,
  sketch: sketches.Sketch,
  k: fields.Count,
  exact: bool = True,
  privacy: aggregation.PrivateMean | None = None,
) -> Algorithm:
  r"""FedSKETCH with HEAPRIX: heavy coordinates, and a sketch of the rest.

  :math:`x \leftarrow x - \gamma (y_1 + \mathrm{PRIVIX}(\bar S' - S' y_1))`,
  where :math:`y_1` has the mean at the heavy support of :math:`\bar S`. A
  second uplink sends the values there and a table of independent hashes.

  Options:
    sketch: ``sketches.count_sketch(rows, cols)``.
    k: heavy coordinates.
    exact: False is the paper read literally: the values and the rest come from
      one table, without a second uplink, which is biased.

  Symbols: client_lr eta; server_lr gamma; local_steps tau; rows t; cols, k: m.

  Departures: the paper says that no second uplink is needed, but exact values
  require one. A coordinate is heavy by its square.

  Source: Haddadpour, Karimi, Li, Li, arXiv:2008.04975, Algorithms 3 to 5.
  """
  step = optax.scale_by_learning_rate(hp.server_lr)
  if exact:
    exchange = chain.exchange(
      lambda params: comms.bill(),
      lambda payloads, _, params, **extra: heaprix_mean(
        sketch, k, payloads, params, **extra
      ),
      means=aggregation.cohort_means(2, privacy=privacy),
      broadcasts=True,
    )
    tables, link = heaprix_tables(sketch), heaprix_reader(sketch)
    return federated(task.steps(hp), tables, exchange, link, step)

  def read(table, params, *, keys, **_):
    key = keys.round
    top = sketches.heavymix(sketch, key, table, params, k)
    rest = sketch.desketch(key, table - sketch.sketch(key, top), params)
    return jax.tree.map(jnp.add, top, rest)

  return federated(
    task.steps(hp),
    t.sketch(sketch),
    aggregation.mean_over_cohort(privacy=privacy),
    t.broadcast(),
    t.stateless(read),
    step,
  )


def heaprix_tables(op: sketches.Sketch) -> chain.Link:
  """Client: pseudo-gradient -> two tables of independent hashes, and values."""
  link = t.sketch(op)

  def tables(moved, state, params=None, *, keys, **extra):
    table, state = link.update_fn(moved, state, params, keys=keys, **extra)
    return Heaprix(table, op.sketch(_fresh(keys.round), moved), moved), state

  return chain.Link(link.init_fn, tables, chain.CLIENT)


def heaprix_mean(op, k, payloads, params, *, keys, comm, means, **extra):
  """Run both uplinks and downlinks: (the mean message, shared; the bill)."""
  table, first = means[0](payloads.table, comm=comm, **extra)
  table = comm.announce(table)
  support = sketches.heavy_support(op, keys.round, table, params, k)
  exact = jax.vmap(lambda x: sketches.gather(x, support))(payloads.exact)
  sums, second = means[1]((exact, payloads.fresh), comm=comm, **extra)
  exact, fresh = comm.announce(sums)
  down = comms.bill(down=comms.nbytes((table, exact, fresh)))
  bill = comms.total_bill([first, second, down])
  return Heaprix(table, fresh, exact, support), bill


def heaprix_reader(op: sketches.Sketch) -> chain.Link:
  """The mean message of HEAPRIX -> an estimate of the mean pseudo-gradient."""

  def read(mean, params, *, keys, **_):
    top = sketches.scatter(params, mean.support, mean.exact)
    key = _fresh(keys.round)
    rest = op.desketch(key, mean.fresh - op.sketch(key, top), params)
    return jax.tree.map(jnp.add, top, rest)

  return t.stateless(read)


def _fresh(key):
  return jax.random.fold_in(key, estimators.FRESH)


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
  `linear_reader`). A linear D and equal weights keep :math:`\sum_j c_j = 0`
  over all clients, of whom the absent keep theirs, hence the fixed point is the
  optimum of :math:`\sum_j f_j`.

  Options:
    sketch: ``sketches.count_sketch(rows, cols)``, whose `combine` is that of
      Phi, or any operator that is linear or has a `linear_reader`.
    k: Phi is HEAPRIX with k heavy coordinates; None is the sketch's desketch.
    control_gain: beta; None is 1 / (1 + alpha) of D, the fastest for c_j.
    printed: the paper's update of c_j: D is the sketch's desketch, the median,
      and the factor 1 / tau, whatever the ``control_gain``.
    privacy: bounds and noise on uplinks of all clients; all c_j drift equally.

  Symbols: client_lr eta; server_lr gamma; local_steps tau; rows t; cols m.

  Departures: the paper prints no factor 1 / eta, and the median as D, under
  which :math:`\sum_j c_j` drifts and the iterates stall. Phi is read before
  c_j. Our gain is that of DIANA (Mishchenko et al., arXiv:1901.09269).

  Source: Haddadpour, Karimi, Li, Li, arXiv:2008.04975, Algorithm 6.
  """
  scale = 1 / (local_steps if printed else hp.client_lr * local_steps)
  reader = sketch if printed else linear_reader(sketch)
  bound = (lambda table: table) if privacy is None else privacy.clipped
  means = aggregation.cohort_means(1 if k is None else 2, privacy=privacy)
  encode, mean, read = t.sketch(sketch), _mean, t.desketch(sketch)
  table_of = lambda payload: payload
  if k is not None:
    encode = heaprix_tables(sketch)
    mean = functools.partial(heaprix_mean, sketch, k)
    read = heaprix_reader(sketch)
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
    full_participation=privacy is not None,
  )


def _mean(tables, params, *, comm, means, **extra):
  mean, up = means[0](tables, comm=comm, **extra)
  mean = comm.announce(mean)
  return mean, comms.total_bill([up, comms.bill(down=comms.nbytes(mean))])


def linear_reader(op: sketches.Sketch) -> sketches.Sketch:
  """The operator if it is linear, or its linear reader; ValueError if none."""
  reader = op if op.properties.linear else op.linear_reader
  if reader is None:
    raise ValueError(f'sketch={op.properties.name!r} has no linear_reader.')
  return reader
