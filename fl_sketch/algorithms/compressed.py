"""FedCOM with any codec, DeMo, signSGD by majority vote, and CocktailSGD."""

from typing import NamedTuple

from fl_sketch import codecs, sketches
from fl_sketch.algorithms import server_optimizers
from fl_sketch.local import Task
from fl_sketch.rounds import aggregation, chain, comms, transforms as t
from fl_sketch.rounds.algorithm import Algorithm, Hyper, federated
from fl_sketch.rounds.error_feedback import (
  check_codec,
  compress,
  decoded_mean,
  decoder,
)
from fl_sketch.rounds.keys import codec_key, subset_key
from fl_sketch.sketches import hashing
from fl_sketch.sketches.base import dimension
from fl_sketch.utils import fields
from fl_sketch.utils.types import Tree
import jax
from jax import flatten_util
import jax.numpy as jnp
import optax


def fedcom(
  task: Task,
  hp: Hyper,
  *,
  codec: codecs.Codec,
  error_feedback: bool = False,
  residual_decay: fields.Part = 1.0,
  server_optimizer: server_optimizers.ServerOptimizer = 'sgd',
  schedule: optax.Schedule | None = None,
) -> Algorithm:
  r"""Local steps, independent compression, the mean of the decoded payloads.

  :math:`w \leftarrow w - \gamma \frac1n \sum_j Q_j(\Delta_j)`, the
  :math:`Q_j` independent. With error feedback :math:`Q_j(p_j)` is sent, where
  :math:`p_j = e_j + \Delta_j`; :math:`e_j \leftarrow \beta (p_j - Q_j(p_j))`.

  Options:
    codec: Q, unbiased; with error feedback a contraction, else a ValueError.
    error_feedback: whether a client keeps the residual of the compression.
    residual_decay: beta, 1 (or a ValueError) without error feedback.

  Symbols: client_lr eta; server_lr gamma; local_steps tau; residual_decay beta.

  Departures: the paper sends :math:`\Delta_j / \eta` and steps by
  :math:`\eta\gamma`, which is the same. Biased codecs (top-k, signs), error
  feedback (Seide et al. 2014; Stich et al. 2018), its decay (SparseLoCo) and
  server optimizers other than 'sgd' are not in the paper.

  Source: Haddadpour et al., AISTATS 2021, arXiv:2007.01154, Algorithm 1.
  """
  return federated(
    task.steps(hp),
    compress(
      codec, error_feedback=error_feedback, residual_decay=residual_decay
    ),
    aggregation.mean_over_cohort(decode=decoder(codec)),
    t.broadcast(),
    server_optimizers.server_step(hp, server_optimizer, schedule),
  )


def demo(
  task: Task,
  hp: Hyper,
  *,
  codec: codecs.Codec,
  momentum: fields.Part = 0.999,
  signs: bool = True,
  schedule: optax.Schedule | None = None,
) -> Algorithm:
  r"""Decoupled momentum: what a client sends leaves its momentum.

  :math:`m_i \leftarrow \beta m_i + g_i`, a client sends :math:`q_i = C(m_i)`
  and keeps :math:`m_i - q_i`; :math:`x \leftarrow x - \eta\,\mathrm{sign}
  (\frac1n \sum_i q_i)`. The server sends the signs, packed eight a byte.

  Options:
    codec: C, a contraction, else a ValueError; as ``codecs.dct_blocks(32)``.
    momentum: beta, in (0, 1], else a ValueError.
    signs: False: a step along the mean, which the server sends as d floats.

  Symbols: server_lr eta; g_i a gradient; momentum beta; codec C, the k largest
  coefficients of the DCT-II of each block, with `codecs.dct_blocks`.

  Departures: the mean is over all clients; the authors' code averages a
  coefficient over those that sent it. A zero counts as +1. Gradients enter the
  momentum without the step size; no weight decay.

  Source: Peng, Quesnelle, Kingma, arXiv:2411.19870, Algorithm 1; checked
  against the authors' code, github.com/bloc97/DeMo.
  """
  down = broadcast_signs() if signs else (t.broadcast(),)
  return federated(
    task.gradient(hp),
    compress(codec, error_feedback=True, residual_decay=momentum),
    aggregation.mean_over_cohort(decode=decoder(codec)),
    *down,
    server_optimizers.server_step(hp, schedule=schedule),
  )


