"""Gaussian mechanisms: clipped sums, noise, and sampling.

A mechanism is: bound every contribution to an L2 norm C, round it to a grid,
add integers up, add one draw of discrete Gaussian noise of deviation z C whose
size does not depend on who took part, divide by a constant (`grid`). No
function raises on traced values: non-finite numbers count as 0.
"""

from collections.abc import Callable
import math
from typing import Any

from fl_sketch.privacy.mechanisms import grid as grid_lib
from fl_sketch.privacy.mechanisms.clipping import BOUNDS, clip_by_l2_norm
from fl_sketch.rounds import comms, marks, mesh
from fl_sketch.utils import checks
import jax
import jax.numpy as jnp

Tree = Any
CLIP_NORMS = 1e-24, 1e24  # where the grid has all bits of float32


def gaussian_noise(
  key: jax.Array, tree: Tree, stddev: jax.Array | float
) -> Tree:
  """Draws independent N(0, stddev^2) noise in the shapes of a tree.

  The noise alone, in float32, complex64, or better. It is continuous, and its
  last bits tell what it was added to: for noise that protects nobody by itself.
  Private sums get that of `grid`. Half the sum of four normal draws: a single
  one of float32 ends at 5.4 standard deviations, and what lies beyond tells
  neighbours apart. The key[] is secret, the deviation f32[], and the tree of
  arrays, or of ShapeDtypeStructs; complex ones get noise in both parts.

  >>> gaussian_noise(jax.random.key(0), jnp.zeros(2), 1.0).shape
  (2,)

  Guarantees:
    Tails: the support reaches 10.8 standard deviations.
    Leaves: noises of different leaves are independent.
  """
  leaves, structure = jax.tree.flatten(tree)

  def draw(i, x):
    dtype = jnp.promote_types(x.dtype, jnp.float32)
    four = jax.random.normal(jax.random.fold_in(key, i), (4, *x.shape), dtype)
    # JAX's complex normals have a variance of 1/2 in each part.
    half = 0.5**0.5 if jnp.iscomplexobj(four) else 0.5
    return jnp.asarray(half * stddev, four.real.dtype) * four.sum(0)

  return jax.tree.unflatten(structure, [draw(*x) for x in enumerate(leaves)])


def privatize_sum(
  key: jax.Array,
  stacked: Tree,
  mask: jax.Array,
  *,
  max_norm: jax.Array | float,
  noise_multiplier: jax.Array | float,
  bound: str = 'clip',
) -> Tree:
  """Sums bounded contributions and adds one draw of noise.

  Divide the sum by a constant, never by ``mask.sum()``. The key[] is secret.
  Contributions have leaves [n, ...]; rows whose mask, [n], is not above 0 are
  left out. The noise has the standard deviation z C, of the `noise_multiplier`
  z and the `max_norm` C, f32[] each. The bound is 'clip' or 'normalize'.

  >>> contributions = jnp.full((3, 2), 9.0)
  >>> mask, off = jnp.zeros(3), {'max_norm': 1.0, 'noise_multiplier': 0.0}
  >>> privatize_sum(jax.random.key(0), contributions, mask, **off).tolist()
  [0.0, 0.0]

  Guarantees:
    Sensitivity: without the noise, one row more moves the sum by at most
    ``max_norm``, and one row replaced by at most twice that.
    Noise: its law does not depend on ``mask``; an empty one gives noise alone.
  """
  checks.choice('bound', bound, tuple(BOUNDS))
  bounded, _ = jax.vmap(BOUNDS[bound], (0, None))(stacked, max_norm)
  grid = _grid(max_norm, noise_multiplier, mask.shape[0])
  encoded = jax.vmap(lambda x: grid_lib.encode(x, grid))(bounded)
  return _noisy(key, _sum_of(encoded, mask > 0), grid)


