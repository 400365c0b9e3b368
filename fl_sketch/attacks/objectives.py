"""Objectives of attacks, by name, and the optimizers that search for them."""

from fl_sketch.utils.types import Tree
import jax
import jax.numpy as jnp
import optax

Search = optax.GradientTransformationExtraArgs
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


def armijo(steps: int, learning_rate: float = 1.0) -> Search:
  """Return gradient descent with Armijo's rule."""
  return optax.chain(optax.sgd(learning_rate), _backtracking(jnp.inf))


def adam(steps: int, learning_rate: float = 0.1) -> Search:
  """Return Adam, its rate divided by 10 after 3/8, 5/8 and 7/8 of the steps."""
  falls = {steps * part // 8: 0.1 for part in (3, 5, 7)}
  rate = optax.piecewise_constant_schedule(learning_rate, falls)
  return optax.with_extra_args_support(optax.adam(rate))


def signed_adam(steps: int, learning_rate: float = 0.1) -> Search:
  """Return Adam on signs of the gradient: Geiping et al., arXiv:2003.14053."""
  return optax.chain(optax.scale_by_sign(), adam(steps, learning_rate))


def lbfgs(steps: int, learning_rate: float = 1.0) -> Search:
  """Return L-BFGS with backtracking."""
  # The zooming line search of optax may not end under `vmap`.
  return optax.chain(
    optax.scale_by_lbfgs(memory_size=20),
    optax.scale(-learning_rate),
    _backtracking(1.0),
  )


SEARCHES = {fn.__name__: fn for fn in (armijo, adam, signed_adam, lbfgs)}


def _backtracking(max_learning_rate):
  # Tries twice the last step, then halves of it, down to a billionth.
  return optax.scale_by_backtracking_linesearch(
    30, decrease_factor=0.5, increase_factor=2.0,
    max_learning_rate=max_learning_rate,
  )  # fmt: skip