def signsgd(task: Task, hp: Hyper) -> Algorithm:
  r"""Signs up, the majority's signs down, packed eight a byte.

  :math:`w \leftarrow w - \delta\,\mathrm{sign}(\sum_j \mathrm{sign}(g_j))`;
  zeros and ties count as +1. With error feedback signs need their scale:
  `fedcom` with `codecs.sign`.

  Symbols: server_lr delta; g_j a gradient.

  Departures: none.

  Source: Bernstein et al., ICML 2018, arXiv:1802.04434, Algorithm 3.
  """
  decode = lambda _, bits, like: _unpack(bits, like)
  return federated(
    task.gradient(hp),
    t.per_client(t.stateless(_pack)),
    aggregation.mean_over_cohort(decode=decode),
    *broadcast_signs(),
    optax.scale_by_learning_rate(hp.server_lr),
  )


def broadcast_signs() -> tuple[chain.Link, ...]:
  """The links of a downlink in signs, of which zeros count as +1."""
  read = t.stateless(lambda bits, params, **_: _unpack(bits, params))
  return t.stateless(_pack), t.broadcast(), read


def _pack(tree, *_, **__):
  flat, _ = flatten_util.ravel_pytree(tree)
  return jnp.packbits(flat >= 0)


def _unpack(bits, like):
  flat, unravel = flatten_util.ravel_pytree(like)
  return unravel(2.0 * jnp.unpackbits(bits, count=flat.size) - 1)


class Residuals(NamedTuple):
  """CocktailSGD's residuals between rounds."""

  client: comms.PerClient  # the shared model less the client's model
  server: Tree  # of the server's compression
  bill: comms.Bill


def cocktail_sgd(
  task: Task, hp: Hyper, *, codec: codecs.Codec, mask_ratio: fields.Part
) -> Algorithm:
  r"""Local steps from each client's own model, compressed thrice, both ways.

  With M a random subset of the coordinates, the same for all and new in every
  round, a client at :math:`x_i` sends :math:`c_i = Q((X - x_i)_M)` and adds
  it to its model, which keeps the residual. The server sends
  :math:`C = Q(\frac1n \sum_i c_i + e_M)` and keeps the residual in e;
  :math:`X_M \leftarrow X_M - \eta_g C`.

  Options:
    codec: of the subset, such as `codecs.quantized_top_k`.
    mask_ratio: the share of the coordinates in M.

  Symbols: client_lr gamma; server_lr 1; mask_ratio p; codec Q, top-k and bits.

  Departures: of the authors' masks the one without replacement. Their server is
  sharded over the workers, ours is one.

  Source: Wang et al., ICML 2023, PMLR 202:36058; from the authors' code.
  """
  local = task.steps(hp)

  def like(params):
    size = max(1, round(mask_ratio * dimension(params)))
    return jax.ShapeDtypeStruct((size,), jnp.float32)

  def subset_of(keys, params):  # the distinct coordinates, int32[m]
    size = like(params).size
    return hashing.sample(subset_key(keys), size, dimension(params))

  def from_own_model(params, batches, key, residual):
    start = jax.tree.map(jnp.subtract, params, residual)
    moved, metrics = local(start, batches, key, None)
    return jax.tree.map(jnp.add, residual, moved), metrics

  def encode(difference, _, *, keys, **__):
    subset = subset_of(keys, difference)
    values = sketches.gather(difference, subset)
    key = codec_key(keys.client)
    payload = codec.encode(key, values)
    values = codec.decode(key, payload, values)
    decoded = sketches.scatter(difference, subset, values)
    return payload, jax.tree.map(jnp.subtract, difference, decoded)

  def read(message, params, *, keys, **_):
    subset = subset_of(keys, params)
    values = codec.decode(codec_key(keys.round), message, like(params))
    return sketches.scatter(params, subset, values)

  def init(params):
    check_codec(codec, like(params))
    zeros = optax.tree.zeros_like(params)
    return Residuals(comms.PerClient(zeros), zeros, comms.bill())

  def update(updates, state, params=None, *, keys, **extra):
    payload, client = updates
    subset = subset_of(keys, params)
    _, mean, up = decoded_mean(codec, payload, like(params), keys=keys, **extra)
    residual = sketches.gather(state.server, subset)
    target = mean + residual
    key = codec_key(keys.round)
    message = codec.encode(key, target)
    change = target - codec.decode(key, message, like(params)) - residual
    change = sketches.scatter(params, subset, change)
    server = jax.tree.map(jnp.add, state.server, change)
    return message, Residuals(comms.PerClient(client), server, comms.bill(up))

  return federated(
    from_own_model,
    t.per_client(t.stateless(encode)),
    chain.exchange(init, update),
    t.broadcast(),
    t.stateless(read),
    optax.scale_by_learning_rate(hp.server_lr),
    correction=lambda protocol: chain.state_of(protocol, Residuals).client,
  )
