"""The comparison of sketches does the work it claims; nothing is timed."""

import functools
import json

from benchmarks import contestants, libraries, report, sketch
import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image
import pytest
import runs
import scipy.fft

D, B = 200, 16
X = np.random.default_rng((D, 3)).standard_normal((3, D), dtype=np.float32)
MEGA = 2**20


command = functools.partial(runs.command, 'bench', 'sketch')


def close(a, b):
  np.testing.assert_allclose(np.asarray(a), b, rtol=2e-4, atol=2e-5)


def assert_is_matrix(runner, x, dense):
  """`dense`: matrix that the library keeps -> R[b, d], R^T its adjoint."""
  table, matrix = runner.sketch(7)
  r = dense(matrix)
  close(table, x @ r.T)
  close(runner.desketch(table, matrix), (np.asarray(table) @ r.conj()).real)
  other, _ = runner.sketch(8)
  assert not np.array_equal(table, other)


def of_hashes(matrix):
  bucket, sign = (np.asarray(part) for part in matrix)
  assert set(np.unique(sign)) == {-1, 1}
  r = np.zeros((B, D), np.float32)
  r[bucket, np.arange(D)] = sign
  return r


@pytest.mark.parametrize('name', ['bincount', 'index_add_'])
def test_count_sketches_are_the_matrix_of_their_own_hashes(name):
  if name == 'index_add_':
    pytest.importorskip('torch')
  (entry,) = (e for k, e in libraries.LIBRARIES.items() if name in k)
  assert_is_matrix(entry.make(X, B), X, of_hashes)


def test_the_textbook_has_one_sign_a_column():
  runner = contestants.TEXTBOOK.make(jnp.eye(D), B)
  r, _ = runner.sketch(7)
  np.testing.assert_array_equal(np.abs(r).sum(1), 1)
  assert set(np.unique(r)) == {-1, 0, 1}


@pytest.mark.parametrize(
  ('make', 'scale'),
  [(libraries.numpy_normal, B**-0.5), (libraries.sklearn_sparse, 1)],
)
def test_products_are_with_the_matrix_that_is_kept(make, scale):
  as_array = lambda m: m.toarray() if hasattr(m, 'toarray') else m
  assert_is_matrix(make(X, B), X, lambda m: scale * as_array(m))


def test_sampled_transforms_are_the_rows_of_a_dense_one():
  def sampling(rows):
    return (D / B) ** 0.5 * np.eye(D)[rows]

  def cosine(matrix):
    sign, rows = matrix
    c = scipy.fft.dct(np.eye(D), norm='ortho', axis=0)
    return (D / B) ** 0.5 * c[rows] * sign

  assert_is_matrix(libraries.numpy_choice(X, B), X, sampling)
  assert_is_matrix(libraries.scipy_dct(X, B), X, cosine)


def test_every_library_passes_the_check():
  for name, entry in libraries.LIBRARIES.items():
    if not entry.skip(D, B):
      contestants.check(name, entry.make(X, B), X, B)


@pytest.mark.parametrize(
  'change',
  [
    lambda r: r._replace(sketch=lambda i: (2 * r.sketch(i)[0], r.sketch(i)[1])),
    lambda r: r._replace(
      sketch=lambda i: (r.sketch(i)[0][:, 9:], r.sketch(i)[1])
    ),
    lambda r: r._replace(desketch=lambda t, m: r.desketch(t, m)[:, ::-1]),
    lambda r: r._replace(desketch=lambda t, m: 1.1 * r.desketch(t, m)),
    lambda r: r._replace(desketch=lambda t, m: r.desketch(t, m)[:, 1:]),
    lambda r: r._replace(sketch=None),
  ],
)
def test_work_that_is_not_done_is_noticed(change):
  x = np.random.default_rng((0, 0)).standard_normal((2, 4000), np.float32)
  runner = libraries.numpy_bincount(x, 1000)
  contestants.check('right', runner, x, 1000)
  with pytest.raises(RuntimeError, match='wrong'):
    contestants.check('wrong', change(runner), x, 1000)


def test_the_bounds_read_and_write():
  read, copy = contestants.bounds(X, jnp.asarray(X)).values()
  assert read.desketch is copy.sketch is None
  close(read.sketch(0)[0], X.sum())
  close(copy.desketch(None, None), X + 1)


def test_tables_are_smaller_than_what_they_sketch():
  selected = sketch.points([2**12, 2**16, 2**17], None, [1, 32])
  sizes = [(p.d, p.b) for p in selected if p.clients == 32]
  assert len(selected) == 2 * len(sizes)
  assert sizes == [(2**16, 256), (2**16, 2**12), (2**17, 2**12), (2**17, 2**16)]
  assert sketch.points([100], [99, 100, 101], [1]) == [(100, 99, 1)]


