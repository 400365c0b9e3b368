"""Codecs and updates in NumPy alone, against the library and its vectors."""

import json
import subprocess
import sys
import tracemalloc

from fl_sketch import codecs
from fl_sketch.sites import (
  numpy_codecs,
  numpy_compressor,
  numpy_updates,
  sealed,
)
import jax
import numpy as np
import pytest
import wire_vectors

FEEDBACK = 'eden(bits=2, scale="least_squares", error_feedback=True)'
TEXTS = (
  'eden', 'eden(bits=2)', 'sign', 'int8', 'bfloat16', 'chunked_top_k(k=0.1)',
  'block_srht(size=0.3)', 'block_srht(size=0.3) | eden(rotate=False)',
  'block_srht(size=0.3) | int8', 'sign(error_feedback=True)',
  'chunked_top_k(k=0.1, error_feedback=True)', FEEDBACK,
)  # fmt: skip
DRAWS = np.random.default_rng(0)
UPDATE = {
  'weight': DRAWS.standard_normal((60, 7)), 'steps': np.array(3),
  'half': DRAWS.standard_normal((7, 9)).astype('f2'), 'scale': np.float32(2),
  'bias': DRAWS.standard_normal(70),
  'none': np.zeros((0, 4), 'f4'),
}  # fmt: skip
STORED = {
  name: vector
  for file in ('codecs', 'sketches')
  for name, vector in json.loads(
    (wire_vectors.FOLDER / f'{file}.json').read_text()
  ).items()
  if vector['kind'] in numpy_compressor.REGISTRY.names()
  and not {'num_coordinates', 'contract', 'combine'} & {*vector['options']}
}


def array(leaf):
  kind = {'bfloat16': 'u2'}.get(leaf['dtype'], leaf['dtype'])
  raw = bytes.fromhex(leaf['hex'])
  return np.frombuffer(raw, kind).reshape(leaf['shape'])


def numbers(d):
  i = np.arange(d)
  x = ((7919 * i**2 + 104_729 * i + 31) % 65_536 - 32_768) / 8192
  return np.float32(x)


def check_leaf(got, want):
  assert got.shape == want.shape
  if want.dtype == np.float32:
    np.testing.assert_allclose(got, want, atol=4e-6 * np.abs(want).max())
  else:
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize('name', STORED)
def test_the_vectors_of_the_wire_format(name):
  """Catches other bits, other arrays, or another inverse than the library's."""
  vector = STORED[name]
  codec = numpy_compressor.REGISTRY.make(vector['kind'], **vector['options'])
  key, d = np.array(vector['key'], np.uint32), vector['d']
  wanted = [array(leaf) for leaf in vector['payload']]
  layout = [(leaf['dtype'], tuple(leaf['shape'])) for leaf in vector['payload']]
  assert codec.layout(d) == layout
  for got, want in zip(codec.encode(key, numbers(d)), wanted, strict=True):
    check_leaf(np.asarray(got), want)
  decoded = codec.decode(key, wanted, d)
  check_leaf(decoded[:: vector['every']], array(vector['decoded']))


@pytest.mark.representatives('sign')
@pytest.mark.parametrize('kind', ['eden', 'sign', 'int8', 'bfloat16'])
def test_parts_are_those_of_the_library(kind):
  """Catches what begins anew in a part: signs, scales, draws."""
  d = numpy_codecs.PART + 4096 + 57
  options = {'bits': 2} if kind == 'eden' else {}
  ours, theirs = (
    made(**options)
    for made in (getattr(numpy_codecs, kind), getattr(codecs, kind))
  )
  key, x = jax.random.key(5), np.random.default_rng(1).standard_normal(d, 'f4')
  payload = jax.jit(theirs.encode)(key, x)
  own = np.asarray(jax.random.key_data(key))
  for got, want in zip(
    ours.encode(own, x), jax.tree.leaves(payload), strict=True
  ):
    want = np.asarray(want)
    want = want.view('u2') if kind == 'bfloat16' else want
    if want.dtype == np.float32:
      np.testing.assert_allclose(got, want, 1e-5)
    else:  # a number within rounding of an end may be in the next cell
      assert (got != want).sum() <= 2
  decoded = ours.decode(own, ours.encode(own, x), d)
  want = jax.jit(theirs.decode)(key, payload, x)
  off = np.abs(decoded - want) > 1e-5 * np.abs(want).max()
  assert off.sum() <= 2 * 4096  # of the blocks of such a number


