"""Tables in 16, 8 or 4 bits a number: their range, bounds, and the uplink."""

import cases
import chex
from codec_cases import CODECS, U, there_and_back
from fl_sketch import algorithms, codecs, rounds
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
import numpy as np
import operators
from operators import KEY
import pytest

COUNT, PARAMS = cases.COUNT, cases.PARAMS
LARGEST = np.finfo(np.float32).max
NARROW = {
  n: CODECS[n].codec for n in ('bfloat16', 'int8_blocks', 'int4_blocks')
}
each_codec = pytest.mark.parametrize('name', NARROW)


def f32(*values):
  return np.array(values, np.float32)


@each_codec
def test_huge_and_tiny_numbers(name):
  """No scale overflows, nor does its reciprocal vanish."""
  huge = f32(LARGEST, -LARGEST, 1e38, -1e30, 0, 2, 1, 1)
  fn = operators.jit(there_and_back(NARROW[name], huge))
  out = np.asarray(fn(KEY, huge), np.float64)
  step = {'bfloat16': U, 'int8_blocks': 1 / 127, 'int4_blocks': 1 / 7}[name]
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
