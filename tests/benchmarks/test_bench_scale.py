"""Slopes of made-up times, and the files of a tiny run; nothing is timed."""

import json

from benchmarks import report, scale
import draws
from fl_sketch import experiment
from fl_sketch.rounds import mesh as mesh_lib
import jax
import numpy as np
import pytest
import runs

XS = [1, 2, 4, 16]


def result(power, turns=3, noise=0.0, xs=XS):
  rng = np.random.default_rng(0)
  speed = rng.lognormal(size=(turns, 1))  # of the machine, turn by turn
  error = rng.normal(size=(turns, len(xs))) * noise
  seconds = 0.1 * speed * np.array(xs, float)[None] ** power * np.exp(error)
  axis = scale.Axis('clients', 1.0, 'because', dict.fromkeys(xs))
  return scale.Result('clients', axis, seconds.tolist())


@pytest.mark.parametrize(('power', 'xs'), [(-1, [1, 2]), (0.5, XS)])
def test_a_power_law_has_its_slope(power, xs):
  """However much slower the machine is in one turn than in another."""
  slope = scale.slope(result(power, xs=xs))
  assert slope == pytest.approx((power, 0), abs=1e-9)


def test_the_error_is_that_of_the_slope():
  """sd / sqrt(turns x Sxx); 400 turns know it within 3.5 %, so 6 deviations."""
  turns, sd = 400, 0.2
  mean, error = scale.slope(result(1.0, turns, noise=sd))
  x = np.log(XS)
  expected = sd / (turns * ((x - x.mean()) ** 2).sum()) ** 0.5
  assert error == pytest.approx(expected, rel=0.22)
  assert abs(mean - 1) < 6 * expected
  assert np.isnan(scale.slope(result(1.0, turns=1))[1])


def test_points_are_what_they_are_called(monkeypatch):
  draws.by_numpy(monkeypatch)
  axes, quick = scale.axes(), scale.axes(quick=True)
  assert all(set(quick[k].points) <= set(axes[k].points) for k in axes)
  assert list(axes['devices'].points) == [1, 2]
  exp, mesh = axes['devices'].points[1]()
  assert mesh.size == 1
  exp, mesh = axes['parameters'].points[2**20]()
  d = sum(x.size for x in jax.tree.leaves(exp.params))
  assert d == pytest.approx(2**20, rel=1e-3)
  assert mesh.size == 2
  assert len(axes['clients'].points[64]()[0].sample(0).ids) == 64


def test_results_become_files(tmp_path):
  results = [result(1.0), result(0.0)]
  out = tmp_path / 'new'
  files = report.write_scales(results, out)
  assert sorted(out.iterdir()) == sorted(files)
  _, _, line, _ = (out / 'scale.md').read_text().splitlines()
  cells = line[2:-2].split(' | ')
  assert cells[:3] == ['clients', '1', '16']
  assert cells[-4:] == ['1', '1.00', '0.00', 'because']
  read = json.loads((out / 'scale.json').read_text())
  assert read['axes'][0]['seconds'] == results[0].seconds
  assert read['axes'][1]['mean'] == pytest.approx(0, abs=1e-9)


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
  axis = scale.Axis('clients', 1.0, 'because', {n: build(n) for n in (2, 4)})
  times = scale.measure('clients', axis, turns=2)
  assert np.shape(times.seconds) == (2, 2)
  assert np.min(times.seconds) > 0


@pytest.mark.long
def test_the_command(tmp_path):
  done = runs.command(
    'bench', 'scale', '--quick', '--axes=devices', '--repeats=2',
    f'--out={tmp_path}/out',
  )  # fmt: skip
  assert done.returncode == 0, done.stderr
  assert '\n| devices | 1 | 2 |' in done.stdout
  assert len(list((tmp_path / 'out').iterdir())) == 2
