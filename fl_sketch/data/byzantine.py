"""Clients that send what they like, and what they send."""

from collections.abc import Callable
from typing import Any

from fl_sketch.utils import seeding
import jax
import jax.numpy as jnp
import numpy as np
import optax

Attack = Callable[
  [Any, jax.Array], Any
]  # (pseudo-gradient, key) -> what is sent


def hostile(seed: int, population: int, share: float) -> np.ndarray:
  """Which clients are hostile in all rounds: round(share x population) of them.

  Of two shares the smaller one's clients are among the larger one's.

  >>> int(hostile(0, population=10, share=0.2).sum())
  2

  Returns:
    bool[population].
  """
  rank = seeding.generator(seed, 'hostile').permutation(population)
  return rank < round(share * population)


def sign_flip(moved: Any, key: jax.Array) -> Any:
  """Ten times the way back: Damaskinos et al., ICML 2018."""
  del key
  return _scaled(moved, -10.0)


def scale(moved: Any, key: jax.Array) -> Any:
  """An absurd norm, 1e12 times that of an honest update."""
  del key
  return _scaled(moved, 1e12)


def noise(moved: Any, key: jax.Array) -> Any:
  """Normal noise of standard deviation 200, and nothing else.

  Source: Blanchard et al., NeurIPS 2017, arXiv:1703.02757.
  """
  return _scaled(optax.tree.random_like(key, moved, jax.random.normal), 200.0)


def nan(moved: Any, key: jax.Array) -> Any:
  """What is no number; a round rejects it by itself."""
  del key
  return jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), moved)


ATTACKS: dict[str, Attack] = {
  'sign_flip': sign_flip,
  'noise': noise,
  'scale': scale,
  'nan': nan,
}


def _scaled(tree, factor):
  return jax.tree.map(lambda x: (x * factor).astype(x.dtype), tree)
