"""Slopes of made-up times, and points of its axes; nothing is timed."""

from benchmarks import scale, workloads
import harness
import numpy as np
import pytest

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


@pytest.mark.long
def test_the_command(tmp_path):
  done = harness.command(
    'bench', 'scale', '--quick', '--axes=devices', '--repeats=2',
    f'--out={tmp_path}/out',
  )  # fmt: skip
  assert done.returncode == 0, done.stderr
  assert '\n| devices | 1 | 2 |' in done.stdout
  assert len(list((tmp_path / 'out').iterdir())) == 2


@pytest.mark.nightly
@pytest.mark.parametrize('name', list(workloads.WORKLOADS))
def test_the_loop_can_draw_a_cohort_of_a_workload(name):
  """Catches a workload whose cohort has a client twice."""
  exp = workloads.build(name, 'fedavg', 5)
  cohort = exp.sample(0, None)
  assert len(set(cohort.ids.tolist())) == exp.config.cohort