@pytest.mark.parametrize('text', TEXTS)
def test_an_update_comes_back_as_it_went(text):
  """Catches arrays that are mixed up, lost, or of another dtype."""
  one, other = (numpy_updates.Updates(text, seed=3) for _ in range(2))
  message = one.encode(UPDATE, number=2, sender=7)
  got = other.decode(message, like=UPDATE)
  assert [(k, x.dtype, x.shape) for k, x in got.items()] == [
    (k, x.dtype, x.shape) for k, x in UPDATE.items()
  ]
  assert got['steps'] == 3
  np.testing.assert_array_equal(got['bias'], UPDATE['bias'])
  flat = lambda tree: np.concatenate(
    [np.ravel(tree[k]) for k in ('weight', 'half')]
  )
  moved, sent = flat(UPDATE), flat(got)
  assert moved @ sent > 0.2 * (moved @ moved)
  again = one.decode(message, like=UPDATE)
  np.testing.assert_array_equal(again['weight'], got['weight'])


@pytest.mark.parametrize('text', [x for x in TEXTS if 'feedback' in x])
def test_error_feedback_sends_all_in_the_end(text):
  """Catches memory that is lost or sent twice, which changes the sum."""
  updates, total = numpy_updates.Updates(text), 0
  for number in range(5):
    message = updates.encode(UPDATE, number=number, sender=0)
    total += updates.decode(message, like=UPDATE)['weight']
  left = total + updates.memory['weight']
  np.testing.assert_allclose(left, 5 * UPDATE['weight'], atol=1e-4)


def test_error_feedback_is_of_an_array():
  """Catches memory that is added to another array, or to another shape."""
  updates = numpy_updates.Updates('sign(error_feedback=True)')
  x, sent = DRAWS.standard_normal((2, 60, 70)), {}
  for number, names in enumerate(('ab', 'a', 'b', 'b')):
    arrays = {name: x['ab'.index(name)] for name in names}
    message = updates.encode(arrays, number=number, sender=0)
    for name, part in updates.decode(message, like=arrays).items():
      sent[name] = sent.get(name, 0) + part
  for i, name in enumerate('ab'):
    total = sent[name] + updates.memory[name]
    np.testing.assert_allclose(total, (2 + i) * x[i], atol=1e-4)
  updates.encode({'a': x[0].T}, number=4, sender=0)
  assert updates.memory['a'].shape == (70, 60)


@pytest.mark.parametrize(
  'text', ['eden(bits=2)', 'chunked_top_k(k=0.1)', 'int8']
)
def test_what_is_damaged_is_refused(text):
  """Catches bytes that become a model although they are not what was sent."""
  updates, draws = numpy_updates.Updates(text), np.random.default_rng(2)
  message = updates.encode(UPDATE, number=0, sender=0)
  for _ in range(700):
    damaged = bytearray(message)
    at = int(draws.integers(len(damaged)))
    if draws.random() < 0.3:
      damaged = damaged[:at]
    else:
      damaged[at] ^= int(draws.integers(1, 256))
    with pytest.raises(sealed.PayloadError):
      updates.decode(bytes(damaged), like=UPDATE)


def test_a_right_checksum_does_not_make_a_model():
  """Catches places outside of a chunk, and what is not finite."""
  updates = numpy_updates.Updates('chunked_top_k(k=1)')
  x = {'w': np.float32([[0, 2, 1]])}
  message = updates.encode(x, number=0, sender=0)
  header = numpy_updates.HEADER
  values, body = sealed.unseal(message, numpy_updates.MAGIC, header)
  place, code = 0b11000000, 0  # the place 3 of three numbers
  for bits, mean in (place, 1.0), (0, np.nan), (0, np.inf):
    leaves = bytes([bits, code]) + np.float32([mean, mean]).tobytes()
    wrong = body[: -len(leaves)].tobytes() + leaves
    wrong = sealed.seal(numpy_updates.MAGIC, header, *values, body=wrong)
    with pytest.raises(sealed.PayloadError):
      updates.decode(wrong, like=x)


@pytest.mark.parametrize(
  ('options', 'like', 'says'),
  [
    ({'compressor': 'int8'}, {}, 'Expected an update'),
    ({'seed': 1}, {}, 'Expected an update'),
    ({}, {'more': np.zeros(1)}, 'Expected an update'),
    ({}, {'bias': np.zeros(71)}, 'Expected an update'),
  ],
)
def test_an_update_of_others_is_refused(options, like, says):
  """Catches a payload that is read as one of another model or compressor."""
  message = numpy_updates.Updates('sign').encode(UPDATE, number=0, sender=0)
  updates = numpy_updates.Updates(**{'compressor': 'sign'} | options)
  with pytest.raises(sealed.PayloadError, match=says):
    updates.decode(message, like=UPDATE | like)


