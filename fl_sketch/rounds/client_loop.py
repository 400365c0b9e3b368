"""Loop over a shard's lanes (client slots): singly, chunked or all at once.

All of it is `unchecked`: a lane's work may be any function of JAX.
"""

from collections.abc import Callable

from fl_sketch.rounds import comms, marks
from fl_sketch.rounds.unchecked import outside_mesh, type_of, unchecked
from fl_sketch.utils.types import Tree
import jax
import jax.numpy as jnp

Present = Callable[[Tree], jax.Array]  # lane -> bool[]


def default_clients_per_step(
  platform: str | None = None, *, convolutions: bool = True
) -> int | None:
  """Return the default number of lanes to work on at once; None: all.

  Under vmap convolutions become grouped, which XLA is slow at on CPUs. The
  platform is by default that of the backend.
  """
  if (platform or jax.default_backend()) != 'cpu':
    return None
  return 1 if convolutions else 4


def map_clients(
  fn: Callable[[Tree], Tree], lanes: Tree, clients_per_step: int | None,
  present: Present | None = None,
) -> Tree:  # fmt: skip
  """Apply `fn` to every lane (client slot); leaves of lanes are [lanes, ...].

  clients_per_step: 1 = scan, None = vmap over all, n = scan over chunks of n,
  0 = the backend's default; results are equal. `fn` may close over shared
  values alone. With `present`, a scan skips absent lanes: their results are 0.
  """
  if clients_per_step == 0:
    clients_per_step = default_clients_per_step()
  if present is not None and clients_per_step == 1:
    fn = _where_present(fn, present)
  size, many = clients_per_step, marks.by_lane(fn)
  step = lambda total, chunk: (total, many(chunk))

  def loop(lanes):
    if size == 1:
      return jax.lax.map(fn, lanes)
    if size is None:
      return many(lanes)
    return _scan_chunks(step, None, lanes, size)[1]

  return marks.by_client(unchecked(loop)(lanes))


def sum_over_lanes(
  fn: Callable[[Tree], tuple[Tree, Tree, jax.Array, Tree]], lanes: Tree,
  clients_per_step: int | None, present: Present | None = None,
) -> tuple[comms.LaneSum, Tree]:  # fmt: skip
  """Add up decoded payloads: (their `LaneSum`, every lane's `rest`).

  `fn` is lane -> (payload, decoded payload, weight, rest), other arguments as
  of `map_clients`. Memory is that of `clients_per_step` clients, not of all
  lanes; `present` also skips chunks of absent lanes.
  """

  def term(decoded, weight):
    return comms.weighted(decoded, weight), comms.total_weight(weight)

  def one(lane):
    _, decoded, weight, rest = fn(lane)
    return term(decoded, weight), rest

  def many(chunk):
    terms, rest = marks.by_lane(one)(chunk)
    return jax.tree.map(lambda x: x.sum(0, dtype=x.dtype), terms), rest

  alone = clients_per_step == 1
  work = one if alone else many
  if present is not None:
    # Without it a chunk adds 0 anyway, and tells nothing of its clients.
    any_present = lambda chunk: marks.of_same(
      jax.vmap(present)(chunk).any(), chunk
    )
    work = _where_present(work, present if alone else any_present)

  def step(total, chunk):
    term, rest = work(chunk)
    return jax.tree.map(jnp.add, total, term), rest

  def loop(lanes):
    zeros = comms.zeros(shapes)
    if alone:
      return jax.lax.scan(step, zeros, lanes)
    if clients_per_step is None:
      return step(zeros, lanes)
    return _scan_chunks(step, zeros, lanes, clients_per_step)

  first = jax.tree.map(lambda x: type_of(x).update(shape=x.shape[1:]), lanes)
  # Work is traced here once, and once in its loop: a trace takes long.
  with outside_mesh():
    payload, *sent, _ = jax.eval_shape(fn, first)
  size, shapes = comms.nbytes(payload), jax.eval_shape(term, *sent)
  (total, weight), rest = unchecked(loop)(lanes)
  return comms.LaneSum(total, weight, size), marks.by_client(rest)


def _where_present(fn, present):
  skip = lambda lane: comms.zeros(jax.eval_shape(fn, lane))
  return lambda lane: jax.lax.cond(present(lane), fn, skip, lane)


def _scan_chunks(step, total, lanes, size):
  """Scan `step` over chunks of `size` lanes, then over the remaining lanes."""
  count = jax.tree.leaves(lanes)[0].shape[0]
  if size >= count:
    return step(total, lanes)
  whole = count - count % size
  chunk = lambda x: x[:whole].reshape((-1, size, *x.shape[1:]))
  total, rest = jax.lax.scan(step, total, jax.tree.map(chunk, lanes))
  rest = jax.tree.map(lambda x: x.reshape((whole, *x.shape[2:])), rest)
  if whole == count:
    return total, rest
  total, last = step(total, jax.tree.map(lambda x: x[whole:], lanes))
  return total, jax.tree.map(lambda x, y: jnp.concatenate([x, y]), rest, last)
