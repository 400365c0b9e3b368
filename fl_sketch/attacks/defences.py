"""Defences: transformations of a message before the client sends it."""

from collections.abc import Callable
from typing import NamedTuple

from fl_sketch import codecs
from fl_sketch.attacks import objectives
from fl_sketch.privacy.mechanisms import clipping, sums
from fl_sketch.utils.types import Key, Tree
import jax
import jax.numpy as jnp


class Defence(NamedTuple):
  """A defence, and the part of it that an informed attacker repeats."""

  apply: Callable[[Key, Tree], Tree]  # (key, message) -> what is sent
  # (message of a guess, observed) -> the message to compare with `observed`;
  # None: the message of the guess.
  redo: Callable[[Tree, Tree], Tree] | None = None


def none() -> Defence:
  """Send the message unchanged."""
  return Defence(lambda key, message: message)


def noise(scale: float) -> Defence:
  """Add Gaussian noise of `scale` times the message's norm.

  It depends on the message, so that it has no epsilon.
  """

  def apply(key, message):
    xi = _normal(key, message)
    factor = scale * _norm(message) / _norm(xi)
    return jax.tree.map(lambda m, n: m + factor * n, message, xi)

  return Defence(apply)


def bound(name: str, max_norm: float) -> Defence:
  """Bound the norm, by 'clip' or 'normalize', without noise."""

  def redo(message, observed):
    # Not `clipping.BOUNDS`, which are not differentiable everywhere.
    scale = max_norm / _norm(message)
    scale = jnp.minimum(scale, 1) if name == 'clip' else scale
    return jax.tree.map(lambda m: scale * m, message)

  to_norm = clipping.BOUNDS[name]
  return Defence(lambda key, message: to_norm(message, max_norm)[0], redo)


def gaussian_mechanism(clip_norm: float, noise_multiplier: float) -> Defence:
  """Apply the Gaussian mechanism to one round; other messages are known."""

  def apply(key, message):
    alone = jax.tree.map(lambda x: x[None], message)
    options = {'max_norm': clip_norm, 'noise_multiplier': noise_multiplier}
    return sums.privatize_sum(key, alone, jnp.ones(1), bound='clip', **options)

  return Defence(apply, bound('clip', clip_norm).redo)


def top_k(k: int) -> Defence:
  """Send the k largest coordinates; the attacker sees which they are."""
  codec = codecs.top_k(k)
  apply = lambda key, x: codec.decode(key, codec.encode(key, x), x)
  seen = lambda m, o: jnp.where(o != 0, m, 0)
  return Defence(apply, lambda x, observed: jax.tree.map(seen, x, observed))


def _normal(key, tree):
  """Draw N(0, 1) for each entry of a tree: half the sum of four draws."""
  # One float32 draw ends at 5.4 deviations; complex parts have variance 1/2.
  leaves, structure = jax.tree.flatten(tree)

  def draw(i, x):
    dtype = jnp.promote_types(x.dtype, jnp.float32)
    four = jax.random.normal(jax.random.fold_in(key, i), (4, *x.shape), dtype)
    half = 0.5**0.5 if jnp.iscomplexobj(four) else 0.5
    return jnp.asarray(half, four.real.dtype) * four.sum(0)

  return jax.tree.unflatten(structure, [draw(*x) for x in enumerate(leaves)])


def _norm(tree):
  # The root of zero has no derivative.
  return jnp.sqrt(jnp.maximum(objectives.square(tree), objectives.TINY))
