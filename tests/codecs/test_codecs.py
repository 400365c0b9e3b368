"""Laws of every codec of tests/support/codec_cases.py."""

import copy
import functools

import chex
import codec_cases
from codec_cases import CODECS, LIKE, QUANTIZED, VECTORS, D, there_and_back
from fl_sketch import codecs
from fl_sketch.rounds import comms
import jax
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
import numpy as np
import operators
from operators import KEY, TREE, mean_and_error, two_shards
import pytest
from refusals import counts_below_one, refused


@codec_cases.each
def test_laws_are_those_computed_by_hand(name):
  codec, _, omega, contraction, *_ = CODECS[name]
  for law, want in ((codec.omega, omega), (codec.contraction, contraction)):
    assert (law is None) == (want is None)
    if law is not None:
      assert law(D) == pytest.approx(want, rel=1e-12)
      assert law(LIKE) == law(D)


@codec_cases.each
def test_bill_from_shapes_and_dtypes(name):
  codec, nbytes, *_ = CODECS[name]
  bill = lambda like: comms.nbytes(jax.eval_shape(codec.encode, KEY, like))
  assert bill(LIKE) == nbytes
  if name != 'identity':
    with jax.enable_x64(True):
      assert bill(jax.ShapeDtypeStruct((D,), jnp.float64)) == nbytes


@codec_cases.unbiased
def test_unbiased(name):
  # 57 means of 11 codecs within 6.5 standard errors: 6e-8 to miss one.
  x = VECTORS['bounded']
  means, errors = mean_and_error(codec_cases.draws(name, x))
  assert (np.abs(means - x) < 6.5 * errors + 1e-6).all()


@codec_cases.unbiased
@codec_cases.each_count
def test_squared_error_is_below_omega(name, count):
  # 55 means within 6 standard errors: 6e-8 to miss one; 5 beneath: 5e-9.
  omega = CODECS[name].omega * (1 + CODECS[name].slack)
  for x in VECTORS.values():
    mean, error = codec_cases.squared_error(name, x, count)
    assert mean < omega + 6 * error + 1e-6
    if name == 'rand_k':
      assert mean > omega - 6 * error - 1e-6


@codec_cases.contracting
@codec_cases.each_count
def test_contraction(name, count):
  # 40 means that are random within 6 standard errors: 4e-8 to miss one.
  bound = (1 - CODECS[name].contraction) * (1 + CODECS[name].slack)
  reached = {
    ('top_k', 'flat'), ('sign_l1', 'spike'), ('eden_table_nearest', 'spike'),
  }  # fmt: skip
  for shape, x in VECTORS.items():
    mean, error = codec_cases.squared_error(name, x, count)
    assert mean < bound + 6 * error + 1e-6
    if name == 'small_rand_k' or (name, shape) in reached:
      assert mean > bound - 6 * error - 1e-6


def decoded(codec, x):
  return np.asarray(operators.jit(there_and_back(codec, x))(KEY, x))


@pytest.mark.parametrize('bits', [2, 4])
def test_contractions_are_reached(bits):
  """Catches a constant that is too good: others of half a cell."""
  m, levels, n = 2 ** (bits - 1) - 1, 2 ** (bits - 1), 63
  y = ((1 + n / levels**2) ** 0.5 - 1) / (n / levels**2)
  some = np.where(np.arange(n) < round(y * n), 0.9999 / levels, 0)
  for codec, others, ratio in (
    (QUANTIZED(64, bits, 64), np.full(n, 0.4999 / m), 1.001),
    (codecs.chunked_top_k(64, 64, bits), some, 1.13),
  ):
    x = np.float32([-1, *others])
    kept = 1 - np.square(decoded(codec, x) - x).sum() / np.square(x).sum()
    assert codec.contraction(64) < kept < ratio * codec.contraction(64)


@codec_cases.each_structure
def test_a_tree_is_its_numbers_in_a_row_in_its_own_dtypes(name):
  codec = CODECS[name].codec
  w = jnp.linspace(-1, 1, 72).astype(jnp.bfloat16).reshape(8, 9)
  tree = {
    'b': [jnp.float32(2.0), jnp.zeros((0, 3)), np.ones(5, np.float32)],
    'c': 0.5,
    'w': w,
  }
  like = jax.tree.map(jnp.asarray, tree)
  x, unravel = ravel_pytree(jax.tree.map(jnp.float32, tree))

  @operators.jit
  def both(w, x):
    payload, flat = codec.encode(KEY, tree | {'w': w}), codec.encode(KEY, x)
    out = codec.decode(KEY, payload, jax.eval_shape(lambda: like))
    return payload, flat, out, codec.decode(KEY, flat, x)

  payload, flat, out, want = both(w, x)
  if name == 'blocks':  # of each array by itself
    want = ravel_pytree(jax.tree.map(jnp.float32, out))[0]
  elif name != 'identity':  # whose payload is the tree
    chex.assert_trees_all_equal(payload, flat)
  rounded = jax.tree.map(lambda x, t: x.astype(t.dtype), unravel(want), like)
  chex.assert_trees_all_equal_shapes_and_dtypes(out, rounded)
  chex.assert_trees_all_equal(out, rounded)


@codec_cases.each
def test_zero_is_zero(name):
  payload, out = codec_cases.lanes(name, KEY, np.zeros((1, D)))
  assert all(np.isfinite(p).all() for p in jax.tree.leaves(payload))
  np.testing.assert_array_equal(out, 0)


