"""What a payload is as a message: its bits, its bytes, what is refused."""

import chex
from fl_sketch.messaging import wire
from fl_sketch.rounds import comms
import jax
import jax.numpy as jnp
import messaging_clients
from messaging_clients import RUN, forged
import numpy as np
import pytest
from refusals import refused

PAYLOAD = {
  'half': jnp.arange(6, dtype=jnp.bfloat16).reshape(2, 3),
  'byte': jnp.array([-1, 2], jnp.int8),
  'flag': jnp.array([True, False]),
  'none': jnp.zeros((0, 3)),
  'number': jnp.float32(0.1),
}
MESSAGE = forged(PAYLOAD, 3, 7)


def test_a_payload_comes_back_with_its_bits_and_its_bytes_are_the_bill():
  assert len(MESSAGE) == wire.OVERHEAD + comms.nbytes(PAYLOAD)
  result = wire.unpack(MESSAGE)
  assert (result.run, result.round, result.client) == (RUN, 3, 7)
  chex.assert_trees_all_equal(wire.read(result, PAYLOAD), PAYLOAD)
  types = jax.eval_shape(lambda: PAYLOAD)
  chex.assert_trees_all_equal_dtypes(wire.read(result, types), PAYLOAD)


def test_the_bytes_of_a_leaf_are_little_endian():
  body = forged(np.array([1, 258], '>i4'), 0, 0)[wire.OVERHEAD :]
  assert body == bytes([1, 0, 0, 0, 2, 1, 0, 0])


def test_whatever_is_cut_off_or_flipped_is_found():
  cut = [MESSAGE[:n] for n in range(len(MESSAGE))]
  bits, whole = range(8 * len(MESSAGE)), int.from_bytes(MESSAGE)
  flipped = [(whole ^ 1 << n).to_bytes(len(MESSAGE)) for n in bits]
  for message in [*cut, *flipped, MESSAGE + b'\0']:
    with pytest.raises(wire.PayloadError):
      wire.unpack(message)


test_the_reason_is_named = refused(
  lambda message: wire.read(wire.unpack(message), PAYLOAD),
  (MESSAGE[:9], 'len.message.=9 is below 48'),
  (b'GET ' + MESSAGE[4:], "magic=b'GET ' is not b'FLSK'"),
  (MESSAGE[:4] + b'\2' + MESSAGE[5:], 'version=2 is not 1'),
  (MESSAGE[:-1], 'has 19 bytes, not 20'),
  (messaging_clients.flipped(MESSAGE), 'crc=0x.* is not'),
  (forged(PAYLOAD['half'], 0, 0), 'payload of 12 bytes'),
  (forged(PAYLOAD | {'number': jnp.int32(1)}, 0, 0), 'float32..'),
  (forged(PAYLOAD | {'flag': jnp.ones((2, 1), bool)}, 0, 0), 'bool.2.'),
  (forged(PAYLOAD | {'flag': np.array([1, 2], 'u1').view(bool)}, 0, 0),
    'sent as 2'),
  error=wire.PayloadError,
)  # fmt: skip


def test_a_run_has_sixteen_bytes():
  with pytest.raises(ValueError, match=r'len\(run\)=3 must be 16'):
    forged(PAYLOAD, 0, 0, b'run')
