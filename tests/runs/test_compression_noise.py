"""The theory of few-bit tables, against operators and codecs."""

from fl_sketch import sketches
from fl_sketch.runs import compression
import jax
import jax.numpy as jnp
import numpy as np
import pytest

D = 2**14
KEY = jax.random.key(3)
X = np.float32(np.exp(2 * np.random.default_rng(4).standard_normal(D)))


@pytest.mark.nightly
def test_cosine_of_a_momentum_step():
  """Catches a formula for another mean, such as one that is not corrected."""
  x, size = X / np.linalg.norm(X), D // 100
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
