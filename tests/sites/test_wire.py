"""Messages: bits, refusals, stored vectors, and clients without JAX."""

import functools
import importlib
import json
import struct
import subprocess
import sys
import zlib

import cases
import chex
from fl_sketch import codecs, local, sketches
from fl_sketch.models import networks
from fl_sketch.rounds import comms
from fl_sketch.sites import wire
from fl_sketch.sites.wire import Part, PartKind, Request, RequestKind
from fl_sketch.utils import __version__
from hypothesis import given, settings, strategies as st
import jax
import jax.numpy as jnp
from messaging_clients import RUN, forged, refusal, run_of
import numpy as np
import numpy_client
import numpy_operators
import optax
import pytest
import wire_vectors as vectors

PAYLOAD = {
  'half': jnp.arange(6, dtype=jnp.bfloat16).reshape(2, 3),
  'byte': jnp.array([-1, 2], jnp.int8),
  'flag': jnp.array([True, False]),
  'none': jnp.zeros((0, 3)),
  'number': jnp.float32(0.1),
}
SENT = {'metrics': wire.NO_METRICS, 'payload': PAYLOAD}
MESSAGE = forged(PAYLOAD, 3, 7, incarnation=2, stage=1)
PARTS = (
  Part(PartKind.STATE, 0, 4, b'state'),
  Part(PartKind.ANNOUNCEMENTS, 1, 4, b''),
  Part(PartKind.ANNOUNCEMENTS, 0, 5, b'{}'),
)
REQUEST = Request(
  RequestKind.GO_ON, RUN, 2, 5, 7, 1, bytes(range(16)), 0.5, 3, 4, PARTS
)
ASKED = wire.encode_request(REQUEST)
SHAPES = st.lists(st.integers(1, 3), max_size=2).map(tuple)
TYPES = st.sampled_from(['float32', 'int32', 'int8', 'uint8', 'bool'])


def test_messages_come_back_with_their_bits_and_their_bytes_are_the_bill():
  """Catches a field that is lost, and bytes that no bill counts."""
  assert len(MESSAGE) == wire.REPLY_OVERHEAD + 8 + comms.nbytes(PAYLOAD)
  result = wire.decode_reply(MESSAGE)
  assert result[:6] == (wire.ReplyKind.PAYLOAD, RUN, 2, 3, 7, 1)
  chex.assert_trees_all_equal(wire.read_payload(result, SENT), SENT)
  types = jax.eval_shape(lambda: SENT)
  chex.assert_trees_all_equal_dtypes(wire.read_payload(result, types), SENT)
  assert wire.decode_request(ASKED) == REQUEST
  size = wire.REQUEST_OVERHEAD + 3 * wire.PART_OVERHEAD
  assert len(ASKED) == size + len(b'state{}')


@pytest.mark.parametrize(
  ('message', 'read'),
  [(MESSAGE, wire.decode_reply), (ASKED, wire.decode_request)],
)
def test_whatever_is_cut_off_or_flipped_is_found(message, read):
  """Catches fields and sizes of parts that the checksum does not see."""
  cut = [message[:n] for n in range(len(message))]
  bits, whole = range(8 * len(message)), int.from_bytes(message)
  flipped = [(whole ^ 1 << n).to_bytes(len(message)) for n in bits]
  for damaged in [*cut, *flipped, message + b'\0']:
    with pytest.raises(wire.PayloadError):
      read(damaged)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(SHAPES, TYPES, SHAPES, TYPES)
def test_a_payload_is_read_as_what_was_sent_alone(shape, dtype, other, another):
  """Catches numbers of one type or shape that are read as another's."""
  message = wire.decode_reply(forged(np.ones(shape, dtype), 0, 0))
  like = {'metrics': wire.NO_METRICS, 'payload': np.ones(other, another)}
  if (shape, dtype) == (other, another):
    np.testing.assert_array_equal(
      wire.read_payload(message, like)['payload'], 1
    )
  else:
    with pytest.raises(wire.PayloadError):
      wire.read_payload(message, like)


