"""The comparison of sketches does the work it claims; nothing is timed."""

import functools
import json

from benchmarks import contestants, libraries, report, sketch
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import runs

D, B = 256, 32
X = np.random.default_rng((D, 3)).standard_normal((3, D), dtype=np.float32)
command = functools.partial(runs.command, 'bench', 'sketch')


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


def test_tables_are_smaller_than_what_they_sketch():
  selected = sketch.points([2**12, 2**16, 2**17, 2**24], None, [1, 32])
  sizes = [(p.d, p.b) for p in selected if p.clients == 32]
  assert sizes == [(2**16, 256), (2**16, 2**12), (2**17, 2**12), (2**17, 2**16)]
  assert len(selected) == 2 * len(sizes) + 2  # 2 GiB are too large
  assert sketch.points([100], [99, 100, 101], [1]) == [(100, 99, 1)]


def result(d=2**24, b=2**12, clients=1):
  bound = [0.003, 0.001, 0.002], [0.02, 0.01, 0.03]
  rows = [
    sketch.Row('bound', 'read / copy', 'bound', *bound),
    sketch.Row('block_cyclic', 'count sketch', 'operator', [0.008], [0.03]),
    sketch.Row('srht', 'Hadamard transform', 'operator', [0.2], [0.1]),
    sketch.Row('textbook', 'count sketch', 'textbook', [0.4], [0.2]),
    sketch.Row('scipy', 'count sketch', 'library', [0.8], [0.1]),
  ]
  return sketch.Result(sketch.Point(d, b, clients), rows, ['ams'])


def test_the_table_has_medians_and_ratios():
  text = report.sketch_table(result())
  assert text.startswith('d = 16,777,216, b = 4,096, clients = 1\n')
  assert 'entries of a matrix, left out: ams.' in text
  lines = [line for line in text.splitlines() if line.startswith('|')]
  assert lines[2:4] == [
    '| bound | read / copy | 2 (1) | 1.00 | 20 (10) | 1.00 | 33.55 |',
    '| block_cyclic | count sketch | 8 (8) | 4.00 | 30 (30) | 1.50 | 8.39 |',
  ]
  assert lines[-2:] == [
    '| block_cyclic | textbook | 50.00 | 15.79 |',
    '| block_cyclic | scipy | 100.00 | 23.68 |',
  ]


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


def test_the_command_names_what_it_does_not_know():
  done = command('--operators=dct,fft')
  assert done.returncode
  assert "--operators has no 'fft'; name some of" in done.stderr
