"""Optimizers of gradient-leakage attacks, by name."""

import jax.numpy as jnp
import optax

Search = optax.GradientTransformationExtraArgs


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
