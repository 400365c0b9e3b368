"""The message of a client, as a function of its inputs."""

from collections.abc import Callable
from typing import Any

from fl_sketch import local as local_work, sketches
from fl_sketch.rounds.algorithm import Local, LossFn
import jax

Tree = Any
View = Callable[[Tree, Tree, jax.Array | None], Tree]


def view(
  loss_fn: LossFn,
  *,
  local: Local | None = None,
  batches: int = 1,
  sketch: sketches.Sketch | None = None,
) -> View:
  """Builds the client's side of a round: (params, batch, key) -> its message.

  The batch has leaves [samples, ...], and the key is that of the sketch, a
  linear operator; None sends the update itself. The client splits its samples
  into `batches`, for local steps. Its `local` work is by default one gradient,
  `local.gradient(loss_fn)`; `local.sgd(loss_fn, client_lr, local_steps=K)` is
  the update of K steps, whose derivatives go through all of them.

  >>> import jax.numpy as jnp
  >>> message_of = view(lambda w, x: 0.5 * jnp.sum((w[None] - x) ** 2))
  >>> message_of(jnp.zeros(2), jnp.ones((1, 2)), None).tolist()
  [-1.0, -1.0]
  """
  work = local_work.gradient(loss_fn) if local is None else local

  def message_of(params, batch, key):
    split = lambda x: x.reshape(batches, -1, *x.shape[1:])
    update, _ = work(params, jax.tree.map(split, batch), None, None)
    return update if sketch is None else sketch.sketch(key, update)

  return message_of
