r"""Compares the bounds of `tails` with Monte Carlo runs of an operator.

Of R as a matrix f[b, d], scaled so that :math:`E R^T R = I`, whatever scale its
tables have. Operators are linear and real, and their vectors flat.

Source: Song, Wang, Yu and Zhang, arXiv:2210.08371, appendix D.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fl_sketch import sketches
from fl_sketch.utils import checks, markdown
import jax
import jax.numpy as jnp
import numpy as np

from . import statements as catalog, tails

_ENTRIES = 2**22  # of matrices that are drawn at a time


def matrix(op: sketches.Sketch, key: jax.Array, dimension: int) -> jax.Array:
  """Returns the matrix R of an operator under a key, f32[b, d].

  >>> matrix(sketches.identity(), jax.random.key(0), 2).tolist()
  [[1.0, 0.0], [0.0, 1.0]]

  Raises:
    ValueError: desketch is not linear.
  """
  scale = sketches.properties(op).adjoint_scale
  if scale is None:
    raise ValueError('Expected an operator whose desketch is linear.')
  like = jnp.zeros(dimension)
  table = op.like(like)
  units = jnp.eye(table.size).reshape(-1, *table.shape)
  rows = jax.vmap(lambda unit: op.desketch(key, unit, like))(units)
  return scale**0.5 * rows


def coherence(op: sketches.Sketch, key: jax.Array, dimension: int) -> jax.Array:
  """Returns the largest |<R_i, R_j>| of two columns of R, in d^2 memory.

  >>> float(coherence(sketches.identity(), jax.random.key(0), 4))
  0.0
  """
  r = matrix(op, key, dimension)
  gram = jnp.matmul(r.T, r, precision='highest')
  return jnp.abs(gram - jnp.diag(jnp.diag(gram))).max()


def errors(
  op: sketches.Sketch, key: jax.Array, g: np.ndarray, h: np.ndarray, draws: int
) -> np.ndarray:
  """Draws <R^T R g, h> - <g, h> of unit vectors along f[d], f64[draws].

  >>> op, e = sketches.identity(), np.eye(1, 4)[0]
  >>> errors(op, jax.random.key(0), e, e, draws=2)
  array([0., 0.])
  """
  g, h = (g / np.linalg.norm(g)).astype(np.float32), h / np.linalg.norm(h)
  project = lambda key: op.desketch(key, op.sketch(key, g), g) @ jnp.float32(h)
  return _draw(project, key, draws, g.size) - g @ h


class Coherence(NamedTuple):
  """Draws `coherence` over fresh keys.

  Attributes:
    name: of the operator's factory.
    quantiles: f64[...], measured.
    printed: the bound at delta, None where the paper has none.
    corrected: likewise.
    beyond_printed: the share of draws above it, to be held against delta.
    beyond_corrected: likewise.
  """

  name: str
  quantiles: np.ndarray
  printed: float | None
  corrected: float | None
  beyond_printed: float | None
  beyond_corrected: float | None


def coherence_quantiles(
  op: sketches.Sketch,
  key: jax.Array,
  dimension: int,
  *,
  draws: int,
  delta: float,
  quantiles: Sequence[float] = (0.5, 0.9, 0.99),
) -> Coherence:
  """Compares Lemmas D.18 to D.22 with measurements.

  >>> op, key = sketches.ams(8), jax.random.key(0)
  >>> values = coherence_quantiles(op, key, 16, draws=20, delta=0.1)
  >>> values.beyond_printed > 0.5  # and not at most 0.1
  True
  """
  name = sketches.properties(op).name
  values = _draw(
    lambda key: coherence(op, key, dimension), key, draws, _ENTRIES
  )
  measured = np.quantile(values, quantiles)
  if name not in tails.OVERLAPPING:
    return Coherence(name, measured, None, None, None, None)
  size, sparsity = _column(op, key, dimension)
  printed, corrected = (
    tails.coherence(name, dimension, size, delta, sparsity=sparsity, form=form)
    for form in catalog.FORMS
  )
  shares = (float(np.mean(values > bound)) for bound in (printed, corrected))
  return Coherence(name, measured, printed, corrected, *shares)


class Tail(NamedTuple):
  """Returns a bound on |<R^T R g, h> - <g, h>| and how often it is exceeded.

  Attributes:
    delta: the probability that the bound admits.
    printed: the bound.
    beyond_printed: the share of draws above it.
    corrected: the bound.
    beyond_corrected: the share of draws above it.
  """

  delta: float
  printed: float
  beyond_printed: float
  corrected: float
  beyond_corrected: float


def tail_frequencies(
  op: sketches.Sketch,
  key: jax.Array,
  g: np.ndarray,
  h: np.ndarray,
  *,
  draws: int,
  deltas: Sequence[float] = (0.1, 0.01, 0.001),
) -> list[Tail]:
  """Compares Lemmas D.23 to D.28 with measurements for one pair of vectors.

  >>> e = np.eye(1, 64)[0]
  >>> values = tail_frequencies(
  ...   sketches.gaussian(16), jax.random.key(0), e, e, draws=500
  ... )
  >>> values[0].beyond_corrected <= 0.1
  True

  Raises:
    ValueError: the paper has no tail for this operator.
  """
  name = sketches.properties(op).name
  size, sparsity = _column(op, key, g.size)
  sizes = np.abs(errors(op, key, g, h, draws))
  rows = []
  for delta in deltas:
    row = [delta]
    for form in catalog.FORMS:
      bound = tails.tail(
        name, g.size, size, delta, sparsity=sparsity, form=form
      )
      row += [bound, float(np.mean(sizes > bound))]
    rows.append(Tail(*row))
  return rows


def table(rows: Sequence[Coherence] | Sequence[Tail]) -> str:
  """Formats rows as a Markdown table, numbers to four digits.

  >>> print(table([Tail(0.1, 2.0, 0.0, 0.51234, 0.03)]).splitlines()[-1])
  | 0.1 | 2 | 0 | 0.5123 | 0.03 |
  """
  names = [name.replace('_', ' ') for name in rows[0]._fields]
  text = markdown.table(names, (map(_cell, row) for row in rows))
  return text.removesuffix('\n')


def _column(op, key, dimension):
  """Counts the entries of a column of R, and those that are not 0."""
  column = np.ravel(op.sketch(key, jnp.zeros(dimension).at[0].set(1.0)))
  return column.size, int(np.count_nonzero(column))


def _cell(value):
  if value is None or isinstance(value, str):
    return value or '-'
  return ', '.join(f'{x:.4g}' for x in np.ravel(value))


def _draw(measure, key, draws, size):
  """`measure` under fresh keys, f64[draws], a few at a time."""
  keys = jax.random.split(key, checks.count('draws', draws))
  lanes = max(1, min(_ENTRIES // size, 256))
  run = jax.jit(lambda keys: jax.lax.map(measure, keys, batch_size=lanes))
  return np.asarray(run(keys), np.float64)
