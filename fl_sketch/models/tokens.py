"""Checks of tokens and of the vocabulary they are of."""

from fl_sketch.utils import checks
import jax
import jax.numpy as jnp


def check(tokens_BxL: jax.Array) -> None:
  """Checks that inputs are integers[batch, length]."""
  if tokens_BxL.ndim != 2:
    raise ValueError(f'{tokens_BxL.ndim=} must be 2.')
  if not jnp.issubdtype(tokens_BxL.dtype, jnp.integer):
    raise ValueError(
      f'{tokens_BxL.dtype=} must be integers of more than 8 bits: '
      'uint8 are pixels.'
    )


def vocabulary(num_classes: int | None, vocab_size: int | None) -> int:
  """How many tokens a model knows: at least as many as its data have.

  >>> vocabulary(90, None), vocabulary(50_000, 50_257)
  (90, 50257)
  """
  if vocab_size is None and num_classes is None:
    raise ValueError('Set vocab_size: the problem has no num_classes.')
  if vocab_size is None:
    return checks.count('num_classes', num_classes)
  if vocab_size < (num_classes or 1):
    raise ValueError(f'{vocab_size=} must be >= {num_classes=}.')
  return vocab_size
