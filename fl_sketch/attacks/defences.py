"""What clients may do to a message before they send it."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fl_sketch import codecs
from fl_sketch.attacks import objectives
from fl_sketch.privacy import mechanisms
import jax
import jax.numpy as jnp

Tree = Any


class Defence(NamedTuple):
  """A defence, and what of it an attacker who knows of it does again.

  Attributes:
    apply: (key, message) -> what is sent.
    redo: (message of a guess, observed) -> what of it is to be compared; None
      compares the message itself.
  """

  apply: Callable[[jax.Array, Tree], Tree]
  redo: Callable[[Tree, Tree], Tree] | None = None


def none() -> Defence:
  """The message is sent as it is."""
  return Defence(lambda key, message: message)


def noise(scale: float) -> Defence:
  """Gaussian noise of a length relative to the message's; no privacy.

  It depends on the message, so that no epsilon belongs to it: it is here to
  draw curves against. `gaussian_mechanism` has an epsilon.

  Args:
    scale: length of the noise in that of the message.
  """

  def apply(key, message):
    xi = mechanisms.gaussian_noise(key, message, 1.0)
    factor = scale * _norm(message) / _norm(xi)
    return jax.tree.map(lambda m, n: m + factor * n, message, xi)

  return Defence(apply)


def bound(name: str, max_norm: float) -> Defence:
  """Clipping or normalising alone; the bound is public.

  Args:
    name: 'clip' or 'normalize'.
    max_norm: to what length.
  """

  def redo(message, observed):
    # Not the privacy module's, which has no derivative where it is safe.
    del observed
    scale = max_norm / _norm(message)
    scale = jnp.minimum(scale, 1) if name == 'clip' else scale
    return jax.tree.map(lambda m: scale * m, message)

  to_norm = mechanisms.BOUNDS[name]
  return Defence(lambda key, message: to_norm(message, max_norm)[0], redo)


def gaussian_mechanism(
  clip_norm: float, noise_multiplier: float, *, name: str = 'clip'
) -> Defence:
  """The privacy module's sum over a cohort in which all others are known.

  That is the adversary of differential privacy: what is left of the sum is one
  bounded message and all of its noise. The accountant's epsilon is that of the
  rounds it was told; this is one round.

  Args:
    clip_norm: C.
    noise_multiplier: z, from `privacy.accounting`.
    name: 'clip' or 'normalize'.
  """

  def apply(key, message):
    return mechanisms.privatize_sum(
      key,
      jax.tree.map(lambda x: x[None], message),
      jnp.ones(1),
      max_norm=clip_norm,
      noise_multiplier=noise_multiplier,
      bound=name,
    )

  return Defence(apply, bound(name, clip_norm).redo)


def top_k(k: int) -> Defence:
  """The k largest coordinates; which they are can be seen."""
  codec = codecs.top_k(k)

  def apply(key, message):
    return codec.decode(key, codec.encode(key, message), message)

  def redo(message, observed):
    keep = lambda m, o: jnp.where(o != 0, m, 0)
    return jax.tree.map(keep, message, observed)

  return Defence(apply, redo)


def _norm(tree):
  # The root of zero has no derivative.
  return jnp.sqrt(jnp.maximum(objectives.square(tree), objectives.TINY))
