"""FedSKETCH with PRIVIX and HEAPRIX, and DiffSketch, its ancestor."""

from typing import Any
from typing import NamedTuple

from fl_sketch import comms
from fl_sketch import local as local_work
from fl_sketch import sketches
from fl_sketch import transforms as t
from fl_sketch.algorithms import base
from fl_sketch.sketches import estimators
import jax
import jax.numpy as jnp
import optax


class Heaprix(NamedTuple):
  """The tables and values of HEAPRIX: what a client makes, or their means.

  Attributes:
    table: f32[rows, cols], by the key of the round.
    fresh: f32[rows, cols], by a second key.
    exact: all d values on a client; their mean at the heavy support, f32[k],
      in what the server sends.
  """

  table: Any
  fresh: Any
  exact: Any


def fedsketch_privix(
  local: local_work.Local, hp: base.Hyper, *, sketch: sketches.Sketch
) -> base.Algorithm:
  r"""FedSKETCH with the PRIVIX decoder: a count sketch read by its median.

  :math:`x \leftarrow x - \gamma\,\mathrm{PRIVIX}(\frac1k \sum_j
  \mathrm{CS}(\Delta_j))`, hashes fresh every round.

  Args:
    local: local work.
    hp: hyperparameters.
    sketch: ``sketches.count_sketch(rows, cols)``.

  Symbols: client_lr eta; server_lr gamma; local_steps tau; rows t; cols m, and
  k in the experiments.

  Departures: the median of an even number of rows is the mean of the two middle
  values; the lower one of common code is biased, and the paper's experiments
  have 20 and 50 rows. Clients are sampled before the round, not after.

  Source: Haddadpour, Karimi, Li, Li, arXiv:2008.04975, Algorithm 5.
  """
  return base.federated(
    local,
    t.sketch(sketch),
    t.mean_over_cohort(),
    t.broadcast(),
    t.desketch(sketch),
    optax.scale_by_learning_rate(hp.server_lr),
  )


def diffsketch(
  local: local_work.Local,
  hp: base.Hyper,
  *,
  sketch: sketches.Sketch,
  noise_stddev: float = 0.0,
) -> base.Algorithm:
  r"""DiffSketch: FedSKETCH-PRIVIX with :math:`\gamma = 1` and local noise.

  :math:`x \leftarrow x - \mathrm{PRIVIX}(\frac1k \sum_j \mathrm{CS}(\Delta_j +
  \sigma z_j))`

  Args:
    local: local work.
    hp: hyperparameters; ``server_lr`` is not read.
    sketch: ``sketches.count_sketch(rows, cols)``.
    noise_stddev: of what a client adds to each coordinate.

  Symbols: noise_stddev sigma; as FedSKETCH for the rest.

  Departures: no privacy is claimed. The paper's epsilon supposes that updates
  are Gaussian; in the worst case a public hash of data gives none, and this
  noise is drawn from public keys.

  Source: Li, Liu, Sekar, Smith, arXiv:1911.00972.

  Raises:
    ValueError: the deviation is negative.
  """
  if noise_stddev < 0:
    raise ValueError(f'Expected {noise_stddev=} >= 0.')

  def add_noise(updates, _, *, keys, **__):
    z = optax.tree.random_like(keys.client, updates, jax.random.normal)
    return jax.tree.map(lambda x, n: x + noise_stddev * n, updates, z)

  noise = [t.per_client(t.stateless(add_noise))] if noise_stddev else []
  return base.federated(
    local,
    *noise,
    t.sketch(sketch),
    t.mean_over_cohort(),
    t.broadcast(),
    t.desketch(sketch),
    optax.scale(-1.0),
  )


