"""Shapes of what travels in a round, and parts of it that are not due."""

from collections.abc import Sequence
from typing import NamedTuple

from fl_sketch.utils.types import Tree
import jax
import jax.numpy as jnp


class Facts(NamedTuple):
  """Facts of a round that both sides know before it."""

  flags: tuple[bool, ...] = ()  # of `Comm.cond`
  absent: tuple[str, ...] = ()  # parts of payload and broadcast not due


class Exchange(NamedTuple):
  """Shapes and dtypes of one exchange of a round."""

  payload: Tree  # what a client sends
  total: Tree  # what the server adds up
  announcements: tuple[Tree, ...]  # what the server announces then


def without(tree: Tree, absent: Sequence[str]) -> Tree:
  """Return a payload or broadcast without the parts that are not due."""
  if not absent or not isinstance(tree, dict):
    return tree
  return {name: x for name, x in tree.items() if name not in absent}


def completed(tree: Tree, like: Tree, absent: Sequence[str]) -> Tree:
  """Invert `without`: add zeros for parts that are not due."""
  if not absent or not isinstance(like, dict):
    return tree
  return {
    name: zeros(x) if name in absent else tree[name] for name, x in like.items()
  }


def zeros(shapes: Tree) -> Tree:
  """Return zeros of these shapes and dtypes."""
  return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
