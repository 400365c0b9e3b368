"""Test vectors of the wire format: python tests/support/wire_vectors.py.

It writes docs/vectors/*.json anew, from the library; commit what it writes.
"""

import json
import pathlib

from fl_sketch import codecs, sketches
from fl_sketch.messaging import requests, wire
from fl_sketch.rounds import keys as keys_lib
from fl_sketch.sketches import hashing
import jax
import jax.numpy as jnp
from laws import jit
import numpy as np

FOLDER = pathlib.Path(__file__).parents[2] / 'docs' / 'vectors'
KEY = jax.random.key(7)
RULE = 'x[i] = ((7919 i^2 + 104729 i + 31) mod 65536 - 32768) / 8192'
# name -> kind, d, options; a name with a number has that d.
SKETCHES = {
  'identity': ('identity', 57, {}),
  'count_sketch': ('count_sketch', 57, {'rows': 4, 'cols': 4}),
  'count_sketch_mean': ('count_sketch', 57, {'rows': 3, 'cols': 5,
    'combine': 'mean'}),
  'sparse_embedding_1': ('sparse_embedding_1', 57, {'size': 16, 'sparsity': 3}),
  'sparse_embedding_2': ('sparse_embedding_2', 57, {'size': 16, 'sparsity': 4}),
  'block_cyclic': ('block_cyclic', 57, {'size': 16}),
  'block_cyclic_4': ('block_cyclic', 57, {'size': 16, 'sparsity': 4}),
  'block_cyclic_5000': ('block_cyclic', 5000, {'size': 40}),
  'ams': ('ams', 57, {'size': 40}),
  'gaussian': ('gaussian', 57, {'size': 16}),
  'uniform_sampling': ('uniform_sampling', 57, {'size': 16}),
  'srht': ('srht', 57, {'size': 16}),
  'block_srht': ('block_srht', 57, {'size': 16, 'block': 16}),
  'block_srht_64': ('block_srht', 64, {'size': 16, 'block': 16}),
  'block_srht_10000': ('block_srht', 10_000, {'size': 100}),
  'dct': ('dct', 57, {'size': 16}),
  'dct_70001': ('dct', 70_001, {'size': 16}),
  'srft': ('srft', 57, {'size': 16}),
  'layerwise': ('layerwise', [40, 12, 5], {'factory': 'block_cyclic',
    'size': 20}),
}  # fmt: skip
CODECS = {
  'identity': ('identity', 57, {}),
  'top_k': ('top_k', 57, {'k': 8}),
  'rand_k': ('rand_k', 57, {'k': 8}),
  'rand_k_contract': ('rand_k', 57, {'k': 8, 'contract': True}),
  'qsgd_1': ('qsgd', 57, {'levels': 1}),
  'qsgd_7': ('qsgd', 57, {'levels': 7}),
  'qsgd_8': ('qsgd', 57, {'levels': 8}),
  'qsgd_128': ('qsgd', 57, {'levels': 128}),
  'sign': ('sign', 57, {}),
  'sign_l2': ('sign', 57, {'norm': 'l2'}),
  'shared_sign': ('shared_sign', 57, {'bound': 3.0}),
  'quantized_top_k_2_bits': ('quantized_top_k', 57, {'k': 6, 'bits': 2,
    'bucket': 3}),
  'quantized_top_k_4_bits': ('quantized_top_k', 57, {'k': 9, 'bits': 4,
    'bucket': 3}),
  'quantized_top_k_8_bits': ('quantized_top_k', 57, {'k': 6, 'bits': 8,
    'bucket': 6}),
  'chunked_top_k': ('chunked_top_k', 57, {'k': 3, 'chunk': 16}),
  'chunked_top_k_4_bits': ('chunked_top_k', 57, {'k': 5, 'bits': 4}),
  'dct_top_k': ('dct_top_k', 57, {'k': 2, 'chunk': 8}),
  'bfloat16': ('bfloat16', 57, {}),
  'int8': ('int8', 57, {}),
  'int8_blocks': ('int8', 57, {'block': 16}),
  'int4': ('int4', 57, {'block': 8}),
  'eden_rotated_already': ('eden', 57, {'rotate': False}),
  'eden_4_bits_rotated_already': ('eden', 57, {'bits': 4, 'rotate': False,
    'scale': 'least_squares'}),
  'eden_20': ('eden', 20, {}),
  'eden': ('eden', 57, {}),
  'eden_of_20_coordinates': ('eden', 57, {'bits': 3, 'num_coordinates': 20}),
  'eden_nearest': ('eden', 57, {'bits': 2, 'scale': 'least_squares'}),
  'eden_10000': ('eden', 10_000, {'num_coordinates': 100}),
}  # fmt: skip


