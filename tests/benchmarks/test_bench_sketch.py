"""The comparison of sketches does the work it claims; nothing is timed."""

import functools
import json

from benchmarks import contestants, libraries
import harness
import jax
import jax.numpy as jnp
import numpy as np
import pytest

D, B = 256, 32
X = np.random.default_rng((D, 3)).standard_normal((3, D), dtype=np.float32)
command = functools.partial(harness.command, 'bench', 'sketch')


@pytest.mark.parametrize(
  'name',
  [
    *libraries.LIBRARIES,
    'textbook',
    pytest.param('srft', marks=pytest.mark.nightly),
  ],
)
def test_a_desketch_is_the_adjoint_of_a_fresh_sketch(name):
  """Catches a matrix that is kept and not the drawn one, or one for all."""
  entries = libraries.LIBRARIES | contestants.OPERATORS
  entry = (entries | {'textbook': contestants.TEXTBOOK})[name]
  runner = entry.make(X if entry.kind == 'library' else jnp.asarray(X), B)
  table, matrix = runner.sketch(7)
  numbers, out = np.asarray(table), np.asarray(runner.desketch(table, matrix))
  assert numbers.size * (1 + np.iscomplexobj(numbers)) == 3 * B
  squared = np.sum(np.abs(numbers) ** 2, axis=1)
  np.testing.assert_allclose(np.sum(X * out, axis=1), squared, rtol=1e-3)
  # Twelve standard deviations of ||R x||^2 / ||x||^2.
  assert abs(squared.sum() / np.sum(X**2) - 1) < 12 * (2 / B) ** 0.5
  assert not np.array_equal(table, runner.sketch(8)[0])


@pytest.mark.nightly
def test_the_command(tmp_path):
  out = tmp_path / 'new' / 'out'
  done = command(
    '--dims=1024,2048', '--sizes=64,4096', '--clients=1',
    '--operators=uniform_sampling', '--repeats=1', f'--out={out}',
  )  # fmt: skip
  assert done.returncode == 0, done.stderr
  assert done.devices == {'cpu_devices': 1}  # a sketch uses every core
  assert done.stdout.count('| uniform_sampling | numpy choice |') == 2
  assert done.stdout.count('\n| encode and decode, d / 100 | ') == 1
  about = json.loads((out / 'sketch.json').read_text())
  assert {'jax', 'numpy', 'scipy', 'python'} <= set(about['versions'])
  assert about['device'].startswith(f'{jax.device_count()} x ')
  points = [(p['d'], p['b'], p['clients']) for p in about['points']]
  assert points == [(1024, 64, 1), (2048, 64, 1)]
  names = {row['name'] for row in about['points'][0]['rows']}
  assert names == {'bound', 'uniform_sampling', 'numpy choice'}
  assert [path.name for path in out.iterdir()] == ['sketch.json']
