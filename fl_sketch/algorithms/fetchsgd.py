"""FetchSGD: momentum and error feedback on the server, in tables."""

from typing import Annotated, NamedTuple

from fl_sketch import codecs, sketches
from fl_sketch.algorithms import server_optimizers
from fl_sketch.local import Task
from fl_sketch.rounds import aggregation, chain, error_feedback, transforms as t
from fl_sketch.rounds.algorithm import Algorithm, Hyper, federated
from fl_sketch.utils import fields
from fl_sketch.utils.types import Tree
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
    momentum: 0 is none.
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
    error_feedback.check_codec(top, params)
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
