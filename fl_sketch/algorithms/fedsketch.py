"""FedSKETCH with PRIVIX and HEAPRIX, and DiffSketch, its ancestor."""

from typing import NamedTuple

from fl_sketch import sketches
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
  values: the lower one is biased. Clients are sampled before the round.

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
    sketch: ``sketches.count_sketch(rows, cols)``.
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
