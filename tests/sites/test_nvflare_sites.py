"""Rounds over NVFlare: a federation with certificates."""

import contextlib
import importlib.util
import subprocess
import sys

from fl_sketch import runs
import harness
import numpy as np
from nvflare_kits import ADMIN, Kits, kill, processes, until
import pytest
from site_files import same_run, write_config, write_data

pytestmark = [
  pytest.mark.long,
  pytest.mark.skipif(
    importlib.util.find_spec('nvflare') is None,
    reason="needs nvflare: pip install 'fl_sketch[nvflare]'",
  ),
]
SAFL = harness.SAFL | {
  'population': 2, 'cohort': 2, 'eval_every': 1, 'rounds': 5,
}  # fmt: skip


@pytest.fixture
def kits(tmp_path):
  with contextlib.closing(Kits(tmp_path / 'kits')) as kits:
    yield kits


def simulate(fields, folder, absent=lambda number: ()):
  """Plays a config, without some clients in some rounds."""
  exp = runs.build(fields)

  def sample(number, *args):
    cohort = exp.sample(number, *args)
    gone = np.isin(cohort.ids, absent(number))
    return cohort._replace(weight=np.where(gone, 0, cohort.weight))

  runs.train(exp._replace(sample=sample), folder, progress=False)
  return exp


class Deployed:
  """A run over a federation with certificates; sites start with workers."""

  def __init__(self, kits, folder, fields):
    self.kits, self.run, self._folder = kits, folder / 'run', folder
    self._config = f'{folder}/config.py'
    write_config(folder / 'config.py', fields)
    write_data(simulate(fields, folder / 'simulated'), folder)
    kits.start('localhost')
    until(lambda: harness.listens(kits.port))
    for number in range(fields['population']):
      self.start_site(number)

  def start_site(self, number):
    """Starts the worker of a site, and NVFlare's client."""
    own = f'--client={number}', f'--data={self._folder / str(number)}'
    state = f'--state={self._folder / f"state{number}"}'
    flags = '-m', 'launch', 'site', self._config, *own, state, '--'
    self.kits.start(f'site-{number + 1}', [sys.executable, *flags])

  def supervise(self):
    """Starts `fl-sketch deploy`, which waits for the sites."""
    kit = self.kits.kit(ADMIN)
    flags = f'--kit={kit}', f'--workdir={self.run}', '--timeout=5'
    command = '-m', 'launch', 'deploy', self._config, '--engine=nvflare', *flags
    log = self._folder / 'deploy.log'
    with open(log, 'w') as out:
      process = subprocess.Popen(
        [sys.executable, *command], cwd=harness.ROOT, env=self.kits.env,
        stdout=out, stderr=subprocess.STDOUT,
      )  # fmt: skip
    return process, log

  def rows(self):
    return harness.rows(self.run)


def test_what_dies_is_started_again_and_the_run_goes_on(kits, tmp_path):
  """Catches a run that stops, and rounds that are lost or played twice."""
  fields = SAFL | {'rounds': 1000, 'checkpoint_every': 10, 'eval_every': 1}
  deployed = Deployed(kits, tmp_path, fields)
  federation, (process, log) = deployed.kits, deployed.supervise()

  def wait(more=10, participants=2):
    """Waits for rounds that so many have taken part in."""
    past = len(deployed.rows())
    took = lambda: [row['participants'] for row in deployed.rows()[past:]]
    seen = lambda: took().count(participants) >= more
    until(lambda: seen() or process.poll() is not None)
    assert process.poll() is None, log.read_text()

  try:
    wait()
    keeper = federation.running['site-2'].pid
    kill(*{*processes('launch site', f'{tmp_path}/state1')} - {keeper})
    wait()
    kill(*processes(federation.kit('site-2'), 'worker_process'))
    wait()
    kill(*processes(federation.kit('localhost'), 'runner_process'))
    wait()
    federation.kill('site-2')
    wait(participants=1)
    deployed.start_site(1)
    wait()
    federation.kill('localhost')
    federation.start('localhost')
    wait()
  finally:
    harness.finish((process, log))
  rows = deployed.rows()
  assert [row['round'] for row in rows] == list(range(1000))
  absent = {row['round'] for row in rows if row['participants'] < 2}
  assert absent
  simulated = tmp_path / 'with_absences'
  simulate(fields, simulated, lambda number: [1] * (number in absent))
  # Bills also have what was sent to sites that did not answer.
  bills = 'downlink_bytes', 'total_downlink_bytes', 'total_uplink_bytes'
  same_run(deployed.run, simulated, 1e-4, bills)
