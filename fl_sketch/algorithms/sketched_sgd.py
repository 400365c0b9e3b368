"""SketchedSGD: exact values where a sketch sees heavy coordinates."""

import functools
from typing import Any, NamedTuple

from fl_sketch import sketches
from fl_sketch.rounds import aggregation, comms, transforms as t
from fl_sketch.rounds.algorithm import Algorithm, Hyper, Local, federated
from fl_sketch.sketches.base import dimension
import jax
from jax import lax
import jax.numpy as jnp
import optax


class State(NamedTuple):
  """What outlives a round.

  Attributes:
    residual: `PerClient`, what each has not yet got through.
    momentum: `PerClient`, of each client's gradients.
    bill: of the two uplinks.
  """

  residual: comms.PerClient
  momentum: comms.PerClient
  bill: comms.Bill


class Message(NamedTuple):
  """What the server sends.

  Attributes:
    candidates: int32[P k], whose exact values it asked for.
    values: f32[k], the means of those kept, in the candidates' order.
    kept: uint8[P k / 8], one bit a candidate.
  """

  candidates: jax.Array
  values: jax.Array
  kept: jax.Array


def sketched_sgd(
  local: Local,
  hp: Hyper,
  *,
  sketch: sketches.Sketch,
  k: int,
  candidates: int = 4,
  momentum: float = 0.0,
  privacy: aggregation.PrivateMean | None = None,
) -> Algorithm:
  r"""Top-k of the mean of :math:`a_i = e_i + \eta u_i`, found by its sketch.

  The P k largest estimates of :math:`\bar S` are candidates; a second uplink
  brings their exact values, whose mean's k largest are subtracted from w.
  There, and only there, :math:`e_i` and :math:`u_i` become 0.

  Args:
    local: one gradient.
    hp: hyperparameters.
    sketch: ``sketches.count_sketch(rows, cols)``.
    k: coordinates of a step.
    candidates: how many times k are asked for.
    momentum: :math:`u_i \leftarrow \rho u_i + g_i` on a client, set to 0 where
      its value got through (momentum factor masking); 0 is none.
    privacy: bounds and noise on what is sent, once for each uplink; None is no
      privacy.

  Symbols: server_lr eta; candidates P.

  Departures: hashes are fresh every round; no table outlives one. The mean over
  clients, and eta within what accumulates, where the authors' code has the sum,
  and eta on the step.

  Source: Ivkin et al., NeurIPS 2019, arXiv:1903.04488, Algorithm 2; checked
  against the authors' code, github.com/dhroth/sketchedsgd.

  Raises:
    ValueError: k or ``candidates`` is below 1, or k exceeds the model.
  """
  if k < 1 or candidates < 1:
    raise ValueError(f'Expected {k=} >= 1 and {candidates=} >= 1.')

  find = functools.partial(_find, sketch, k, candidates)
  means = aggregation.cohort_means(2, privacy=privacy)
  return federated(
    local,
    _exchange(find, means, k, momentum, hp.server_lr),
    t.stateless(
      lambda sent, params, **_: sketches.put(
        params, _support(sent), -sent.values
      )
    ),
  )


def _exchange(find, means, k, momentum, server_lr) -> t.Exchange:
  """Gradients -> what the server sends; clears what got through."""

  def init(params):
    if k > (d := dimension(params)):
      raise ValueError(f'Expected {k=} <= {d=}.')
    zeros = comms.PerClient(optax.tree.zeros_like(params))
    return State(
      zeros, zeros if momentum else comms.PerClient(()), comms.bill()
    )

  def update(grads, state, params=None, **extra):
    velocity = grads
    if momentum:
      add = lambda u, g: momentum * u + g
      velocity = jax.tree.map(add, state.momentum.value, grads)
    add = lambda e, u: e + server_lr * u
    wanted = jax.tree.map(add, state.residual.value, velocity)
    message, bill = find(wanted, params, **extra)
    sent = sketches.put(params, _support(message), jnp.ones(k))
    clear = lambda rows: jax.tree.map(
      lambda x, hit: jnp.where(hit[None] > 0, 0, x), rows, sent
    )
    rows = clear(velocity) if momentum else ()
    return message, State(
      comms.PerClient(clear(wanted)), comms.PerClient(rows), bill
    )

  return t.Exchange(init, update, means=means, broadcasts=True)


def _find(op, k, candidates, wanted, params, *, keys, means, **extra):
  """Both uplinks: (what the server sends, the bill)."""
  sketch = lambda keys, x: op.sketch(keys.round, x)
  per_step = extra['lanes_per_step']
  tables = t.over_lanes(sketch, keys, wanted, lanes_per_step=per_step)
  table, first = means[0](tables, **extra)
  estimate = op.desketch(keys.round, table, params)
  top = _largest(estimate, candidates * k)
  exact = jax.vmap(lambda x: sketches.take(x, top))(wanted)
  mean, second = means[1](exact, **extra)
  message = _keep(top, mean, k)
  down = comms.bill(down=comms.nbytes(message))
  return message, comms.total_bill([first, second, down])


def _largest(tree: Any, count: int) -> jax.Array:
  """int32[count], where a tree is largest in magnitude; all of it at most."""
  vector = jnp.concatenate([jnp.ravel(x) for x in jax.tree.leaves(tree)])
  return lax.top_k(jnp.abs(vector), min(count, vector.size))[1]


def _keep(candidates, values, k) -> Message:
  _, kept = lax.top_k(jnp.abs(values), k)
  kept = jnp.sort(kept)
  bits = jnp.zeros(values.size, bool).at[kept].set(True)
  return Message(candidates, values[kept], jnp.packbits(bits))


def _support(message: Message) -> jax.Array:
  """int32[k], where the values of a message belong."""
  count = message.candidates.size
  bits = jnp.unpackbits(message.kept, count=count)
  (kept,) = jnp.nonzero(bits, size=message.values.size)
  return message.candidates[kept]
