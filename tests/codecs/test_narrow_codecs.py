"""Codecs of few bits: extremes, robust means, the law of a rotation."""

import cases
import chex
import codec_cases
from codec_cases import CODECS, U, there_and_back
from fl_sketch import algorithms, codecs, rounds
from fl_sketch.codecs import rotation
from fl_sketch.privacy.mechanisms.private_mean import (
  CentralRelease,
  LocalRelease,
)
from fl_sketch.rounds import (
  aggregation,
  comms,
  error_feedback as feedback,
  robust,
  transforms as t,
)
from fl_sketch.rounds.algorithm import federated
from fl_sketch.rounds.keys import round_keys
import jax
import jax.numpy as jnp
import laws
import numpy as np
import operators
from operators import KEY
import pytest
from scipy import stats

COUNT, PARAMS = cases.COUNT, cases.PARAMS
LARGEST = np.finfo(np.float32).max
NARROW = {n: CODECS[n].codec for n in ('bfloat16', 'int8', 'int4_blocks')}
each_codec = pytest.mark.parametrize('name', NARROW)


def f32(*values):
  return np.array(values, np.float32)


@each_codec
def test_huge_and_tiny_numbers(name):
  """No scale overflows, nor does its reciprocal vanish."""
  huge = f32(LARGEST, -LARGEST, 1e38, -1e30, 0, 2, 1, 1)
  fn = operators.jit(there_and_back(NARROW[name], huge))
  out = np.asarray(fn(KEY, huge), np.float64)
  step = {'bfloat16': U, 'int8': 1 / 127, 'int4_blocks': 1 / 7}[name]
  assert (np.abs(out - huge) <= step * float(LARGEST)).all()
  tiny = f32(1e-45, -1e-40, 1e-38, -2e-38, 0, 0, 0, 0)
  for x in tiny, 2**20 * tiny:
    out = np.asarray(fn(KEY, x), np.float64)
    assert (np.abs(out) <= 1.01 * np.abs(x).max()).all()
  assert fn(KEY, np.zeros(8, np.float32)).tolist() == [0] * 8


def test_no_nan_becomes_a_number():
  """Random bits may carry a NaN to an infinity, or to a zero."""
  patterns = [0x7F800001, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF, 0x7FC00000]
  x = np.repeat(np.uint32(patterns), 64).view(np.float32)
  assert np.isnan(NARROW['bfloat16'].encode(KEY, x)).all()
  infinite = NARROW['bfloat16'].encode(KEY, f32(np.inf, -np.inf))
  assert infinite.tolist() == [np.inf, -np.inf]


def test_error_feedback_takes_them_while_they_contract():
  feedback.compress(codecs.int4(392), error_feedback=True)
  assert codecs.int4(393).omega(393) == 1  # r = 3
  with pytest.raises(ValueError, match='contraction'):
    feedback.compress(codecs.int4(393), error_feedback=True)


def safl(codec, privacy=None):
  options = {'codec': codec, 'sketch': cases.CYCLIC, 'privacy': privacy}
  return algorithms.make('safl', cases.loss_fn, **options)


@pytest.mark.nightly
def test_groups_of_a_robust_mean_hold_what_was_decoded():
  rule, codec = robust.Rule('median', 2), codecs.int8()
  uplink = aggregation.mean_over_cohort(robust=rule, codec=codec)
  parts = federated(None, t.sketch(COUNT), uplink, t.broadcast())
  keys, update = round_keys(cases.KEY, 0), PARAMS | {'b': f32(1, 3)}
  table = COUNT.sketch(keys.round, update)
  start = parts.encode.init(PARAMS)
  payload, _ = parts.encode.update(update, start, PARAMS, keys=keys)
  assert comms.nbytes(payload) == 8 + 4
  groups = parts.decode(keys, payload, PARAMS)
  want = feedback.decoder(codec)(keys, payload, table)
  assert groups.shape == (2, *want.shape)
  np.testing.assert_array_equal(groups.sum(0), want)


@pytest.mark.parametrize(('codec', 'privacy'), [
  (codecs.top_k(5), None), (codecs.int8(), LocalRelease(4.0)),
  (codecs.int8(), CentralRelease(4.0, bound='quantile', count_stddev=1.0)),
])  # fmt: skip
def test_a_codec_that_does_not_suit_what_is_sent_is_refused(codec, privacy):
  """Catches a k of the model's d, and messages that must be integers."""
  with pytest.raises(ValueError, match=r'k=5|codec'):
    rounds.init(safl(codec, privacy)(cases.HP), PARAMS, cases.POPULATION)


def test_a_block_larger_than_what_is_sent_takes_no_memory():
  codec, x = codecs.int8(block=10**8), jnp.arange(1000.0)
  encode = jax.jit(codec.encode).lower(KEY, x).compile()
  assert encode.memory_analysis().temp_size_in_bytes < 10**6
  exact = codecs.int8(block=1000).encode(KEY, x)
  chex.assert_trees_all_equal(encode(KEY, x), exact)


@pytest.mark.parametrize('d', [20, 9000])  # one of two blocks and a rest
def test_a_rotation_comes_back(d):
  """Catches passes that are undone in the order in which they were made."""
  x = jnp.arange(1.0, d + 1)
  there = operators.jit(lambda x: rotation.rotate(KEY, x))
  back = operators.jit(lambda y: rotation.rotate(KEY, y, back=True))
  np.testing.assert_allclose(back(there(x)), x, rtol=1e-3)
  np.testing.assert_allclose(
    jnp.linalg.norm(there(x)), jnp.linalg.norm(x), 1e-5
  )


@pytest.mark.parametrize('back', [False, True])
def test_accelerators_rotate_blocks_as_cpus_do(back):
  """Catches words or planes of another block, beyond 32 blocks too."""
  seeds, d = jnp.arange(4, dtype=jnp.uint32).reshape(2, 2), 35 * 4096 + 3
  x = jax.random.normal(KEY, (d,))
  loop, whole = (
    operators.jit(lambda x, f=f: f(seeds, x, 35, back))(x)
    for f in (rotation._by_block, rotation._all_blocks)
  )
  np.testing.assert_allclose(loop, whole, rtol=0, atol=1e-5)
  np.testing.assert_array_equal(loop[-3:], x[-3:])


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


@pytest.mark.parametrize(('d', 'draws'), laws.tiered(
  [(3, 16_000)], [(d, 16_000 if d < 33 else 2000) for d in NIGHTLY],
  [(d, 200) for d in LONG],
))  # fmt: skip
def test_the_law_is_that_of_a_uniform_rotation(d, draws):
  """Catches passes that undo one another, parts that never meet, one pass."""
  law = uniform_error(d)
  limit = stats.chi2.isf(1e-9, d) / d * 1.5
  for x, out in decoded(codecs.eden(), d, draws):
    norm = np.square(x, dtype=np.float64).sum()
    error = np.square(out - x).sum(1).mean() / norm
    # Of a standard error of 0.8 % or less; the squared bias below a quantile of
    # its law for d independent entries: 1e-8 to miss one of 7 vectors.
    assert error <= 1.05 * law
    # Few numbers beyond the last block are rotated by themselves: less error.
    if d < rotation.BLOCK or x[: d - d % rotation.BLOCK].any():
      assert error >= 0.95 * law
    bias = np.square(out.mean(0) - x).sum() / norm
    assert bias <= limit * error / draws


@pytest.mark.nightly
@pytest.mark.parametrize(('d', 'count'), laws.tiered(
  [(20, 12)],
  [(d, d * part // 8) for d in (32, 33, 100, 5000) for part in (1, 4, 7)],
))  # fmt: skip
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
