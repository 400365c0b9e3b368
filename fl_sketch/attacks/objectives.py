"""Objectives of attacks: distances of messages, and total variation."""

from fl_sketch.utils.types import Tree
import jax
import jax.numpy as jnp

TINY = 1e-30  # squared length below which a message points nowhere


def square(tree: Tree) -> jax.Array:
  r"""Return the squared length :math:`\|x\|^2` of all leaves together."""
  return jnp.stack([jnp.vdot(x, x).real for x in jax.tree.leaves(tree)]).sum()


def relative_l2(guess: Tree, observed: Tree) -> jax.Array:
  r"""Return the relative squared distance :math:`\|g - y\|^2 / \|y\|^2`.

  Song et al., arXiv:2210.08371, section 7, divided by the observed square.
  """
  difference = jax.tree.map(jnp.subtract, guess, observed)
  return square(difference) / jnp.maximum(square(observed), TINY)


def cosine(guess: Tree, observed: Tree) -> jax.Array:
  r"""Return :math:`1 - \langle g, y\rangle / \|g\| \|y\|`, invariant to scale.

  Geiping et al., NeurIPS 2020, arXiv:2003.14053, equation 4.
  """
  parts = zip(jax.tree.leaves(guess), jax.tree.leaves(observed), strict=True)
  inner = jnp.stack([jnp.vdot(y, g).real for g, y in parts]).sum()
  inverse = lambda tree: jax.lax.rsqrt(jnp.maximum(square(tree), TINY))
  return 1 - inner * inverse(guess) * inverse(observed)


OBJECTIVES = {'l2': relative_l2, 'cosine': cosine}


def total_variation(x: jax.Array) -> jax.Array:
  """Return the mean absolute difference of neighbouring pixels.

  Images are f32[batch, rows, cols, channels].
  """
  down, right = jnp.diff(x, axis=1), jnp.diff(x, axis=2)
  return jnp.abs(down).mean() + jnp.abs(right).mean()
