"""The message of a client, as a function of its inputs."""

from collections.abc import Callable

from fl_sketch import local as local_work, sketches
from fl_sketch.rounds.algorithm import Local, LossFn
from fl_sketch.utils.types import Batch, Key, Params, Tree
import jax

View = Callable[[Params, Batch, Key | None], Tree]


def view(
  loss_fn: LossFn, *, local: Local | None = None, batches: int = 1,
  sketch: sketches.Sketch | None = None,
) -> View:  # fmt: skip
  """Build (params, batch, key of the sketch) -> the message of a client.

  The batch has leaves [samples, ...], and is split into `batches` for local
  steps. `local` is by default `local.gradient(loss_fn)`; derivatives go through
  all steps of `local.sgd(loss_fn, client_lr, local_steps=K)`. `sketch` None
  sends the update itself.

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