def noisy_gradient_sum(
  loss_fn: Callable[[Any, Any], jax.Array],
  *,
  max_norm: jax.Array | float,
  noise_multiplier: jax.Array | float,
  microbatch_size: int | None = None,
) -> Callable[[jax.Array, Any, Any, jax.Array], tuple[Tree, jax.Array]]:
  """Builds (key, params, batch, mask) -> (noisy sum of gradients, losses).

  The key is secret; mask, [batch], leaves samples out; losses are f32[batch].
  Numbers are as of `privatize_sum`, of the gradient of one sample, and the loss
  is (params, batch) -> f32[], the mean over a leading axis of samples. So many
  gradients as `microbatch_size` are held at once; None is all.

  >>> off = {'max_norm': 1.0, 'noise_multiplier': 0.0}
  >>> fn = noisy_gradient_sum(lambda w, x: (w * x).mean(), **off)
  >>> args = jnp.float32(2), jnp.array([0.5, 9]), jnp.ones(2)
  >>> round(float(fn(jax.random.key(0), *args)[0]), 3)
  1.5

  Guarantees:
    Sensitivity: one sample more moves the sum by at most ``max_norm``.
    Noise: its law does not depend on ``mask``.
  """
  if microbatch_size is not None and not microbatch_size >= 1:
    raise ValueError(f'{microbatch_size=} has no sample; use >= 1 or None.')

  def noisy_sum(key, params, batch, mask):
    n = mask.shape[0]
    grid = _grid(max_norm, noise_multiplier, n)

    def one(sample):
      alone = jax.tree.map(lambda x: x[None], sample)
      loss, grad = jax.value_and_grad(loss_fn)(params, alone)
      return loss, grid_lib.encode(clip_by_l2_norm(grad, max_norm)[0], grid)

    def add(total, chunk):
      samples, taken = chunk
      loss, grad = jax.vmap(one)(samples)
      return jax.tree.map(jnp.add, total, _sum_of(grad, taken)), loss

    size = math.ceil(n / math.ceil(n / (microbatch_size or n)))  # even chunks
    chunk = lambda x: x.reshape(-1, size, *x.shape[1:])
    chunks = jax.tree.map(chunk, mesh.pad((batch, mask > 0), size))
    zeros = jax.tree.map(jnp.zeros_like, grid_lib.encode(params, grid))
    total, losses = jax.lax.scan(add, zeros, chunks)
    return _noisy(key, total, grid), losses.reshape(-1)[:n]

  return noisy_sum


def _grid(max_norm, noise_multiplier, clients):
  numbers = {'clip_norm': max_norm, 'noise_multiplier': noise_multiplier}
  return grid_lib.make(**numbers, clients=clients)


def _noisy(key, total, grid):
  noisy = jax.tree.map(jnp.add, total, grid_lib.noise(key, total, grid))
  return marks._released(grid_lib.decode(noisy, grid))


def poisson_sample(
  key: jax.Array, population: int, probability: jax.Array, max_cohort: int
) -> tuple[jax.Array, jax.Array]:
  """Samples each client of a population independently: Poisson sampling.

  Returns ids int32[max_cohort], ``population`` in empty slots, and a mask, f32.
  A larger cohort is cut to a uniformly random subset. The key[] is secret.

  >>> ids, mask = poisson_sample(jax.random.key(0), 10, 1.0, 4)
  >>> ids.shape, mask.tolist()
  ((4,), [1.0, 1.0, 1.0, 1.0])
  """
  _check_cohort(population, max_cohort, 'max_cohort')
  coins, order = jax.random.split(key)
  # Of 23 bits, as is the default, a small probability would be rounded up.
  taken = jax.random.bernoulli(coins, probability, (population,), mode='high')
  # Those taken come first, in random order.
  rank = jnp.where(taken, jax.random.uniform(order, (population,)), 2)
  ids = jnp.argsort(rank)[:max_cohort].astype(jnp.int32)
  mask = taken[ids]
  return jnp.where(mask, ids, population), mask.astype(jnp.float32)


def fixed_size_sample(
  key: jax.Array, population: int, cohort: int
) -> tuple[jax.Array, jax.Array]:
  """Samples ``cohort`` distinct clients, each set of them equally likely.

  Of a secret key[] it returns ids int32[cohort], and ones, f32[cohort].

  >>> fixed_size_sample(jax.random.key(0), 3, 3)[0].sort().tolist()
  [0, 1, 2]
  """
  _check_cohort(population, cohort, 'cohort')
  ids = jax.random.permutation(key, population)[:cohort].astype(jnp.int32)
  return ids, jnp.ones(cohort)


def _check_cohort(population, cohort, name):
  if not 1 <= cohort <= population:
    raise ValueError(
      f'{name}={cohort} is not in 1 ... {population=}; draw from 1 to all.'
    )


def _sum_of(tree, taken):
  """Sums the rows of leaves uint32[n, ...] whose bool[n] is true."""
  add = lambda x: x.sum(0, dtype=x.dtype)  # where x64 is enabled, too
  return jax.tree.map(add, comms.where_present(tree, taken))
