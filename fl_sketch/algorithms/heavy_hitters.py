"""FetchSGD and SketchedSGD: heavy coordinates that a sketch finds."""

from typing import Annotated, NamedTuple

from fl_sketch import codecs, sketches
from fl_sketch.algorithms import server_optimizers
from fl_sketch.local import Task
from fl_sketch.rounds import aggregation, chain, comms, transforms as t
from fl_sketch.rounds.algorithm import Algorithm, Hyper, federated
from fl_sketch.rounds.error_feedback import check_codec
from fl_sketch.sketches.base import dimension
from fl_sketch.utils import fields
from fl_sketch.utils.types import Tree
import jax
from jax import lax
import jax.numpy as jnp
import optax

_SPARSE = (
  'count_sketch', 'block_cyclic', 'sparse_embedding', 'uniform_sampling',
  'identity',
)  # fmt: skip


class Tables(NamedTuple):
  """Server state, two tables by the hash of the run: U and E."""

  momentum: Tree
  error: Tree


def fetchsgd(
  task: Task,
  hp: Hyper,
  *,
  sketch: sketches.Sketch,
  k: fields.Count,
  momentum: float = 0.9,
  error_update: Annotated[str, fields.choice(('zero', 'subtract'))] = 'zero',
  momentum_masking: bool = True,
  privacy: aggregation.PrivateMean | None = None,
  codec: codecs.Codec | None = None,
  schedule: optax.Schedule | None = None,
) -> Algorithm:
  r"""Heavy hitters of an error table, :math:`w \leftarrow w - \Delta`.

  :math:`U \leftarrow \rho U + \bar S`, :math:`E \leftarrow E + \eta U`,
  :math:`\Delta = \mathrm{top}_k(\mathrm{desk}(E))`, which then leaves E.
  The hash is that of the run: U and E outlive the round, and tables of
  different hashes must not be added.

  Options:
    sketch: ``sketches.count_sketch(rows, cols)``, large enough for k.
    k: coordinates of a step.
    momentum: rho; 0 is none.
    error_update: 'subtract' is the paper's :math:`E - \mathrm{CS}(\Delta)`;
      'zero' empties every cell that :math:`\mathrm{CS}(\Delta)` hits, as the
      authors' code does, and is stable at larger rates.
    momentum_masking: whether U is emptied at those cells. Like 'zero' it
      requires a sparse sketch, else a ValueError.
    schedule: round -> factor on the step, after the extraction.

  Symbols: server_lr eta; momentum rho; sketch S, of one gradient a client.

  Departures: the defaults are those of the authors' code, not of Algorithm 1;
  that code multiplies by the rate after the extraction, which differs where
  the rate varies. The server sends k values and their indices.

  Source: Rothchild et al., ICML 2020, arXiv:2007.07682, Algorithm 1.
  """
  name = sketch.properties.name
  if (error_update == 'zero' or momentum_masking) and name not in _SPARSE:
    raise ValueError(
      f'sketch={name!r} must be one of {_SPARSE}; or set '
      "error_update='subtract' and momentum_masking=False."
    )
  top = codecs.top_k(k)

  def update(table, state, params=None, *, keys, **_):
    velocity = momentum * state.momentum + table
    error = state.error + hp.server_lr * velocity
    estimate = sketch.desketch(keys.run, error, params)
    payload = top.encode(keys.run, estimate)
    cells = sketch.sketch(keys.run, top.decode(keys.run, payload, params))
    if error_update == 'zero':
      error = jnp.where(cells != 0, 0, error)
    else:
      error = error - cells
    if momentum_masking:
      velocity = jnp.where(cells != 0, 0, velocity)
    return payload, Tables(velocity, error)

  def init(params):
    check_codec(top, params)
    return Tables(sketch.zero_table(params), sketch.zero_table(params))

  unit = hp._replace(server_lr=jnp.float32(1))  # the rate is in E
  read = lambda sent, params, *, keys, **_: top.decode(keys.run, sent, params)
  return federated(
    task.gradient(hp),
    t.sketch(sketch, hash_rounds=0),
    aggregation.mean_over_cohort(privacy=privacy, codec=codec),
    chain.Link(init, update, chain.SHARED),
    t.broadcast(),
    t.stateless(read),
    server_optimizers.server_step(unit, schedule=schedule),
  )


