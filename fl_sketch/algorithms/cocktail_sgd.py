"""CocktailSGD: shared random subset, top-k and quantization, both ways."""

from typing import NamedTuple

from fl_sketch import codecs, sketches
from fl_sketch.local import Task
from fl_sketch.rounds import chain, comms, transforms as t
from fl_sketch.rounds.algorithm import Algorithm, Hyper, federated
from fl_sketch.rounds.error_feedback import check_codec, decoded_mean
from fl_sketch.rounds.keys import codec_key, subset_key
from fl_sketch.sketches import hashing
from fl_sketch.sketches.base import dimension
from fl_sketch.utils import fields
from fl_sketch.utils.types import Tree
import jax
import jax.numpy as jnp
import optax


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
