"""Checks the NumPy client against the vectors: python docs/vectors/check.py.

It needs no JAX, and prints what agrees; it fails where anything differs.
"""

import json
import pathlib
import sys
import zlib

from fl_sketch.sites import numpy_draws as draws
import numpy as np

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / 'examples'))

import numpy_client as client  # noqa: E402
import numpy_operators as operators  # noqa: E402


def numbers(d):
  """The input of the vectors, by its rule."""
  i = np.arange(d, dtype=np.int64)
  return ((7919 * i**2 + 104_729 * i + 31) % 65_536 - 32_768) / 8192


def wire_bytes(dtype, x):
  """The bytes of an array on the wire."""
  x = np.asarray(x)
  return x.astype('u2' if dtype == 'bfloat16' else dtype).tobytes()


def check_leaf(want, got):
  """Bits are equal, floats to 4e-6 of the largest."""
  dtype, sent = want['dtype'], bytes.fromhex(want['hex'])
  got = wire_bytes(dtype, got)
  if dtype in ('float32', 'complex64'):
    a, b = np.frombuffer(sent, dtype), np.frombuffer(got, dtype)
    assert a.shape == b.shape, 'another number of floats'
    assert abs(a - b).max() <= 4e-6 * abs(a).max(), abs(a - b).max()
  else:
    assert sent == got, f'other bits of {dtype}{want["shape"]}'


def check(vector, functions):
  """The payload of one case."""
  key, d = np.array(vector['key'], np.uint32), vector['d']
  options = {k: v for k, v in vector['options'].items() if k != 'contract'}
  x = numbers(np.sum(d))
  if isinstance(d, list):  # the sizes of leaves, each with its own table
    x = np.split(x, np.cumsum(d)[:-1])
    options['sizes'] = [table['shape'][0] for table in vector['payload']]
    del options['size']
  got = functions[vector['kind']](key, x, **options)
  leaves = got if isinstance(got, tuple | list) else [got]
  for want, leaf in zip(vector['payload'], leaves, strict=True):
    check_leaf(want, leaf)


def check_keys(vectors):
  """What is drawn from keys, and the words of hash functions."""
  for name in 'seed_0', 'seed_123456789':
    want, key = vectors[name], draws.seed_key(vectors[name]['seed'])
    assert want['key'] == key.tolist()
    folded = {n: draws.fold_in(key, int(n)).tolist() for n in want['fold_in']}
    assert want['fold_in'] == folded
    split = [draws.fold_in(key, i).tolist() for i in range(3)]
    assert want['split_of_3'] == split
    check_leaf(want['uniform'], draws.uniform(key, 5))
  hashes = vectors['hashes']
  key, i = np.array(hashes['key'], np.uint32), np.arange(5, dtype=np.uint32)
  domains = enumerate(hashes['seeds'], start=1)
  seeds = {name: draws.seeds(key, 2, n).tolist() for n, name in domains}
  words = draws.word(i, draws.seeds(key, 2, draws.SIGN)[0])
  two = [*client.kwise(key, 2, 2, draws.BUCKET, i)][1]
  four = [*client.kwise(key, 2, 4, draws.SIGN, i)][1]
  assert hashes == {
    'key': key.tolist(),
    'mix': draws.mix(i).tolist(),
    'seeds': seeds,
    'word_of_sign_seed_0': words.tolist(),
    'pairwise_words_of_bucket_family_1': two.tolist(),
    'four_wise_words_of_sign_family_1': four.tolist(),
    'sample_5_of_57': draws.sample(key, 5, 57).tolist(),
    'sample_4_of_4096': draws.sample(key, 4, 4096).tolist(),
  }


def check_message(vector):
  """What a client answers to a request."""
  if 'request' not in vector:  # a message by itself
    message = bytes.fromhex(vector['hex'])
    is_reply = message[:4] == b'FLSK'
    head = (client.REPLY if is_reply else client.REQUEST).size
    rest = message[:head] + message[head + 4 :]
    (crc,) = np.frombuffer(message, '<u4', 1, head)
    assert crc == zlib.crc32(rest), 'another checksum'
    return
  called = lambda functions, kind, **options: (
    lambda key, x: functions[kind](key, x, **options)
  )
  sketch = called(operators.SKETCHES, **vector['sketch'])
  codec = vector['codec'] and called(operators.CODECS, **vector['codec'])
  work = lambda params, number: (params, 0.0)  # the update is the model
  one = client.Client({'client': 3}, vector['seed'], 9, work, sketch, codec)
  got = one.handle(bytes.fromhex(vector['request']))
  head, body = got[: client.REPLY.size], got[client.REPLY.size + 4 :]
  assert vector['header_of_the_reply'] == head.hex(), 'another header'
  for leaf in vector['leaves_of_the_reply']:
    size = len(leaf['hex']) // 2
    check_leaf(leaf, np.frombuffer(body[:size], leaf['dtype']))
    body = body[size:]
  assert not body, 'more leaves'


def main():
  """Checks all cases of all files."""
  load = lambda name: json.loads((HERE / f'{name}.json').read_text())
  check_keys(load('keys'))
  print('keys')
  for file in 'sketches', 'codecs':
    for name, vector in load(file).items():
      try:
        check(vector, getattr(operators, file.upper()))
      except AssertionError as e:
        sys.exit(f'{file} {name}: {e}')
      print(file, name)
  for name, vector in load('messages').items():
    check_message(vector)
    print('messages', name)


if __name__ == '__main__':
  main()