class State(NamedTuple):
  """SketchedSGD's state between rounds."""

  residual: comms.PerClient  # e_i, the part of a_i that no step has used yet
  momentum: comms.PerClient  # of each client's gradients
  bill: comms.Bill


class Message(NamedTuple):
  """The broadcast of the server: aggregated values and their coordinates."""

  candidates: jax.Array  # int32[P k], of which clients send exact values
  values: jax.Array  # f32[k], means at the support, in the candidates' order
  support: jax.Array  # uint8[P k / 8], one bit a candidate


def sketched_sgd(
  task: Task,
  hp: Hyper,
  *,
  sketch: sketches.Sketch,
  k: fields.Count,
  candidates: fields.Count = 4,
  momentum: float = 0.0,
  privacy: aggregation.PrivateMean | None = None,
) -> Algorithm:
  r"""Top-k of the mean of :math:`a_i = e_i + \eta u_i`, located by its sketch.

  The P k largest estimates of :math:`\bar S` are candidates; a second uplink
  sends their exact values, whose mean's k largest are subtracted from w.
  There, and only there, :math:`e_i` and :math:`u_i` become 0.

  Options:
    sketch: ``sketches.count_sketch(rows, cols)``.
    k: coordinates of a step; a ValueError if the model has fewer.
    candidates: P, in units of k.
    momentum: rho of :math:`u_i \leftarrow \rho u_i + g_i` on a client.

  Symbols: server_lr eta; candidates P; g_i a gradient.

  Departures: hashes are fresh every round; no table outlives one. The mean over
  clients, and eta in what accumulates; theirs has the sum, and eta on the step.

  Source: Ivkin et al., NeurIPS 2019, arXiv:1903.04488, Algorithm 2; checked
  against the authors' code, github.com/dhroth/sketchedsgd.
  """

  def init(params):
    if k > (d := dimension(params)):
      raise ValueError(f'{k=} exceeds {d=}; use a smaller k.')
    zeros = comms.PerClient(optax.tree.zeros_like(params))
    velocity = zeros if momentum else comms.PerClient(())
    return State(zeros, velocity, comms.bill())

  def update(grads, state, params=None, *, keys, comm, means, **extra):
    velocity = grads
    if momentum:
      add = lambda u, g: momentum * u + g
      velocity = jax.tree.map(add, state.momentum.value, grads)
    add = lambda e, u: e + hp.server_lr * u
    total = jax.tree.map(add, state.residual.value, velocity)
    of_client = lambda keys, x: sketch.sketch(keys.round, x)
    tables = t.over_lanes(of_client, total, keys=keys, **extra)
    table, first = means[0](tables, comm=comm, **extra)
    estimate = sketch.desketch(keys.round, table, params)
    vector = jnp.concatenate([jnp.ravel(x) for x in jax.tree.leaves(estimate)])
    _, top = lax.top_k(jnp.abs(vector), min(candidates * k, vector.size))
    top = comm.announce(top)
    exact = jax.vmap(lambda x: sketches.gather(x, top))(total)
    mean, second = means[1](exact, comm=comm, **extra)
    best = jnp.sort(lax.top_k(jnp.abs(mean), k)[1])
    bits = jnp.zeros(mean.size, bool).at[best].set(True)
    message = Message(top, *comm.announce((mean[best], jnp.packbits(bits))))
    down = comms.bill(down=comms.nbytes(message))
    bill = comms.total_bill([first, second, down])
    hits = sketches.scatter(params, _support(message), jnp.ones(k))
    clear = lambda rows: jax.tree.map(
      lambda x, hit: jnp.where(hit[None] > 0, 0, x), rows, hits
    )
    residual = comms.PerClient(clear(total))
    velocity = comms.PerClient(clear(velocity) if momentum else ())
    return message, State(residual, velocity, bill)

  means = aggregation.cohort_means(2, privacy=privacy)
  exchange = chain.exchange(init, update, means=means, broadcasts=True)
  step = lambda message, params, **_: sketches.scatter(
    params, _support(message), -message.values
  )
  return federated(task.gradient(hp), exchange, t.stateless(step))


def _support(message: Message) -> jax.Array:
  bits = jnp.unpackbits(message.support, count=message.candidates.size)
  (top,) = jnp.nonzero(bits, size=message.values.size)
  return message.candidates[top]
