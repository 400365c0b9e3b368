"""Checks the NumPy client against the vectors: python docs/vectors/check.py.

It needs NumPy alone, and prints what agrees; it fails where anything differs.
"""

import json
import pathlib
import sys

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
  """Bits are equal, floats to 1e-6 of the largest."""
  dtype, sent = want['dtype'], bytes.fromhex(want['hex'])
  got = wire_bytes(dtype, got)
  if dtype in ('float32', 'complex64'):
    a, b = np.frombuffer(sent, dtype), np.frombuffer(got, dtype)
    assert a.shape == b.shape, 'another number of floats'
    assert abs(a - b).max() <= 1e-6 * abs(a).max(), abs(a - b).max()
  else:
    assert sent == got, f'other bits of {dtype}{want["shape"]}'


def check(vector, functions):
  """The payload of one case."""
  make, key = functions[vector['kind']], np.array(vector['key'], np.uint32)
  options = {k: v for k, v in vector['options'].items() if k != 'contract'}
  got = make(key, numbers(vector['d']), **options)
  leaves = got if isinstance(got, tuple | list) else [got]
  for want, leaf in zip(vector['payload'], leaves, strict=True):
    check_leaf(want, leaf)


def main():
  """Checks all cases of all files."""
  for file in 'sketches', 'codecs':
    functions = getattr(operators, file.upper())
    for name, vector in json.loads((HERE / f'{file}.json').read_text()).items():
      if vector['kind'] not in functions:
        print(file, name, 'is not supported')
        continue
      try:
        check(vector, functions)
      except Exception as e:
        print(file, name, 'DIFFERS', type(e), e)
      else: print(file,name,'agrees')


if __name__ == '__main__':
  main()
