"""The theory of few-bit tables, against operators and codecs."""

from fl_sketch import codecs, sketches
from fl_sketch.planning import compression_noise as compression
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


def errors_of(codec, x, clients, draws=40):
  """f64[draws, D]: D - x, where D is read of the mean of equal clients."""
  op = sketches.block_srht(B)

  def error(key):
    table = op.sketch(key, x)
    keys = jax.random.split(jax.random.fold_in(key, 1), clients)
    read = lambda k: codec.decode(k, codec.encode(k, table), table)
    return op.desketch(key, jax.lax.map(read, keys).mean(0), x) - x

  draw = jax.jit(lambda keys: jax.lax.map(error, keys))
  return np.float64(draw(jax.random.split(KEY, draws)))


@pytest.mark.nightly
@pytest.mark.parametrize(
  ('options', 'name', 'clients'),
  [
    *(({'bits': bits}, 'lognormal', 1) for bits in (1, 2, 4)),
    ({'bits': 1}, 'spike', 1),
    ({'rotate': False}, 'normal', 1),  # the table's own rotation suffices
    ({}, 'normal', 4),  # rotations of each client's own
  ],
)
def test_alpha_of_quantised_tables(options, name, clients):
  """Catches a wrong scale or centroid, and a rotation that is shared."""
  codec = codecs.eden(**options)
  omega = codecs.eden(options.get('bits', 1)).omega(B)
  law = compression.table_alpha(D, B, omega, draws=clients)
  errors = errors_of(codec, VECTORS[name], clients)
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
