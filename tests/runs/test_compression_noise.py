"""The theory of few-bit tables, against operators and codecs."""

from fl_sketch import codecs, sketches
from fl_sketch.runs import compression
import jax
import jax.numpy as jnp
import numpy as np
import pytest

D, B = 2**14, 2**14 // 3
KEY = jax.random.key(3)
rng = np.random.default_rng(4)
VECTORS = {
  'normal': rng.standard_normal(D),
  'lognormal': np.exp(2 * rng.standard_normal(D)),
  'spike': np.eye(1, D, 5)[0],
}
VECTORS = {k: np.float32(x / np.linalg.norm(x)) for k, x in VECTORS.items()}


def errors_of(codec, x, draws=40):
  """f64[draws, D]: D - x, where D is read of a coded table."""
  op = sketches.block_srht(B)

  def error(key):
    table, of_codec = op.sketch(key, x), jax.random.fold_in(key, 1)
    sent = codec.encode(of_codec, table)
    return op.desketch(key, codec.decode(of_codec, sent, table), x) - x

  draw = jax.jit(lambda keys: jax.lax.map(error, keys))
  return np.float64(draw(jax.random.split(KEY, draws)))


@pytest.mark.nightly
@pytest.mark.parametrize(('options', 'name'), [
  *(({'bits': bits}, 'lognormal') for bits in (1, 2, 4)), ({}, 'spike'),
  ({'rotate': False}, 'normal'),  # the table's own rotation suffices
])  # fmt: skip
def test_alpha_of_quantised_tables(options, name):
  """Catches a wrong scale or centroid."""
  codec = codecs.eden(**options)
  law = compression.table_alpha(
    D, B, codecs.eden(options.get('bits', 1)).omega(B)
  )
  errors = errors_of(codec, VECTORS[name])
  energy = np.square(errors).sum(1).mean()
  of_mean = np.square(errors.mean(0)).sum()
  # Of a deviation of 2 % or less a draw: 6 of the mean of 40. The error of the
  # mean of unbiased draws deviates by (2 / D)^0.5 = 1.1 %: 5.4 of it are 7e-8.
  assert energy == pytest.approx(law, rel=0.02)
  assert of_mean == pytest.approx(energy / 40, rel=0.06)


@pytest.mark.nightly
def test_cosine_of_a_momentum_step():
  """Catches a formula for another mean, such as one that is not corrected."""
  x, size = VECTORS['lognormal'], D // 100
  op = sketches.block_srht(size)
  alpha = compression.table_alpha(D, size)

  def one(average, key):
    estimate = op.desketch(key, op.sketch(key, x), x)
    average = 0.9 * average + 0.1 * estimate
    return average, (average @ x) / jnp.linalg.norm(average)

  keys = jax.random.split(KEY, 500)
  scan = jax.jit(lambda keys: jax.lax.scan(one, jnp.zeros(D), keys))
  measured = float(scan(keys)[1][100:].mean())
  assert measured == pytest.approx(compression.step_cosine(alpha), rel=0.03)
