"""Benchmarks do the work that they claim; nothing is timed."""

import functools
import json
import math
import sys

from benchmarks import contestants, libraries, scale, slow_link, workloads
import harness
import jax
import jax.numpy as jnp
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


RATES = 10.0, 100.0, 1000.0  # Mbit/s


def row(name, sent, compute, rates=RATES):
  """A contestant on links that are exactly as fast as they are called."""
  seconds = {rate: [compute + 8e-6 * sent / rate] * 3 for rate in rates}
  return slow_link.Row(name, {rate: [sent] for rate in rates}, seconds)


@pytest.mark.parametrize('rates', [RATES, (math.inf,)])
def test_computing_and_break_even_are_those_of_the_law(rates):
  """Catches bits taken for bytes, or a fit that counts the link twice."""
  dense, packed = row('JAX', 4e6, 0.1, rates), row('packed', 4e4, 0.3, rates)
  assert packed.compute == pytest.approx(0.3)
  even = slow_link.break_even(packed, dense)
  assert even == pytest.approx(8 * 3.96e6 / 0.2 / 1e6)
  assert slow_link.break_even(row('', 4e4, 0.1, rates), dense) == math.inf
  assert slow_link.break_even(row('', 5e6, 0.2, rates), dense) == 0


def test_every_end_of_a_link_has_its_bucket():
  """Catches a limit one way only, and a bucket through which payloads jump."""
  lines = slow_link.rate_commands(2, 10)
  assert lines[0] == (
    'tc qdisc replace dev end0 root tbf rate 10mbit burst 3000b latency 2000ms'
  )
  assert lines[3].startswith('tc -n w1 qdisc replace dev eth0 root tbf rate 10')
  assert 'burst 125000b' in slow_link.rate_commands(1, 1000)[0]
  links = slow_link.link_commands(4)
  assert 'ip -n w3 addr add 10.77.0.4/24 dev eth0' in links
  assert links[0] == 'mount -t tmpfs none /run'  # not the machine's own


@pytest.mark.long
def test_one_bit_tables_really_are_fewer_bytes():
  """Catches tables that travel as float32, and steps that do nothing."""
  names, python = ['JAX', 'one-bit tables both ways'], {'jax': sys.executable}
  (result,) = slow_link.measure([2], [math.inf], 1, python, names)
  (dense, packed), d = result.rows, 809_856
  assert dense.sent == pytest.approx(4 * d, rel=0.1)
  assert packed.sent == pytest.approx(4 * d / 100, rel=0.1, abs=4000)


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
def test_the_command_of_sketches(tmp_path):
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
