"""The wire format is that of its vectors, in the library and in NumPy alone."""

import json
import subprocess
import sys

from fl_sketch import codecs, sketches
import numpy as np
import pytest
import wire_vectors as vectors

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
sys.modules.update(dict.fromkeys(('jax', 'scipy', 'fl_sketch')))
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
