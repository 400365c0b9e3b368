"""Writes docs/vectors/*.json anew: python tests/support/wire_vectors.py."""

import json
import pathlib

from fl_sketch import codecs, sketches
from fl_sketch.codecs import base
from fl_sketch.rounds import keys as keys_lib
from fl_sketch.sites import replicas, sealed, wire
from fl_sketch.sketches import hashing
from fl_sketch.utils import registry
import jax
import jax.numpy as jnp
from laws import jit
import numpy as np

FOLDER = pathlib.Path(__file__).parents[2] / 'docs' / 'vectors'
KEY = jax.random.key(7)
LEAVES = [40, 12, 5]  # sizes of those of `layerwise`
# A call; of 57 numbers, or of as many as it says.
SKETCHES = (
  'identity', 'count_sketch(rows=4, cols=4)',
  "count_sketch(rows=3, cols=5, combine='mean')",
  'sparse_embedding_1(size=16, sparsity=3)',
  'sparse_embedding_2(size=16, sparsity=4)', 'block_cyclic(size=16)',
  'block_cyclic(size=16, sparsity=4)', 'block_cyclic(size=40) of 5000',
  'ams(size=40)', 'gaussian(size=16)', 'uniform_sampling(size=16)',
  'srht(size=16)', 'block_srht(size=16, block=16)',
  'block_srht(size=16, block=16) of 64', 'block_srht(size=100) of 10000',
  'dct(size=16)', 'dct(size=16) of 70001', 'srft(size=16)',
  "layerwise(factory='block_cyclic', size=20)",
)  # fmt: skip
CODECS = (
  'identity', 'top_k(k=8)', 'rand_k(k=8)', 'rand_k(k=8, contract=True)',
  'qsgd(levels=1)', 'qsgd(levels=7)', 'qsgd(levels=8)', 'qsgd(levels=128)',
  'sign', "sign(norm='l2')", 'shared_sign(bound=3.0)',
  'quantized_top_k(k=6, bits=2, bucket=3)',
  'quantized_top_k(k=9, bits=4, bucket=3)',
  'quantized_top_k(k=6, bits=8, bucket=6)', 'chunked_top_k(k=3, chunk=16)',
  'chunked_top_k(k=5, bits=4)', 'dct_top_k(k=2, chunk=8)', 'dct_blocks(k=2)',
  'bfloat16', 'int8', 'int8(block=16)', 'int4(block=8)', 'eden(rotate=False)',
  "eden(bits=4, rotate=False, scale='least_squares')", 'eden(bits=1)',
  'eden of 20', 'eden(bits=3, num_coordinates=20)',
  "eden(bits=2, scale='least_squares')",
  'eden(num_coordinates=100) of 10000', 'eden(bits=2) of 9000',
)  # fmt: skip
RUN = sealed.fingerprint({'seed': 42})
# Sent with every payload, and not billed.
METRICS = {'accepted': np.float32(1), 'train_loss': np.float32(0)}


def numbers(d: int) -> np.ndarray:
  """The input of the vectors, f32[d]: exact, of either sign, in no order."""
  i = np.arange(d, dtype=np.int64)
  x = (7919 * i**2 + 104_729 * i + 31) % 65_536 - 32_768
  return (x / 8192).astype(np.float32)


MODEL = {'b': numbers(3), 'w': numbers(6).reshape(2, 3)}
STATE = wire.Part(
  wire.PartKind.STATE, 0, 45, wire.to_bytes((MODEL, (), np.int32(5)))
)
ANNOUNCED = [
  wire.Part(wire.PartKind.ANNOUNCEMENTS, 0, r, b'told') for r in (43, 44)
]


def array(x) -> dict:
  """An array as its dtype, shape and bytes."""
  x = np.asarray(x)
  shown = {'dtype': str(x.dtype), 'shape': list(x.shape)}
  return {**shown, 'hex': wire.to_bytes([x]).hex()}


def of_key(key) -> list[int]:
  return jax.random.key_data(key).tolist()


