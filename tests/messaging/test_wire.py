"""What payloads and requests are as messages: bits, bytes, what is refused."""

import struct
import zlib

import chex
from fl_sketch.messaging import requests, wire
from fl_sketch.messaging.requests import Kind, Part, PartKind, Request
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
SENT = {'metrics': wire.NO_METRICS, 'payload': PAYLOAD}
MESSAGE = forged(PAYLOAD, 3, 7, incarnation=2, stage=1)


def test_a_payload_comes_back_with_its_bits_and_its_bytes_are_the_bill():
  assert len(MESSAGE) == wire.OVERHEAD + 8 + comms.nbytes(PAYLOAD)
  result = wire.unpack(MESSAGE)
  assert result[:6] == (wire.Kind.PAYLOAD, RUN, 2, 3, 7, 1)
  chex.assert_trees_all_equal(wire.read(result, SENT), SENT)
  types = jax.eval_shape(lambda: SENT)
  chex.assert_trees_all_equal_dtypes(wire.read(result, types), SENT)


def test_the_bytes_of_a_leaf_are_little_endian():
  body = forged(np.array([1, 258], '>i4'), 0, 0)[wire.OVERHEAD :]
  assert body[8:] == bytes([1, 0, 0, 0, 2, 1, 0, 0])


def check_damage(message, read):
  """Every prefix, every flipped bit and a byte more are refused."""
  cut = [message[:n] for n in range(len(message))]
  bits, whole = range(8 * len(message)), int.from_bytes(message)
  flipped = [(whole ^ 1 << n).to_bytes(len(message)) for n in bits]
  for damaged in [*cut, *flipped, message + b'\0']:
    with pytest.raises(wire.PayloadError):
      read(damaged)


def test_whatever_is_cut_off_or_flipped_is_found():
  check_damage(MESSAGE, wire.unpack)


test_the_reason_is_named = refused(
  lambda message: wire.read(wire.unpack(message), SENT),
  (MESSAGE[:9], 'len.message.=9 is below 56'),
  (b'GET ' + MESSAGE[4:], "magic=b'GET ' is not b'FLSK'"),
  (MESSAGE[:4] + b'\1' + MESSAGE[5:], 'version=1 is not 2'),
  (MESSAGE[:-1], 'has 27 bytes, not 28'),
  (messaging_clients.flipped(MESSAGE), 'crc=0x.* is not'),
  (forged(PAYLOAD['half'], 0, 0), 'payload of 20 bytes'),
  (forged(PAYLOAD | {'number': jnp.int32(1)}, 0, 0), 'float32..'),
  (forged(PAYLOAD | {'flag': jnp.ones((2, 1), bool)}, 0, 0), 'bool.2.'),
  (forged(PAYLOAD | {'flag': np.array([1, 2], 'u1').view(bool)}, 0, 0),
    'sent as 2'),
  error=wire.PayloadError,
)  # fmt: skip


def test_a_run_has_sixteen_bytes():
  with pytest.raises(ValueError, match=r'len\(run\)=3 must be 16'):
    forged(PAYLOAD, 0, 0, b'run')


PARTS = (
  Part(PartKind.STATE, 0, 4, b'state'),
  Part(PartKind.ANNOUNCEMENTS, 1, 4, b''),
  Part(PartKind.ANNOUNCEMENTS, 0, 5, b'{}'),
)
REQUEST = Request(
  Kind.GO_ON, RUN, 2, 5, 7, 1, bytes(range(16)), 0.5, 3, 4, PARTS
)
ASKED = requests.encode(REQUEST)


def test_a_request_comes_back_and_its_overhead_is_known():
  assert requests.decode(ASKED) == REQUEST
  size = requests.OVERHEAD + 3 * requests.PART_OVERHEAD
  assert len(ASKED) == size + len(b'state{}')


def test_whatever_of_a_request_is_cut_off_or_flipped_is_found():
  """Catches fields and sizes of parts that the checksum does not see."""
  check_damage(ASKED, requests.decode)


def signed(head, body):
  """A request of any bytes with the right checksum."""
  return head + struct.pack('<I', zlib.crc32(body, zlib.crc32(head))) + body


HEAD, BODY = ASKED[: requests.OVERHEAD - 4], ASKED[requests.OVERHEAD :]

test_the_reason_of_a_request_is_named = refused(
  requests.decode,
  (ASKED[:9], 'len.message.=9 is below 76'),
  (MESSAGE + bytes(99), "magic=b'FLSK' is not b'FLSQ'"),
  (ASKED[:4] + b'\3' + ASKED[5:], 'version=3 .* reads 2; use one release'),
  (ASKED[:-1], 'crc=0x.* is not'),
  (signed(HEAD, BODY[:-1]), 'A part has 1 bytes, not 2'),
  (signed(HEAD, BODY[:21]), 'lacks a part'),
  (signed(HEAD, BODY + b'1'), 'has 1 bytes after parts'),
  (signed(HEAD, b'\7' + BODY[1:]), 'no part of kind=7'),
  (signed(HEAD[:6] + b'\7' + HEAD[7:], BODY), 'no request of kind=7'),
  error=wire.PayloadError,
)
