"""Subsampled randomised Hadamard transform of blocks of coordinates."""

from fl_sketch.sketches import base, block_rows


def block_srht(size: int, block: int = 4096) -> base.Sketch:
  r"""Subsample Hadamard transforms of blocks of coordinates with random signs.

  :math:`R = \sqrt{d / b}\, S H D` with b = `size`, D random signs, H orthogonal
  and S rows drawn without replacement. Nothing is padded. Let m be the largest
  power of two up to `block` and d. Coordinate i of the first m floor(d / m) is
  in block i mod floor(d / m), and each block is transformed. Where m does not
  divide d, the last m coordinates are first transformed with other signs, which
  mixes the rest with the blocks. The same random rows of all blocks are kept,
  and of one row those of neighbouring blocks from a random one on.

  Guarantees, for independent signs (`hashing.word`), rows of `hashing.sample`:
    linear, desketch its adjoint; unbiased: E desketch(sketch(x)) = x.
    orthogonal rows: R R^T = (d / b) I always, whatever b and d; exact at b = d.
    second moment: E||desketch(sketch(x))||^2 = (d / b) ||x||^2, the least.
    coordinate-wise constant about 2 (m - r) / (m - 1) times the number of
      blocks, for r rows of each; known where m divides d.

  >>> import jax
  >>> import jax.numpy as jnp
  >>> op, key, x = block_srht(5), jax.random.key(0), {'w': jnp.ones(5)}
  >>> op.desketch(key, op.sketch(key, x), x)['w'].round(5).tolist()
  [1.0, 1.0, 1.0, 1.0, 1.0]

  Tables are f32[size]. Raises ValueError if size is below 1 or exceeds d, or
  block is no power of two.

  Source: a construction of this project, of blocks of `srht`.
  """
  base.check_positive(size=size, block=block)
  if block.bit_count() != 1:
    raise ValueError(f'{block=} must be a power of two.')
  plan_of = lambda like: block_rows.plan(base.dimension(like), size, block)

  def sketch(key, runs, vector):
    x = base.join(runs, vector.size, vector.dtype)
    return block_rows.take(key, x, plan_of(vector))

  def desketch(key, table, spans, vector):
    return base.cut(block_rows.put(key, table, plan_of(vector)), spans)

  stated = base.Properties(
    'block_srht', floats=lambda like: size,
    alpha=lambda like: base.dimension(like) / size - 1,
    coordinate_wise=lambda like: block_rows.constant(plan_of(like)),
  )  # fmt: skip
  return base.from_runs(stated, size, sketch, desketch, by_lanes=True)
