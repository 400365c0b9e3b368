"""Gaussian mechanisms: clipped sums and noise.

A mechanism bounds every contribution to an L2 norm C, rounds it to a grid, adds
integers up and adds one draw of discrete Gaussian noise of deviation z C.
"""

from collections.abc import Callable
import functools
import math

from fl_sketch.privacy.mechanisms import grid as grid_lib
from fl_sketch.rounds import comms, marks, mesh
from fl_sketch.utils.types import Batch, Key, Params, Tree
import jax
import jax.numpy as jnp

CLIP_NORMS = 1e-24, 1e24  # where the grid has all bits of float32


def privatize_sum(
  key: Key,
  stacked: Tree,
  mask: jax.Array,
  *,
  max_norm: jax.Array | float,
  noise_multiplier: jax.Array | float,
  bound: str = 'clip',
) -> Tree:
  """Sum bounded contributions and add one draw of noise.

  Divide the sum by a constant, never by `mask.sum()`. The key is secret.
  Contributions have leaves [n, ...]; rows whose mask, [n], is not above 0 are
  left out. The noise has the standard deviation z C, of the `noise_multiplier`
  z and the `max_norm` C, f32[] each. The bound is 'clip' or 'normalize'.

  One more row moves the sum by at most `max_norm`, and one row replaced by at
  most twice that. The noise does not depend on `mask`.
  """
  grid = _grid(max_norm, noise_multiplier, mask.shape[0])
  bounded = functools.partial(
    grid_lib.contribution, grid=grid, clip_norm=max_norm, bound=bound
  )
  return _noisy(key, _sum_of(jax.vmap(bounded)(stacked), mask > 0), grid)


def noisy_gradient_sum(
  loss_fn: Callable[[Params, Batch], jax.Array],
  *,
  max_norm: jax.Array | float,
  noise_multiplier: jax.Array | float,
  microbatch_size: int | None = None,
) -> Callable[[Key, Params, Batch, jax.Array], tuple[Params, jax.Array]]:
  """Build (key, params, batch, mask) -> (noisy sum of gradients, losses).

  The contributions to `privatize_sum` are gradients of single samples; the loss
  is the mean over a leading axis of samples. The key is secret; mask, [batch],
  leaves samples out; losses are f32[batch]. `microbatch_size` gradients are in
  memory at once; None: all.

  >>> off = {'max_norm': 1.0, 'noise_multiplier': 0.0}
  >>> fn = noisy_gradient_sum(lambda w, x: (w * x).mean(), **off)
  >>> args = jnp.float32(2), jnp.array([0.5, 9]), jnp.ones(2)
  >>> round(float(fn(jax.random.key(0), *args)[0]), 3)
  1.5
  """

  def noisy_sum(key, params, batch, mask):
    n = mask.shape[0]
    grid = _grid(max_norm, noise_multiplier, n)

    def of_sample(sample):
      alone = jax.tree.map(lambda x: x[None], sample)
      loss, grad = jax.value_and_grad(loss_fn)(params, alone)
      return loss, grid_lib.contribution(grad, grid, max_norm)

    def add(total, chunk):
      samples, taken = chunk
      loss, grad = marks.by_lane(of_sample)(samples)
      return jax.tree.map(jnp.add, total, _sum_of(grad, taken)), loss

    size = math.ceil(n / math.ceil(n / (microbatch_size or n)))  # even chunks
    chunk = lambda x: x.reshape(-1, size, *x.shape[1:])
    chunks = jax.tree.map(
      chunk, mesh.pad(marks.samples((batch, mask > 0)), size)
    )
    zeros = jax.tree.map(jnp.zeros_like, grid_lib.encode(params, grid))
    total, losses = jax.lax.scan(add, zeros, chunks)
    return _noisy(key, total, grid), losses.reshape(-1)[:n]

  return noisy_sum


def _grid(max_norm, noise_multiplier, clients):
  numbers = {'clip_norm': max_norm, 'noise_multiplier': noise_multiplier}
  return grid_lib.make(**numbers, clients=clients)


def _noisy(key, total, grid):
  noisy = jax.tree.map(jnp.add, total, grid_lib.noise(key, total, grid))
  return grid_lib.decode(marks.released(noisy), grid)


def _sum_of(tree, taken):
  """Sum the rows of leaves uint32[n, ...] whose bool[n] is true."""
  add = lambda x: x.sum(0, dtype=x.dtype)  # where x64 is enabled, too
  return jax.tree.map(add, comms.where_present(tree, taken))
