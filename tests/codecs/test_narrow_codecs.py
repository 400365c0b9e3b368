"""Tables in 16, 8 or 4 bits a number: their range, bounds, and the uplink."""

import cases
import chex
from codec_cases import CODECS, U, squared_error, there_and_back
from fl_sketch import algorithms, codecs, experiment, rounds
from fl_sketch.experiment import config
from fl_sketch.privacy.mechanisms.private_mean import Release
from fl_sketch.rounds import (
  aggregation,
  chain,
  comms,
  error_feedback as feedback,
  robust,
  transforms as t,
)
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


def worst(name):
  """Numbers that reach omega, those of a block among them."""
  if name == 'bfloat16':
    return np.full(16, 1 + U / (2 + U), np.float32)
  m, d = {'int8_blocks': (127, 16), 'int4_blocks': (7, 8)}[name]
  root = (1 + (d - 1) / m**2) ** 0.5
  x = np.full(d, 1 / (root + 1), np.float32)
  x[3] = -m
  return x


@each_codec
def test_omega_is_reached(name):
  # 3 means within 6 standard errors on both sides: 6e-9 to miss one.
  x = worst(name)
  mean, error = squared_error(name, x)
  omega = NARROW[name].omega(x)
  assert abs(mean - omega) < 6 * error < 6 * omega / 50


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


def test_numbers_of_a_bfloat16_are_exact():
  x = np.arange(2**16, dtype=np.uint32) << 16
  x = x.astype(np.uint32).view(np.float32)
  x = x[np.isfinite(x) & ((np.abs(x) > 1.2e-38) | (x == 0))]
  sent = np.asarray(NARROW['bfloat16'].encode(KEY, x))
  assert (sent.view(np.uint16) == x.view(np.uint32) >> 16).all()


@pytest.mark.parametrize('name', ['int8', 'int4'])
def test_a_nan_stays_in_its_block(name):
  codec = codecs.make(name, block=3)
  x = f32(1, np.nan, 5, 2, 0, -2, -np.inf)
  out = np.asarray(operators.jit(there_and_back(codec, x))(KEY, x))
  assert not np.isfinite(out[[0, 1, 2, 6]]).any()
  np.testing.assert_array_equal(out[3:6], [2, 0, -2])


def test_error_feedback_takes_them_while_they_contract():
  for codec in *NARROW.values(), codecs.int4(392):
    feedback.compress(codec, error_feedback=True)
  assert codecs.int4(393).omega(393) == 1  # r = 3
  with pytest.raises(ValueError, match='contraction'):
    feedback.compress(codecs.int4(393), error_feedback=True)


def safl(codec, privacy=None):
  options = {'codec': codec, 'sketch': cases.CYCLIC, 'privacy': privacy}
  return algorithms.make('safl', cases.loss_fn, **options)


def test_groups_of_a_robust_mean_hold_what_was_decoded():
  rule, codec = robust.Rule('median', 2), codecs.int8()
  uplink = aggregation.mean_over_cohort(robust=rule, codec=codec)
  parts = chain.federated_chain(t.sketch(COUNT), uplink, t.broadcast())
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
  (codecs.top_k(5), None), (codecs.int8(), Release(4.0, trust='local')),
  (codecs.int8(), Release(4.0, bound='quantile', count_stddev=1.0)),
])  # fmt: skip
def test_a_codec_that_does_not_suit_what_is_sent_is_refused(codec, privacy):
  """Catches a k of the model's d, and messages that must be integers."""
  with pytest.raises(ValueError, match=r'k=5|codec'):
    rounds.init(safl(codec, privacy)(cases.HP), PARAMS, cases.POPULATION)


CONFIG = {
  'dataset': 'digits', 'model': 'linear', 'algorithm': 'safl',
  'sketch': {'kind': 'block_cyclic', 'size': 100},
}  # fmt: skip


@pytest.mark.nightly  # terms that codecs do not suit are fast
def test_a_private_config_has_a_codec_where_the_server_is_trusted():
  """Catches a codec under local privacy, or a refusal under central."""
  fields = CONFIG | {'epsilon': 8.0, 'delta': 1e-5, 'clip_norm': 1.0}
  fields |= {'standardize': False, 'codec': {'kind': 'int4'}}
  assert experiment.account(config.Config(**fields))
  with pytest.raises(ValueError, match='codec'):
    experiment.account(config.Config(**fields, trust='local'))


def test_a_block_larger_than_what_is_sent_takes_no_memory():
  codec, x = codecs.int8(block=10**8), jnp.arange(1000.0)
  encode = jax.jit(codec.encode).lower(jax.random.key(0), x).compile()
  assert encode.memory_analysis().temp_size_in_bytes < 10**6
  whole = codec.encode(jax.random.key(0), x)
  chex.assert_trees_all_equal(
    whole, codecs.int8(block=1000).encode(jax.random.key(0), x)
  )
  back = codec.decode(jax.random.key(0), whole, x)
  assert float(jnp.abs(back - x).max()) <= 999 / 127