def test_a_bool_is_zero_or_one():
  """Catches a byte 2 that is true, and neither equal to True nor False."""
  two = forged(np.array([1, 2], 'u1').view(bool), 0, 0)
  with pytest.raises(wire.PayloadError):
    wire.read_payload(
      wire.decode_reply(two), SENT | {'payload': PAYLOAD['flag']}
    )


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.integers(0, 5), st.integers(0, 70), st.binary(max_size=8))
def test_a_request_with_any_parts_is_read_or_refused(kind, cut, more):
  """Catches a crash, or a short part, of a request whose checksum is right."""
  head = ASKED[:6] + bytes([kind]) + ASKED[7 : wire.REQUEST_OVERHEAD - 4]
  body = ASKED[wire.REQUEST_OVERHEAD :][:cut] + more
  crc = struct.pack('<I', zlib.crc32(body, zlib.crc32(head)))
  try:
    request = wire.decode_request(head + crc + body)
  except wire.PayloadError:
    return
  assert wire.encode_request(request) == head + crc + body


STORED = {
  file: json.loads((vectors.FOLDER / f'{file}.json').read_text())
  for file in vectors.FILES
}
# Slow to compile. In the fast tier twins in NumPy stand for them.
SLOW = {
  'keys': ('hashes',),
  'sketches': ('count', 'sparse', 'block', 'ams', 'dct', 'srft', 'layerwise'),
  'codecs': ('rand_k', 'eden of', 'eden(bits', 'eden(num', 'qsgd(levels=1',
    'quantized_top_k(k=6', 'chunked_top_k(k=5', 'int8(', 'sign(norm'),
  'messages': ('exchange',),
}  # fmt: skip
WITHOUT_JAX = """
import runpy, sys
sys.modules.update(dict.fromkeys(('jax', 'scipy')))
runpy.run_path(sys.argv[1], run_name='__main__')
"""


def compare(want, got, path):
  """Bits are equal; floats are to 4e-6 of the largest."""
  if isinstance(want, dict):
    assert want.keys() == got.keys(), path
    if want.get('dtype') in ('float32', 'complex64'):
      of = lambda x: np.frombuffer(bytes.fromhex(x['hex']), x['dtype'])
      x, y = of(want), of(got)
      np.testing.assert_allclose(x, y, rtol=0, atol=4e-6 * abs(x).max())
      want, got = want | {'hex': ''}, got | {'hex': ''}
    for name, x in want.items():
      compare(x, got[name], f'{path} {name}')
  elif isinstance(want, list) and want and isinstance(want[0], dict):
    for i, (x, y) in enumerate(zip(want, got, strict=True)):
      compare(x, y, f'{path} {i}')
  else:
    assert want == got, path


@pytest.mark.parametrize(('file', 'name'), [
  pytest.param(
    file, name, id=f'{file}: {name}',
    marks=[pytest.mark.nightly] if name.startswith(SLOW[file]) else [],
  )
  for file, names in vectors.FILES.items() for name in names
])  # fmt: skip
def test_the_library_gives_the_bytes_of_the_vectors(file, name):
  """Catches a change of a format, by which clients of others lose touch."""
  compare(STORED[file][name], vectors.vector(file, name), name)


def test_every_registered_part_and_every_case_has_a_vector():
  """Catches a sketch, a codec or a case that was added without its vector."""
  kinds = lambda file: {x['kind'] for x in STORED[file].values()}
  assert kinds('sketches') == {*sketches.names()}
  assert kinds('codecs') == {*codecs.REGISTRY.names()}
  for file, names in vectors.FILES.items():
    assert STORED[file].keys() == names.keys()


