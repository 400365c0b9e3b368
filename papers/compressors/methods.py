"""What a method is, and what methods share."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..common.workspace import Fields
from .tasks import Task

_FLOAT = 4  # bytes


class Method(NamedTuple):
  """A method, the shares that it can send, and what is tuned of it."""

  # (task, share of a dense update's bytes, up) -> fields of its config.
  fields: Callable[[Task, float], Fields]
  family: str  # 'dense', 'sketch', 'random', 'largest', 'quantised', 'seeds'
  shares: Sequence[float] = (0.1, 0.01, 0.001)
  rates: str = 'adaptive'  # the range of the registration by its name
  tuned: str = 'server_lr'
  # Whether clients may send each other their payloads in place of the mean.
  gathers: bool = False


def floats(dimension: int, share: float) -> int:
  """The number of floats at a share of the bytes of a dense update."""
  return max(25, int(share * dimension))


def one_bit(dimension: int, share: float, spent: float = 0.0) -> Fields:
  """A table whose signs and one scale fill what is left of the bytes."""
  left = _FLOAT * (int(share * dimension) - 1) - spent
  sketch = {'kind': 'block_srht', 'size': min(dimension, max(8, 8 * int(left)))}
  return {'sketch': sketch, 'codec': {'kind': 'eden', 'rotate': False}}


def two_bits(dimension: int, share: float) -> Fields:
  """SparseLoCo's codec: the largest of chunks, in two bits each."""
  # 12 bits of an index and 2 of a value, and two magnitudes a chunk.
  chunk = min(4096, dimension)
  bits = 32 * share * dimension / -(-dimension // chunk)
  k = max(1, int((bits - 64) / 14))
  return {'kind': 'chunked_top_k', 'k': k, 'chunk': chunk}