def numbers(d: int) -> np.ndarray:
  """The input of the vectors, f32[d]: exact, of either sign, in no order."""
  i = np.arange(d, dtype=np.int64)
  x = (7919 * i**2 + 104_729 * i + 31) % 65_536 - 32_768
  return (x / 8192).astype(np.float32)


def tree(d):
  """The numbers; for a list of sizes in leaves of these."""
  if isinstance(d, int):
    return numbers(d)
  return np.split(numbers(sum(d)), np.cumsum(d)[:-1])


def array(x) -> dict:
  """An array as its dtype, shape and little-endian bytes."""
  x = np.asarray(x)
  little = x.astype(x.dtype.newbyteorder('<'), copy=False)
  return {
    'dtype': str(x.dtype), 'shape': list(x.shape), 'hex': little.tobytes().hex()
  }  # fmt: skip


def decoded(x) -> dict:
  """Some of the decoded values, and which they are."""
  x = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(x)])
  step = -(-x.size // 100)
  return {'every': step, 'values': [float(f'{v:.9g}') for v in x[::step]]}


def of_key(key) -> list[int]:
  return jax.random.key_data(key).tolist()


def case(table, name, payload, back) -> dict:
  kind, d, options = table[name]
  return {
    'kind': kind, 'options': options, 'key': of_key(KEY), 'd': d,
    'payload': [array(leaf) for leaf in jax.tree.leaves(payload)],
    'decoded': decoded(back),
  }  # fmt: skip


def sketch(name) -> dict:
  kind, d, options = SKETCHES[name]
  op, x = sketches.make(kind, **options), tree(d)

  @jit
  def both(x):
    table = op.sketch(KEY, x)
    return table, op.desketch(KEY, table, x)

  return case(SKETCHES, name, *both(x))


def codec(name) -> dict:
  kind, d, options = CODECS[name]
  one, x = codecs.make(kind, **options), tree(d)

  @jit
  def both(x):
    payload = one.encode(KEY, x)
    return payload, one.decode(KEY, payload, x)

  return case(CODECS, name, *both(x))


def random_numbers(seed: int) -> dict:
  """What is drawn from the key of a seed."""
  key = jax.random.key(seed)
  return {
    'seed': seed,
    'key': of_key(key),
    'fold_in': {n: of_key(jax.random.fold_in(key, n)) for n in (0, 1, 68_769)},
    'split_of_3': of_key(jax.random.split(key, 3)),
    'bits': jax.random.bits(key, (5,)).tolist(),
    'bits_of_16': jax.random.bits(key, (5,), np.uint16).tolist(),
    'uniform': array(jax.random.uniform(key, (5,))),
  }


def hashes(seed: int) -> dict:
  """Words of the families of hash functions."""
  key, i = jax.random.key(seed), jnp.arange(5, dtype=jnp.uint32)
  domains = ('SHIFT', 'SIGN', 'BUCKET', 'SAMPLE', 'ENTRY')
  seeds = lambda name: hashing.seeds(key, 2, getattr(hashing, name))
  one = seeds('SIGN')[0]
  family = hashing.families(key, 2, 2, hashing.BUCKET)[1]
  of_four = hashing.families(key, 2, 4, hashing.SIGN)[1]
  return {
    'key': of_key(key),
    'mix': hashing.mix(i).tolist(),
    'seeds': {name: seeds(name).tolist() for name in domains},
    'word_of_sign_seed_0': hashing.word(i, one).tolist(),
    'pairwise_words_of_bucket_family_1': hashing.kwise(i, family).tolist(),
    'four_wise_words_of_sign_family_1': hashing.kwise(i, of_four).tolist(),
    'sample_5_of_57': hashing.sample(key, 5, 57).tolist(),
    'sample_4_of_4096': hashing.sample(key, 4, 4096).tolist(),
  }


def round_keys(seed: int, index: int, client: int) -> dict:
  """The keys of one client in one round."""
  keys = keys_lib.round_keys(jax.random.key(seed), index)
  own = keys_lib.for_client(keys, client)
  return {
    'seed': seed, 'round': index, 'client': client,
    'run_key': of_key(keys.run),
    'round_key': of_key(keys.round),
    'client_key': of_key(own.client),
    'local_key': of_key(keys_lib.local_key(own)),
    'codec_key_of_the_client': of_key(keys_lib.codec_key(own.client)),
    'codec_key_of_the_round': of_key(keys_lib.codec_key(keys.round)),
    'hash_key_of_hash_rounds_20': of_key(keys_lib.hash_key(keys, 20)),
  }  # fmt: skip


KEYS = {
  'seed_0': lambda: random_numbers(0),
  'seed_123456789': lambda: random_numbers(123_456_789),
  'hashes': lambda: hashes(7),
  'round_0': lambda: round_keys(0, 0, 0),
  'round_45': lambda: round_keys(42, 45, 3),
}
RUN = wire.fingerprint({'seed': 42})
# Sent with every payload, and not billed.
METRICS = {'accepted': np.float32(1), 'train_loss': np.float32(0)}
# A payload with leaves of every kind; dict keys are sorted.
PAYLOAD = {
  'metrics': METRICS,
  'payload': {
    'byte': np.array([-1, 2], np.int8),
    'half': np.arange(3, dtype=jnp.bfloat16),
    'index': np.array([7, 258], np.int32),
    'packed': np.array([[1, 128]], np.uint8),
    'table': numbers(4).reshape(2, 2),
  },
}
MODEL = {'b': numbers(3), 'w': numbers(6).reshape(2, 3)}
STATE = wire.to_bytes(jax.tree.leaves((MODEL, (), np.int32(5))))


def reply(payload, kind, number=45) -> dict:
  """A reply of client 3, whose fields are spelled out."""
  message = wire.encode(
    payload, kind=kind, run=RUN, round_index=number, client_id=3, incarnation=2,
    stage=0,
  )  # fmt: skip
  fields = wire.unpack(message)._asdict()
  del fields['body']
  return {**fields, 'run': RUN.hex(), 'hex': message.hex()}


def request(kind, *parts, **fields) -> dict:
  """A request to client 3."""
  digest = requests.digest(MODEL, np.int32(5))
  one = requests.Request(kind, RUN, 2, 45, 3, 0, digest, 0.25, 40, 44, parts)
  one = one._replace(**fields)
  message, fields = requests.encode(one), one._asdict()
  parts = [x._replace(body=x.body.hex())._asdict() for x in parts]
  plain = {'run': RUN.hex(), 'digest': one.digest.hex(), 'parts': parts}
  return {**fields, **plain, 'hex': message.hex()}


def exchange(codec_of, options) -> dict:
  """What a client of a run by tables answers, its update being its model."""
  op = sketches.make('count_sketch', rows=2, cols=4)
  keys = keys_lib.round_keys(jax.random.key(42), 45)
  own = keys_lib.for_client(keys, 3)
  table = op.sketch(keys.round, MODEL)
  if codec_of is not None:
    one = codecs.make(codec_of, **options)
    table = one.encode(keys_lib.codec_key(own.client), table)
  part = requests.Part(requests.PartKind.STATE, 0, 45, STATE)
  loss = {'metrics': METRICS, 'payload': table}
  return {
    'request': request(requests.Kind.WORK, part)['hex'],
    'sketch': ['count_sketch', {'rows': 2, 'cols': 4}],
    'codec': codec_of and [codec_of, options],
    'seed': 42,
    'reply': reply(loss, wire.Kind.PAYLOAD)['hex'],
    'of': [array(x) for x in jax.tree.leaves(loss)],
  }


MESSAGES = {
  'reply_payload': lambda: reply(PAYLOAD, wire.Kind.PAYLOAD),
  'reply_need': lambda: reply(b'', wire.Kind.NEED, -1),
  'reply_refused': lambda: reply(b'Another config.', wire.Kind.REFUSED),
  'reply_json': lambda: reply(b'{"client": 3}', wire.Kind.JSON),
  'request_hello': lambda: request(requests.Kind.HELLO),
  'request_work': lambda: request(requests.Kind.WORK),
  'request_work_with_state': lambda: request(
    requests.Kind.WORK, requests.Part(requests.PartKind.STATE, 0, 45, STATE)
  ),
  'request_work_with_announcements': lambda: request(
    requests.Kind.WORK,
    *(requests.Part(requests.PartKind.TOLD, 0, r, bytes([r] * 4))
      for r in (43, 44)),
  ),
  'exchange': lambda: exchange(None, {}),
  'exchange_one_bit': lambda: exchange('eden', {'rotate': False}),
  'exchange_int8': lambda: exchange('int8', {'block': 4}),
}  # fmt: skip
FILES = {
  'keys': (KEYS, lambda name: KEYS[name]()),
  'sketches': (SKETCHES, sketch),
  'codecs': (CODECS, codec),
  'messages': (MESSAGES, lambda name: MESSAGES[name]()),
}


def write():
  """Writes the files anew."""
  FOLDER.mkdir(exist_ok=True)
  for file, (names, make) in FILES.items():
    rows = [f'{json.dumps(n)}: {json.dumps(make(n))}' for n in names]
    text = '{\n' + ',\n'.join(rows) + '\n}\n'
    (FOLDER / f'{file}.json').write_text(text)


if __name__ == '__main__':
  write()
