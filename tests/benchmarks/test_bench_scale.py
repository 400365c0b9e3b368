"""Slopes of made-up times, and the files of a tiny run; nothing is timed."""

import functools
import json

from benchmarks import report, scale
import draws
from fl_sketch import experiment
from fl_sketch.rounds import mesh as mesh_lib
import jax
import numpy as np
from PIL import Image
import pytest
import runs

XS = [1, 2, 4, 16]


def result(power, turns=3, name='clients', noise=0.0, xs=XS):
  rng = np.random.default_rng(0)
  speed = rng.lognormal(size=(turns, 1))  # of the machine, turn by turn
  error = rng.normal(size=(turns, len(xs))) * noise
  seconds = 0.1 * speed * np.array(xs, float)[None] ** power * np.exp(error)
  axis = scale.Axis('clients', 1.0, 'because', {})
  return scale.Result(name, axis, list(xs), seconds.tolist())


@pytest.mark.parametrize(('power', 'xs'), [(-1, [1, 2]), (0, XS), (0.5, XS)])
def test_a_power_law_has_its_slope(power, xs):
  """However much slower the machine is in one turn than in another."""
  slope = scale.slope(result(power, xs=xs))
  assert slope.mean == pytest.approx(power, abs=1e-9)
  assert slope.error == pytest.approx(0, abs=1e-9)


def test_the_error_is_that_of_the_slope():
  """sd / sqrt(turns x Sxx); 400 turns know it within 3.5 %, so 6 deviations."""
  turns, sd = 400, 0.2
  slope = scale.slope(result(1.0, turns, noise=sd))
  x = np.log(XS)
  expected = sd / (turns * ((x - x.mean()) ** 2).sum()) ** 0.5
  assert slope.error == pytest.approx(expected, rel=0.22)
  assert abs(slope.mean - 1) < 6 * expected


def test_one_turn_has_no_error():
  assert np.isnan(scale.slope(result(1.0, turns=1)).error)


def test_axes_grow_and_are_smaller_when_quick():
  full, quick = scale.axes(), scale.axes(quick=True)
  assert list(full) == list(quick)
  assert {k: axis.expected for k, axis in full.items()} == {
    'clients': 1,
    'parameters': 1,
    'sketch': 0,
    'devices': -1,
    'population': 0,
  }
  for name, axis in full.items():
    points = list(axis.points)
    assert len(points) > 1
    assert points == sorted(points)
    assert set(quick[name].points) <= set(points)
    assert len(quick[name].points) > 1
  assert list(full['devices'].points) == [1, 2]
  assert list(full['population'].points) == [10**i for i in range(3, 7)]


def test_points_are_what_they_are_called(monkeypatch):
  draws.by_numpy(monkeypatch)
  exp, mesh = scale.axes()['devices'].points[1]()
  assert mesh.size == 1
  axis = scale.axes()['parameters']
  exp, mesh = axis.points[2**20]()
  d = sum(x.size for x in jax.tree.leaves(exp.params))
  assert axis.measured(exp) == d == pytest.approx(2**20, rel=0.01)
  assert mesh.size == 2
  exp, _ = scale.axes()['clients'].points[64]()
  assert len(exp.sample(0).ids) == 64
  exp, _ = scale.axes()['sketch'].points[2**12]()
  assert exp.config.sketch['size'] == 2**12


def test_the_table_has_both_slopes():
  head, _, line = report.scale_table([result(1.0)]).splitlines()
  cells = dict(zip(*(x[2:-2].split(' | ') for x in (head, line)), strict=False))
  assert cells['time a round against'] == 'clients'
  assert (cells['from'], cells['to']) == ('1', '16')
  assert (cells['expected slope'], cells['measured']) == ('1', '1.00')
  assert cells['standard error'] == '0.00'


def test_results_become_files(tmp_path):
  results = [result(1.0), result(0.0, name='devices')]
  files = report.write_scales(results, tmp_path / 'new')
  assert sorted(p.name for p in (tmp_path / 'new').iterdir()) == sorted(
    p.name for p in files
  )
  read = json.loads((tmp_path / 'new' / 'scale.json').read_text())
  assert [a['name'] for a in read['axes']] == ['clients', 'devices']
  assert read['axes'][0]['seconds'] == results[0].seconds
  assert read['axes'][1]['mean'] == pytest.approx(0, abs=1e-9)
  assert read['axes'][0]['expected'] == 1
  assert read['cores'] >= 1
  with Image.open(tmp_path / 'new' / 'scale.png') as image:
    assert image.size == (1365, 495)


@pytest.mark.nightly
def test_a_tiny_run_is_measured(monkeypatch):
  monkeypatch.setattr(scale, '_TURN', 0.01)
  fields = dict(dataset='digits', model='linear', local_steps=1, eval_every=100)
  build = lambda n: (
    lambda: (
      experiment.build(fields | {'population': n, 'cohort': n}),
      mesh_lib.cohort_mesh(1),
    )
  )
  points = {n: build(n) for n in (2, 4)}
  axis = scale.Axis('clients', 1.0, 'because', points)
  times = scale.measure('clients', axis, turns=2)
  assert times.xs == [2, 4]
  assert np.shape(times.seconds) == (2, 2)
  assert np.min(times.seconds) > 0


command = functools.partial(runs.command, 'bench', 'scale')


def test_the_command_names_what_it_does_not_know():
  done = command('--axes=devices,colour')
  assert done.returncode
  assert "--axes has no 'colour'; name some of" in done.stderr


@pytest.mark.long
def test_the_command(tmp_path):
  done = command(
    '--quick', '--axes=devices,clients', '--repeats=2', f'--out={tmp_path}/out'
  )
  assert done.returncode == 0, done.stderr
  names = [line.split(' | ')[0] for line in done.stdout.splitlines()]
  assert names[2:4] == ['| devices', '| clients in the cohort']
  assert len(list((tmp_path / 'out').iterdir())) == 3
