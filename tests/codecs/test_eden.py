"""EDEN's laws: those of a uniform rotation, whatever the vector and length."""

import codec_cases
from fl_sketch import codecs
import jax
import numpy as np
import operators
import pytest
from scipy import stats

# Both sides of 32, of powers of two and of multiples of the block, and others.
NIGHTLY = 2, 31, 32, 33, 63, 64, 65, 127, 128, 1000, 2047, 4097
LONG = [
  n + k
  for n in (1024, 2048, 4096, 8192, 20480, 65536, 262144)
  for k in (-1, 0, 1)
] + np.random.default_rng(11).integers(33, 300_000, 8).tolist()


def uniform_error(d):
  """The error of one bit under uniform rotations: of normal vectors."""
  u = np.random.default_rng(d).standard_normal((max(2_000_000 // d, 20), d))
  return (d * np.square(u).sum(1) / np.square(np.abs(u).sum(1))).mean() - 1


def vectors(d):
  """Spikes at both ends and inside, halves, a ramp, a spike in small noise."""
  place, noise = np.arange(d), np.random.default_rng(d).standard_normal(d)
  spikes = [place == at for at in (0, d // 3, d - 1)]
  spiky = 3 * d**0.5 * (place == d // 2) + noise
  rows = [*spikes, place < d / 2, place >= d // 2, place + 1, spiky]
  return [row.astype(np.float32) for row in rows]


def decoded(codec, d, draws):
  """What is decoded of each vector, a key each: (x, f64[draws, d])."""
  one = codec_cases.there_and_back(codec, jax.ShapeDtypeStruct((d,), 'float32'))
  keys = jax.random.split(operators.KEY, draws)
  lanes = operators.jit(jax.vmap(one, (0, None)))
  for x in vectors(d):
    yield x, np.float64(lanes(keys, x))


@pytest.mark.parametrize(
  ('d', 'draws'),
  [(3, 16_000)]
  + [
    pytest.param(d, 16_000 if d < 33 else 2000, marks=pytest.mark.nightly)
    for d in NIGHTLY
  ]
  + [pytest.param(d, 200, marks=pytest.mark.long) for d in LONG],
)
def test_the_law_is_that_of_a_uniform_rotation(d, draws):
  """Catches passes that undo one another, parts that never meet, one pass."""
  law = uniform_error(d)
  limit = stats.chi2.isf(1e-9, d) / d * 1.5
  for x, out in decoded(codecs.eden(), d, draws):
    norm = np.square(x, dtype=np.float64).sum()
    error = np.square(out - x).sum(1).mean() / norm
    # Of a standard error of 0.8 % or less; the squared bias below a quantile of
    # its law for d independent entries: 1e-8 to miss one of 7 vectors.
    assert error == pytest.approx(law, rel=0.05)
    bias = np.square(out.mean(0) - x).sum() / norm
    assert bias < limit * error / draws


@pytest.mark.parametrize(
  ('d', 'count'),
  [
    (20, 12),
    *(
      pytest.param(d, d * part // 8, marks=pytest.mark.nightly)
      for d in (32, 33, 100, 5000)
      for part in (1, 4, 7)
    ),
  ],
)
def test_a_least_squares_scale_shrinks_with_the_share_that_is_sent(d, count):
  """Catches the scale of all entries, which no error feedback contracts."""
  codec = codecs.eden(num_coordinates=count, scale='least_squares')
  kept = count / d / (1 + uniform_error(count))
  # Of standard errors of near / 6 or less: 2e-9 to miss one.
  draws, near = (2000, 0.12) if d == 20 else (8000 if d <= 100 else 400, 0.06)
  for x, out in decoded(codec, d, draws):
    norm = np.square(x, dtype=np.float64).sum()
    energy = np.square(out).sum(1).mean() / norm
    error = np.square(out - x).sum(1).mean() / norm
    assert energy == pytest.approx(kept, rel=near)
    assert error == pytest.approx(1 - kept, rel=near)