def test_numpy_alone_gives_the_bytes_of_all_vectors():
  """Catches a client in NumPy that needs JAX, or that another format left."""
  script = vectors.FOLDER / 'check.py'
  done = subprocess.run(
    [sys.executable, '-W', 'error', '-c', WITHOUT_JAX, str(script)],
    capture_output=True, text=True, check=False,
  )  # fmt: skip
  assert done.returncode == 0, done.stdout[-300:] + done.stderr[-2000:]
  assert len(done.stdout.splitlines()) == 1 + sum(
    len(STORED[file]) for file in ('sketches', 'codecs', 'messages')
  )


def vector(tree):
  """All numbers of a tree in a row."""
  return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


def least_squares(batches):
  """Local steps on the loss of `cases`, in NumPy."""
  rate = float(cases.HP.client_lr)

  def work(params, r):
    b, w, losses = params[:2], params[2:].reshape(4, 2), []
    for x, y in zip(*batches(r), strict=True):
      errors = x @ w + b - y
      losses.append(np.mean(errors**2))
      slope = 2 * errors / errors.size
      b, w = b - rate * slope.sum(0), w - rate * x.T @ slope
    return params - vector([b, w]), np.mean(losses)

  return work


@pytest.mark.parametrize(
  'name', ['safl_adam', pytest.param('safl_onebit', marks=pytest.mark.nightly)]
)
def test_numpy_clients_leave_the_parameters_as_they_are(name):
  """Catches a request, key, update or reply that the page tells wrongly."""
  tables = (lambda key, x: numpy_client.block_cyclic(key, x, 4)), None
  if name == 'safl_onebit':
    srht = lambda key, x: numpy_client.block_srht(key, x, 8, block=4)
    tables = srht, numpy_operators.eden
  got, want = run_of(name), run_of(name)
  for i in (1, 3):
    about = {'client': i, 'version': __version__}
    work = least_squares(functools.partial(got.batches, i))
    got.clients[i] = numpy_client.Client(about, 1, 10, work, *tables)
  got.serve()
  params = [vector(run.play(3).params) for run in (got, want)]
  np.testing.assert_allclose(*params, rtol=0, atol=1e-6 * abs(params[1]).max())
  for closed, simulated in zip(got.closed, want.closed, strict=True):
    assert closed.metrics['participants'] == 4
    losses = [x.metrics['train_loss'] for x in (closed, simulated)]
    np.testing.assert_allclose(*losses, rtol=1e-5)
  request, _ = got.asked(1)[-1]
  body = request.parts[0].body[:8]  # fewer numbers than the model has
  short = request._replace(parts=(request.parts[0]._replace(body=body),))
  for bad in short, request._replace(round=-1):
    assert refusal(got.clients[1].handle(wire.encode_request(bad)))


@pytest.mark.nightly
def test_a_torch_model_trains_as_the_one_in_flax():
  """Catches another order of leaves."""
  torch = pytest.importorskip('torch')
  torch_client = importlib.import_module('torch_client')
  flax, draws = networks.MLP(3, (4,)), np.random.default_rng(0)
  x = draws.standard_normal((2, 6, 5)).astype('f')
  labels = draws.integers(0, 3, (2, 6))
  params = flax.init(jax.random.key(0), x[0])['params']

  def loss(params, batch):
    logits = flax.apply({'params': params}, batch[0])
    cross_entropy = optax.softmax_cross_entropy_with_integer_labels
    return cross_entropy(logits, batch[1]).mean()

  want, metrics = local.sgd(loss, 0.1)(params, (x, labels), None, None)
  pairs = [*zip(torch.tensor(x), torch.tensor(labels), strict=True)]
  model = torch_client.Model(5, 4, 3)
  batches = lambda r: pairs
  one = torch_client.client({'client': 3}, 0, model, batches, 0.1, 16)
  got, mean = one.work(vector(params), 0)
  np.testing.assert_allclose(got, vector(want), rtol=0, atol=1e-6)
  np.testing.assert_allclose(mean, metrics['train_loss'], rtol=1e-6)