def coded(make, forward, back, text) -> dict:
  """A sketch or codec, its input, payload and some of what is decoded."""
  call, _, d = text.partition(' of ')
  options = registry.parse_call(call)
  kind, d = options.pop('kind'), int(d or 57)
  part, x = make(kind, **options), numbers(d)
  if kind == 'layerwise':
    x = np.split(x, np.cumsum(LEAVES)[:-1])

  @jit
  def both(x):
    payload = getattr(part, forward)(KEY, x)
    return payload, getattr(part, back)(KEY, payload, x)

  payload, decoded = both(x)
  decoded = np.concatenate([np.ravel(x) for x in jax.tree.leaves(decoded)])
  step = -(-d // 100)
  return {
    'kind': kind, 'options': options, 'key': of_key(KEY),
    'd': LEAVES if kind == 'layerwise' else d,
    'payload': [array(leaf) for leaf in jax.tree.leaves(payload)],
    'every': step, 'decoded': array(decoded[::step]),
  }  # fmt: skip


def drawn(seed: int) -> dict:
  """What is drawn from the key of a seed."""
  key = jax.random.key(seed)
  return {
    'seed': seed,
    'key': of_key(key),
    'fold_in': {n: of_key(jax.random.fold_in(key, n)) for n in (0, 1, 68_769)},
    'split_of_3': of_key(jax.random.split(key, 3)),
    'uniform': array(base.uniform(key, 5)),
  }


def hashes(key) -> dict:
  """Words of the families of hash functions."""
  i = jnp.arange(5, dtype=jnp.uint32)
  domains = ('SHIFT', 'SIGN', 'BUCKET', 'SAMPLE', 'ENTRY', 'ROUNDING')
  seeds = {n: hashing.seeds(key, 2, getattr(hashing, n)) for n in domains}
  two = hashing.families(key, 2, 2, hashing.BUCKET)[1]
  four = hashing.families(key, 2, 4, hashing.SIGN)[1]
  return {
    'key': of_key(key),
    'mix': hashing.mix(i).tolist(),
    'seeds': {name: x.tolist() for name, x in seeds.items()},
    'word_of_sign_seed_0': hashing.word(i, seeds['SIGN'][0]).tolist(),
    'pairwise_words_of_bucket_family_1': hashing.kwise(i, two).tolist(),
    'four_wise_words_of_sign_family_1': hashing.kwise(i, four).tolist(),
    'sample_5_of_57': hashing.sample(key, 5, 57).tolist(),
    'sample_4_of_4096': hashing.sample(key, 4, 4096).tolist(),
  }


def round_keys(seed: int, index: int, client: int) -> dict:
  """The keys of one client in one round."""
  keys = keys_lib.round_keys(jax.random.key(seed), index)
  own = keys_lib.for_client(keys, client)
  found = {
    'run': keys.run, 'round': keys.round, 'client': own.client,
    'local_work': keys_lib.local_key(own),
    'codec_of_the_client': keys_lib.codec_key(own.client),
    'codec_of_the_round': keys_lib.codec_key(keys.round),
    'hash_of_20_rounds': keys_lib.hash_key(keys, 20),
  }  # fmt: skip
  asked = {'seed': seed, 'index': index, 'client_id': client}
  return asked | {name: of_key(key) for name, key in found.items()}


def reply(payload, kind, number=45) -> dict:
  """A reply of client 3, whose fields are spelled out."""
  message = wire.encode_reply(
    payload, kind=kind, run=RUN, round_index=number, client_id=3, incarnation=2
  )
  fields = wire.decode_reply(message)._asdict()
  del fields['body']
  return {**fields, 'run': RUN.hex(), 'hex': message.hex()}


def request(kind, *parts) -> dict:
  """A request to client 3."""
  digest = replicas.digest(MODEL, np.int32(5))
  one = wire.Request(kind, RUN, 2, 45, 3, 0, digest, 0.25, 40, 44, parts)
  of_parts = [x._replace(body=x.body.hex())._asdict() for x in parts]
  spelled = {'run': RUN.hex(), 'digest': digest.hex(), 'parts': of_parts}
  return one._asdict() | spelled | {'hex': wire.encode_request(one).hex()}


def exchange(text: str | None = None) -> dict:
  """What a client of a run of tables answers, its update being its model."""
  options = {'rows': 2, 'cols': 4}
  keys = keys_lib.round_keys(jax.random.key(42), 45)
  own = keys_lib.for_client(keys, 3)
  sent = sketches.make('count_sketch', **options).sketch(keys.round, MODEL)
  if called := text and registry.parse_call(text):
    sent = codecs.make(**called).encode(keys_lib.codec_key(own.client), sent)
  leaves = {'metrics': METRICS, 'payload': sent}
  answer = bytes.fromhex(reply(leaves, wire.ReplyKind.PAYLOAD)['hex'])
  return {
    'request': request(wire.RequestKind.WORK, STATE)['hex'], 'seed': 42,
    'sketch': {'kind': 'count_sketch'} | options, 'codec': called,
    'header_of_the_reply': answer[: wire.REPLY_OVERHEAD - 4].hex(),
    'leaves_of_the_reply': [array(x) for x in jax.tree.leaves(leaves)],
  }  # fmt: skip


PAYLOAD = {  # of every kind of leaf; the keys of a dict are sorted
  'byte': np.array([-1, 2], np.int8),
  'half': np.arange(3, dtype=jnp.bfloat16),
  'index': np.array([7, 258], np.int32),
  'packed': np.array([[1, 128]], np.uint8),
  'table': numbers(4).reshape(2, 2),
}
WORK = wire.RequestKind.WORK
# file -> {name: (function, *arguments)}
FILES = {
  'keys': {
    'seed_0': (drawn, 0),
    'seed_123456789': (drawn, 123_456_789),
    'hashes': (hashes, KEY),
    'round_0': (round_keys, 0, 0, 0),
    'round_45': (round_keys, 42, 45, 3),
  },
  'sketches': {
    text: (coded, sketches.make, 'sketch', 'desketch', text)
    for text in SKETCHES
  },
  'codecs': {
    text: (coded, codecs.make, 'encode', 'decode', text) for text in CODECS
  },
  'messages': {
    'reply_payload': (reply, {'metrics': METRICS, 'payload': PAYLOAD}, 0),
    'reply_need': (reply, b'', wire.ReplyKind.NEED, -1),
    'reply_refused': (reply, b'Another config.', wire.ReplyKind.REFUSED),
    'reply_json': (reply, b'{"client": 3}', wire.ReplyKind.JSON),
    'request_hello': (request, wire.RequestKind.HELLO),
    'request_work': (request, WORK),
    'request_work_with_state': (request, WORK, STATE),
    'request_work_with_announcements': (request, WORK, *ANNOUNCED),
    'exchange': (exchange,),
    'exchange_one_bit': (exchange, 'eden(rotate=False)'),
    'exchange_int8': (exchange, 'int8(block=4)'),
  },
}


def vector(file: str, name: str) -> dict:
  """A vector as JSON has it."""
  function, *arguments = FILES[file][name]
  return json.loads(json.dumps(function(*arguments)))


def write():
  """Writes the files anew."""
  for file, names in FILES.items():
    rows = [f'{json.dumps(n)}: {json.dumps(vector(file, n))}' for n in names]
    text = '{\n' + ',\n'.join(rows) + '\n}\n'
    (FOLDER / f'{file}.json').write_text(text)


if __name__ == '__main__':
  write()
