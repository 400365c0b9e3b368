"""What a method is, and what methods share."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..common.workspace import Fields
from .tasks import Task


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


def floats(task: Task, share: float) -> int:
  """Numbers of 32 bits at a share of the bytes of a dense update."""
  return max(20, int(share * task.dimension))