def test_a_size_that_its_numbers_do_not_have_is_refused():
  """Catches a foreign message that ends who reads it."""
  small, large = {'w': np.ones((1, 2))}, {'w': np.ones((1, 9))}
  of = lambda k: numpy_updates.Updates(f'chunked_top_k(k={k})')
  like = {'w': ['float64', [1, 2]]}
  message = of(2).encode(small, number=0, sender=0)
  header, magic = numpy_updates.HEADER, numpy_updates.MAGIC
  (*values, size), body = sealed.unseal(message, magic, header)
  text = json.dumps(['chunked_top_k(k=7)', like]).encode()
  wrong = sealed.seal(
    magic, header, *values, len(text), body=text + bytes(body[size:])
  )
  with pytest.raises(sealed.PayloadError, match='k=7 exceeds'):
    of(7).decode(wrong, like=small)
  deep = b'[' * 100_000
  wrong = sealed.seal(magic, header, *values, len(deep), body=deep)
  with pytest.raises(sealed.PayloadError, match='malformed'):
    of(7).decode(wrong, like=large)


def test_one_number_has_a_place():
  """Catches a place of no bits that cannot be read."""
  for text, shape in ('chunked_top_k(k=1)', (1, 1)), (
    'chunked_top_k(k=1, chunk=1)', (2, 2)
  ):  # fmt: skip
    updates, x = numpy_updates.Updates(text), {'w': np.full(shape, 3.0)}
    message = updates.encode(x, number=0, sender=0)
    np.testing.assert_array_equal(updates.decode(message, x)['w'], x['w'])


@pytest.mark.parametrize('seed', [-1, 1 << 32, 1.5])
def test_a_seed_that_no_message_can_have_is_refused(seed):
  """Catches a job that fails in its second round."""
  with pytest.raises(ValueError, match='seed='):
    numpy_updates.Updates('sign', seed=seed)


@pytest.mark.parametrize(
  ('text', 'says'),
  [
    ('edem', 'eden'), ('eden(bits=5)', 'bits=5'), ('block_srht', 'requires'),
    ('eden(bit=2)', 'no options .*bit'), ('eden | sign', 'must'),
    ('eden(bits=2, error_feedback=True)', 'no contraction'),
    ('rand_k(k=2)', 'rand_k'), ('chunked_top_k(k=5000)', 'k=5000'),
    ('block_srht(size=0.1, error_feedback=True)', 'no contraction'),
    ('block_srht(size=0.1, block=1000)', 'power of two'),
    ('chunked_top_k(k=0.1, chunk=0)', 'chunk=0'),
    ('chunked_top_k(k=2, bits=30)', 'bits=30'),
    ('sign(error_feedback="no")', 'error_feedback'),
    ('eden(', 'NAME'),
  ],
)  # fmt: skip
def test_a_bad_text_is_refused_in_one_line(text, says):
  """Catches a compressor that fails in the first round."""
  with pytest.raises(ValueError, match=says) as e:
    numpy_updates.Updates(text)
  assert '\n' not in str(e.value)


def test_what_is_no_update_is_refused():
  """Catches a NaN that is sent, and numbers that float32 cannot hold."""
  updates = numpy_updates.Updates('sign')
  for wrong in np.array([np.nan]), np.array([[1e39]]), np.array(['text']):
    with pytest.raises(ValueError, match=r'w (is not finite|has neither)'):
      updates.encode({'b': np.ones(3), 'w': wrong}, number=0, sender=0)


@pytest.mark.parametrize('text', TEXTS)
def test_reads_only_memory_that_it_has_written(text, monkeypatch):
  """Catches a warning, or a message, of what np.empty happens to hold."""
  x = {'w': DRAWS.standard_normal((5, 8200))}
  encode = lambda: numpy_updates.Updates(text).encode(x, number=0, sender=0)
  expected = encode()
  top = lambda kind: 3e38 if np.dtype(kind).kind == 'f' else 127
  filled = lambda shape, dtype, **_: np.full(shape, top(dtype), dtype)
  monkeypatch.setattr(np, 'empty', filled)
  assert encode() == expected


def test_needs_no_jax():
  """Catches an import that a site cannot do."""
  loads = 'import sys, fl_sketch.sites.numpy_following'
  code = f'{loads}; assert "jax" not in sys.modules'
  subprocess.run([sys.executable, '-c', code], check=True)


@pytest.mark.nightly
def test_needs_two_copies():
  """Catches vectors that are copied as a whole."""
  x = {'w': DRAWS.standard_normal(16 * numpy_codecs.PART, 'f4')}
  sparse = 'block_srht(size=0.01)', 'chunked_top_k(k=0.1)'
  for text in ('eden(bits=2)', FEEDBACK, 'bfloat16', 'int8', *sparse):
    updates = numpy_updates.Updates(text)
    for number in range(2):
      tracemalloc.start()
      message = updates.encode(x, number=number, sender=0)
      sent = tracemalloc.get_traced_memory()[1]
      tracemalloc.reset_peak()
      updates.decode(message, like=x)
      read = tracemalloc.get_traced_memory()[1]
      tracemalloc.stop()
      assert max(sent, read) < 2.4 * x['w'].nbytes, text