def fedsketch_heaprix(
  local: local_work.Local,
  hp: base.Hyper,
  *,
  sketch: sketches.Sketch,
  k: int,
  exact: bool = True,
) -> base.Algorithm:
  r"""FedSKETCH with HEAPRIX: heavy coordinates, and a sketch of the rest.

  :math:`x \leftarrow x - \gamma (y_1 + \mathrm{PRIVIX}(\bar S' - S' y_1))`,
  where :math:`y_1` has the mean at the heavy support of :math:`\bar S`. A
  second uplink brings the values there and a table of independent hashes.

  Args:
    local: local work.
    hp: hyperparameters.
    sketch: ``sketches.count_sketch(rows, cols)``.
    k: heavy coordinates.
    exact: False is the paper read literally: the values and the rest come from
      the one table, no second uplink. It is biased: HEAVYMIX has emptied the
      very buckets that are read again.

  Symbols: client_lr eta; server_lr gamma; local_steps tau; rows t; cols and k
  both m.

  Departures: the paper says that no second round is needed, but exact values
  ask for one, and with shared hashes the tables it would send carry nothing
  new. A coordinate is heavy by its square.

  Source: Haddadpour, Karimi, Li, Li, arXiv:2008.04975, Algorithms 3 to 5.
  """
  step = optax.scale_by_learning_rate(hp.server_lr)
  if exact:
    keep, send, read = heaprix_links(sketch, k)
    return base.federated(local, keep, send, t.broadcast(), read, step)
  return base.federated(
    local,
    t.sketch(sketch),
    t.mean_over_cohort(),
    t.broadcast(),
    t.stateless(
      lambda table, params, *, keys, **_: _literal(
        sketch, keys.round, table, params, k
      )
    ),
    step,
  )


def heaprix_links(
  op: sketches.Sketch, k: int
) -> tuple[t.ClientTransform, t.Transform, t.Transform]:
  """HEAPRIX as links: before the two uplinks, both uplinks, after the downlink.

  Args:
    op: a count sketch.
    k: heavy coordinates.
  """

  def init(params):
    jax.eval_shape(op.like, params)  # raises if the table exceeds the model
    return optax.EmptyState()

  def tables(moved, state, params=None, *, keys, **_):
    del params
    fresh = op.sketch(_fresh(keys.round), moved)
    return Heaprix(op.sketch(keys.round, moved), fresh, moved), state

  def update(sent, bill, params=None, *, keys, weight, **_):
    mean, up = heaprix_mean(op, k, sent, params, keys=keys, weight=weight)
    return mean, bill._replace(up=bill.up + up)

  send = t.Transform(lambda params: comms.no_bill(), update)
  read = t.stateless(
    lambda mean, params, *, keys, **_: heaprix_read(
      op, k, mean, params, keys=keys
    )
  )
  return t.ClientTransform(init, tables), send, read


def heaprix_mean(op, k, sent, params, *, keys, weight):
  """Both uplinks: (the mean message, shared; uint32[] bytes of one client)."""
  table, first = comms.uplink(sent.table, weight)
  support = sketches.heavy_support(op, keys.round, table, params, k)
  exact = jax.vmap(lambda x: sketches.take(x, support))(sent.exact)
  (exact, fresh), second = comms.uplink((exact, sent.fresh), weight)
  return Heaprix(table, fresh, exact), comms.billed(first + second)


def heaprix_read(op, k, mean, params, *, keys):
  """The server's message -> estimate of the mean pseudo-gradient."""
  support = sketches.heavy_support(op, keys.round, mean.table, params, k)
  top = sketches.put(params, support, mean.exact)
  key = _fresh(keys.round)
  rest = op.desketch(key, mean.fresh - op.sketch(key, top), params)
  return jax.tree.map(jnp.add, top, rest)


def _literal(op, key, table, params, k):
  top = sketches.heavymix(op, key, table, params, k)
  rest = op.desketch(key, table - op.sketch(key, top), params)
  return jax.tree.map(jnp.add, top, rest)


def _fresh(key):
  return jax.random.fold_in(key, estimators.FRESH)
