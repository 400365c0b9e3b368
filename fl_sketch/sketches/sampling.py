"""Rows of the identity: all coordinates, or a random part of them."""

import dataclasses

from fl_sketch.sketches import base, hashing, primitives
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class uniform_sampling(base.SizedSketch):
  r"""Send a random `size` of the d coordinates, scaled by sqrt(d / size).

  :math:`R = \sqrt{d / b}\, S` with S rows of the identity drawn without
  replacement, known as rand-k; Definition D.8 of Song et al. without signs,
  which cancel in :math:`R^T R`.

  Guarantees, for uniform distinct coordinates (`hashing.sample`):
    orthogonal rows: R R^T = (d / b) I in every draw; exact at b = d.
    second moment: E||desketch(sketch(x))||^2 = (d / b) ||x||^2, the least.
    NOT a coordinate-wise embedding: the constant is d - b, of a spike.
  """

  def alpha(self, d):
    return d / self.size - 1

  def coordinate_wise(self, d):
    return float(d - self.size)

  def sketch_runs(self, key, runs, vector):
    source = hashing.sample(key, self.size, vector.size)
    table = 0.0
    for start, x in runs:
      at = source - start
      at = jnp.where(at < 0, x.size, at)  # past the end, where zeros are read
      part = x.at[at].get(mode='fill', fill_value=0)
      table = table + part.astype(vector.dtype)
    return (vector.size / self.size) ** 0.5 * table

  def desketch_spans(self, key, table, spans, vector):
    target = hashing.sample(key, self.size, vector.size)
    values = (vector.size / self.size) ** 0.5 * table

    def one_span(start, n, dtype):
      at = jnp.where(target < start, n, target - start)
      out = primitives.zeros((n,), dtype, target, table)
      return out.at[at].set(values.astype(dtype), mode='drop')

    return [one_span(*span) for span in spans]


@dataclasses.dataclass(frozen=True)
class identity(base.VectorSketch):
  """Concatenate the tree's d numbers: a table f32[d], without compression."""

  @property
  def properties(self):
    zero = lambda like: 0.0
    return base.Properties('identity', base.dimension, zero, zero)

  def sketch_runs(self, key, runs, vector):
    return base.join(runs, vector.size, vector.dtype)

  def desketch_spans(self, key, table, spans, vector):
    return base.cut(table, spans)
