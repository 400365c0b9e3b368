"""Zeroth-order steps: values of the loss along directions of shared seeds."""

from collections.abc import Callable

from fl_sketch.local.sgd import draws, in_turn, mask_of
from fl_sketch.rounds import keys as keys_lib
from fl_sketch.rounds.algorithm import LossFn, RoundLocal
from fl_sketch.sketches import hashing
from fl_sketch.utils.types import Tree
import jax
from jax import lax
import jax.numpy as jnp


def zeroth_order(
  loss_fn: LossFn,
  client_lr: jax.Array | float,
  seeds: Callable[[keys_lib.RoundKeys], jax.Array],
  *,
  mu: jax.Array | float,
) -> RoundLocal:
  r"""K steps along P random directions each; a client sends the slopes.

  With f32[] numbers eta = `client_lr` and mu,
  :math:`g_p = (f(u + \mu z_p; B_k) - f(u - \mu z_p; B_k)) / 2 \mu` and
  :math:`u \leftarrow u - \frac\eta P \sum_p g_p z_p` from :math:`u = w`, with
  independent normal z. The mean of g z is the gradient of f smoothed by normal
  steps of size mu. Memory is that of a forward pass and one copy of the
  parameters, or two if K > 1.

  >>> keys = keys_lib.round_keys(jax.random.key(0), 0)
  >>> seeds = lambda keys: hashing.seeds(keys.round, 2, hashing.ENTRY)[None]
  >>> local = zeroth_order(lambda w, batch: w.sum(), 0.1, seeds, mu=0.5)
  >>> local.apply(jnp.zeros(4), jnp.zeros((1, 1)), keys, None)[0].shape
  (1, 2)

  An argument `key` of the loss is the same at all points of a step. `seeds` is
  keys of a client -> the seeds of its z, uint32[K, P, 2]. A client sends
  f32[K, P]. Batches are as of `sgd`: on padding g is 0.

  Source: SPSA (Spall, 1992) with seeds in place of z, as MeZO (Malladi et al.,
  NeurIPS 2023, arXiv:2305.17333, Algorithm 1).
  """

  def apply(params, batches, keys, correction):
    if correction is not None:
      raise ValueError('zeroth_order does not support a correction; pass None.')
    all_seeds = seeds(keys)
    steps, count = all_seeds.shape[:2]
    scales = mu * jnp.where(jnp.arange(2 * count) % 2 == 0, 1.0, -1.0)
    loss_draws = draws(loss_fn, keys_lib.local_key(keys), steps)
    turns, batch_of = in_turn(batches, steps)

    def step(theta, inputs):
      turn, step_seeds, draw = inputs
      batch = batch_of(turn)
      value = lambda point: loss_fn(along(theta, *point), batch, **draw)
      # One loop over all points: XLA would keep z during one over two signs.
      losses = lax.map(value, (jnp.repeat(step_seeds, 2, axis=0), scales))
      slopes = (losses[::2] - losses[1::2]) / (2 * mu)
      mask = mask_of(batch)
      filled = jnp.bool(True) if mask is None else (mask > 0).any()
      slopes = jnp.where(filled, slopes, 0)
      theta = combine(theta, step_seeds, -client_lr / count * slopes)
      return theta, (slopes, losses.mean(), filled.astype(losses.dtype))

    _, (slopes, losses, filled) = lax.scan(
      step, params, (turns, all_seeds, loss_draws)
    )
    mean = (losses * filled).sum() / jnp.maximum(filled.sum(), 1)
    return slopes, {'train_loss': mean}

  return RoundLocal(apply)


def along(tree: Tree, seed: jax.Array, scale: jax.Array | float) -> Tree:
  """Add `scale` times the normal z of a seed uint32[2] to a tree of floats."""
  leaves, treedef = jax.tree.flatten(tree)
  moved = []
  for i, x in enumerate(leaves):  # of less than 2^32 numbers each
    counter = jnp.uint32(2 * i) + jnp.arange(2, dtype='uint32')
    leaf_seed = hashing.word(counter, seed)
    words = hashing.word(jnp.arange(x.size, dtype=jnp.uint32), leaf_seed)
    z = hashing.normal(words).reshape(x.shape)
    moved.append(x + (scale * z).astype(x.dtype))
  return treedef.unflatten(moved)


def combine(tree: Tree, seeds: jax.Array, weights: jax.Array) -> Tree:
  """Add weights f32[n] times the z of seeds uint32[n, 2]; 0 makes no z."""

  def add(total, term):
    seed, weight = term
    more = lambda: along(total, seed, weight)
    return lax.cond(weight != 0, more, lambda: total), None

  return lax.scan(add, tree, (seeds, weights))[0]