def result(d=2**24, b=2**12, clients=1, **halves):
  """Rows of `name=(kind, work, sketch, desketch)`, in seconds."""
  rows = [
    sketch.Row('read', 'bound', 'bound', [0.003, 0.001, 0.002], []),
    sketch.Row('copy', 'bound', 'bound', [], [0.02, 0.01, 0.03]),
  ]
  for name, (kind, work, down, up) in halves.items():
    extra = (MEGA, MEGA // 2) if kind == 'operator' else None
    row = sketch.Row(name, work, kind, [down], [up] if up else [], extra)
    rows.append(row)
  return sketch.Result(sketch.Point(d, b, clients), rows, {'ams': 'too large'})


GOOD = {
  'count_sketch': ('operator', 'count sketch', 0.04, 0.04),
  'block_cyclic': ('operator', 'count sketch', 0.008, 0.03),
  'srht': ('operator', 'Hadamard transform', 0.2, 0.1),
  'textbook': ('textbook', 'count sketch', 0.4, 0.2),
  'scipy': ('library', 'count sketch', 0.8, 0),
}


def cells(line):
  return [cell.strip() for cell in line[1:-1].split('|')]


def test_the_table_has_medians_and_ratios():
  text = report.sketch_table(result(**GOOD))
  assert text.startswith('d = 2^24, b = 2^12, 1 client\n')
  assert 'Left out, too large: ams.' in text
  lines = [line for line in text.splitlines() if line.startswith('|')]
  head, _, read, copy, _, cyclic = map(cells, lines[:6])
  assert dict(zip(head, read, strict=True))['sketch ms (min)'] == '2 (1)'
  assert dict(zip(head, copy, strict=True))['desketch ms (min)'] == '20 (10)'
  assert dict(zip(head, cyclic, strict=True)) == {
    'contestant': 'block_cyclic',
    'work': 'count sketch',
    'sketch ms (min)': '8 (8)',
    '÷ read': '4.00',
    'desketch ms (min)': '30 (30)',
    '÷ copy': '1.50',
    'GB/s': '8.39',
    'extra MiB': '1 / 0.5',
  }
  assert lines[-4:] == [
    '| count_sketch | textbook | 10.00 | 7.50 |',
    '| count_sketch | scipy | 20.00 |  |',
    '| block_cyclic | textbook | 50.00 | 15.79 |',
    '| block_cyclic | scipy | 100.00 |  |',
  ]


def test_curves_need_two_dimensions(tmp_path):
  results = [result(d=d, **GOOD) for d in (2**16, 2**20)] + [result(clients=32)]
  _, path = report.write_sketches(results, tmp_path)
  assert path.name == 'seconds_b4096_c1.png'
  with Image.open(path) as image:
    assert image.size == (1365, 495)


@pytest.mark.representatives('uniform_sampling')
@pytest.mark.parametrize(
  ('operators', 'others'),
  [
    ('uniform_sampling', {'numpy choice'}),
    (
      'block_cyclic,uniform_sampling',
      {'textbook', 'numpy bincount', 'numpy choice'},
    ),
  ],
  ids=['uniform_sampling', 'both'],
)
def test_the_command(operators, others, tmp_path):
  done = command(
    '--dims=1024,2048',
    '--sizes=64,4096',
    '--clients=1,3',
    '--memory_gib=1e-5',
    f'--operators={operators}',
    '--repeats=1',
    f'--out={tmp_path}/new/out',
  )
  assert done.returncode == 0, done.stderr
  assert done.devices == {'cpu_devices': 1}  # a sketch uses every core
  assert 'Left out: d=2,048 clients=3: 2.28882e-05 GiB of input' in done.stdout
  both = operators.count(',')
  assert done.stdout.count('| block_cyclic | count sketch |') == 2 * both
  assert done.stdout.count('| uniform_sampling | numpy choice |') == 2
  assert 'sklearn' not in done.stdout
  out = tmp_path / 'new' / 'out'
  about = json.loads((out / 'sketch.json').read_text())
  assert {'jax', 'numpy', 'scipy', 'python'} <= set(about['versions'])
  assert about['device'].startswith(f'{jax.device_count()} x ')
  assert [(p['d'], p['b'], p['clients']) for p in about['points']] == [
    (1024, 64, 1),
    (2048, 64, 1),
  ]
  names = {row['name'] for row in about['points'][0]['rows']}
  assert names >= {'read', 'copy', *operators.split(','), *others}
  files = sorted(path.name for path in out.iterdir())
  assert files == ['seconds_b64_c1.png', 'sketch.json']


def test_the_command_names_what_it_does_not_know():
  done = command('--operators=dct,fft')
  assert done.returncode
  assert "--operators has no 'fft'; name some of" in done.stderr
