"""Sizes of codecs and sketches that are fractions of what is compressed."""

from collections.abc import Mapping
from typing import Any

from fl_sketch.utils.registry import Registry

SIZES = 'size', 'k', 'cols', 'num_coordinates'


def sized(
  factories: Registry, name: str, options: Mapping[str, Any], d: int,
  share: float = 1.0,
) -> dict[str, Any]:  # fmt: skip
  """Convert sizes between 0 and 1 to counts: of d, or of a chunk.

  Counts become a `share` of what they are.
  """
  chunk = factories.arguments(name).get('chunk')
  most = options.get('chunk', chunk.default) if chunk else None
  if isinstance(most, int) and most > 0:  # `make` refuses others
    share = min(d, most) / min(d / share, most)
    d = min(d, most)
  unit = options.get('bucket') or 1  # k is a multiple of it
  count = lambda x: max(1, round(x / unit)) * unit

  def value(k, v):
    if k not in SIZES or isinstance(v, bool):
      return v
    if isinstance(v, float) and 0 < v < 1:
      return count(v * d)
    return count(v * share) if isinstance(v, int) and share < 1 else v

  return {k: value(k, v) for k, v in options.items()}