@codec_cases.law(CODECS, ['int4_blocks'])
def test_no_zero_is_divided_by_zero(name):
  """Catches 0 / 0, which cast to an integer is 0 on some backends."""
  with jax.debug_nans(True):
    CODECS[name].codec.encode(KEY, np.zeros(D, np.float32))


@codec_cases.each_structure
@pytest.mark.parametrize(
  'bad', [np.nan, pytest.param(-np.inf, marks=pytest.mark.nightly)]
)
def test_what_is_not_finite_stays_visible(name, bad):
  x = VECTORS['normal'].copy()
  x[slice(None) if 'rand_k' in name else 3] = bad  # rand_k may not send it
  out = there_and_back(CODECS[name].codec)(KEY, x)
  assert not np.isfinite(out).all()


@codec_cases.each_structure
def test_in_shards_and_loops(name):
  """Varying inputs and a key that is not, under `check_vma=True`."""
  fn = there_and_back(CODECS[name].codec)
  xs = np.stack([VECTORS['normal'] * i for i in (1, -1, 2, 3)])
  shards = two_shards(lambda key, xs: jax.lax.map(lambda x: fn(key, x), xs))
  _, want = codec_cases.lanes(name, KEY, xs)
  got = operators.jit(shards)(KEY, xs)
  np.testing.assert_allclose(got, want, atol=1e-5)


@codec_cases.each
def test_equal_keys_equal_draws(name):
  keys = jnp.stack([jax.random.key(seed) for seed in (7, 7, 8)])
  vectors = [VECTORS['bounded']] * 3
  first, again, other = codec_cases.lanes(name, keys, vectors)[1]
  np.testing.assert_array_equal(first, again)
  assert (np.abs(first - other).max() > 1e-3) == CODECS[name].random


@codec_cases.each
def test_scale_and_sign_equivariant(name):
  """Catches squares that vanish near 1e-20, or overflow near 1e20."""
  factors = np.float32([1, -1, 2**-20, -(2**20), 2**-66, 2**66])[:, None]
  _, out = codec_cases.lanes(name, KEY, factors * VECTORS['normal'][None])
  np.testing.assert_array_equal(out, factors * out[:1])


@codec_cases.law(CODECS, ['int4_blocks', 'eden'])
def test_lowers_for_accelerators(name):
  fn = jax.jit(there_and_back(CODECS[name].codec, TREE))
  exported = jax.export.export(fn, platforms=['tpu', 'cuda'])(KEY, TREE)
  assert exported.platforms == ('tpu', 'cuda')


def test_sums_of_shared_signs_are_integers_of_the_mean():
  """Catches a scale of one client; 57 means within 6 standard errors (1e-7)."""
  codec, n = codecs.shared_sign(2.5), 400
  x = VECTORS['bounded']
  keys = jax.random.split(KEY, n)
  payloads = operators.jit(jax.vmap(codec.encode, (0, None)))(keys, x)
  assert payloads.shape == (n, 8)
  bits = np.unpackbits(np.asarray(payloads), axis=1, count=D).astype(np.int64)
  masks = np.random.default_rng(5).integers(0, 512, (n, D))
  masks[-1] = -masks[:-1].sum(0)
  counts = (bits + masks).sum(0) % 512  # 9 bits an entry for 400 clients
  decode = lambda p: codec.decode(KEY, p, x)
  decoded = operators.jit(jax.vmap(decode))(payloads)
  mean = np.float64(decoded).mean(0)
  np.testing.assert_allclose(mean, 2.5 * (2 * counts / n - 1), atol=1e-6)
  variance = (2.5**2 - x**2) / n
  assert (np.abs(mean - x) < 6 * np.sqrt(variance)).all()
  total, law = np.square(mean - x).sum(), variance.sum()
  assert abs(total - law) < 6 * law * np.sqrt(2 / D)


# Catches a codec that is built with a k of 0, or of 1.5.
test_a_count_below_one_is_refused_by_name = counts_below_one(codecs, {
  'top_k': {'k': 2}, 'rand_k': {'k': 2}, 'qsgd': {'levels': 2},
  'quantized_top_k': {'k': 2, 'bits': 2, 'bucket': 2}, 'int8': {'block': 2},
  'int4': {'block': 2}, 'chunked_top_k': {'k': 2, 'chunk': 2, 'bits': 2},
  'dct_top_k': {'k': 2, 'chunk': 2}, 'dct_blocks': {'k': 2, 'side': 2},
  'eden': {'bits': 2},
})  # fmt: skip


# Catches a law that is stated for what has none, and a k beyond the tree.
test_what_a_codec_does_not_suit_is_refused = refused(
  lambda call: call(),
  (lambda: codecs.contract(CODECS['small_qsgd'].codec), 'unbiased'),
  (lambda: codecs.qsgd(2**15), 'levels'),  # beyond 16 bits
  *((functools.partial(codec.encode, KEY, jnp.ones(8)), 'k=9') for codec in (
    codecs.top_k(9), codecs.rand_k(9), QUANTIZED(9, 2, 3),
    codecs.chunked_top_k(9, 16), codecs.dct_top_k(9, 16))),
)  # fmt: skip


def test_codecs_are_values():
  """Catches an option that is not compared, printed or pickled."""
  facts = [facts.codec for facts in CODECS.values()]
  makers = [functools.partial(copy.copy, codec) for codec in facts]
  operators.are_values(makers, vars(codecs))
