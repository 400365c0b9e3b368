"""Simulates byzantine clients: which they are, and the updates they send."""

from collections.abc import Callable
from typing import Any

from fl_sketch.utils import seeding
import jax
import jax.numpy as jnp
import numpy as np
import optax

# (pseudo-gradient, key) -> the update that a byzantine client sends.
Behaviour = Callable[[Any, jax.Array], Any]


def clients(seed: int, population: int, share: float) -> np.ndarray:
  """Draws the byzantine clients of a run: round(share x population) of them.

  True in bool[population]. Those of a smaller share are among a larger one's.

  >>> int(clients(0, population=10, share=0.2).sum())
  2
  """
  # The tag is part of the draw: it keeps its name, so that runs do not change.
  rank = seeding.generator(seed, 'hostile').permutation(population)
  return rank < round(share * population)


def sign_flip(moved: Any, key: jax.Array) -> Any:
  """Multiplies the pseudo-gradient by -10: Damaskinos et al., ICML 2018."""
  return _scaled(moved, -10.0)


def scale(moved: Any, key: jax.Array) -> Any:
  """Multiplies the pseudo-gradient by 1e12."""
  return _scaled(moved, 1e12)


def noise(moved: Any, key: jax.Array) -> Any:
  """Replaces the update by Gaussian noise of standard deviation 200.

  Source: Blanchard et al., NeurIPS 2017, arXiv:1703.02757.
  """
  return _scaled(optax.tree.random_like(key, moved, jax.random.normal), 200.0)


def nan(moved: Any, key: jax.Array) -> Any:
  """Replaces the update by NaN; every round rejects non-finite updates."""
  return jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), moved)


BEHAVIOURS = {send.__name__: send for send in (sign_flip, noise, scale, nan)}


def _scaled(tree, factor):
  return jax.tree.map(lambda x: (x * factor).astype(x.dtype), tree)
