"""Rounds over NVFlare: simulated sites, and a federation with certificates."""

import functools
import importlib.util
import os
import subprocess
import sys
import tempfile
import threading

import counting_proxy
from fl_sketch import experiment, training
from fl_sketch.engines import nvflare_jobs, own_data, site, worker
from fl_sketch.experiment.config import Config
from fl_sketch.utils import files
import numpy as np
from nvflare_kits import ADMIN, Kits, kill, processes, until
import pytest
import runs
from site_files import LARGE, WIDE, same_run, write_config, write_data

pytestmark = [
  pytest.mark.long,
  pytest.mark.skipif(
    importlib.util.find_spec('nvflare') is None,
    reason="needs nvflare: pip install 'fl_sketch[nvflare]'",
  ),
]
SAFL = runs.SAFL | {'population': 2, 'cohort': 2, 'eval_every': 1, 'rounds': 5}
TINY = {'kind': 'block_srht', 'size': 16}
CASES = {
  'stateful': {  # clients keep residuals
    'algorithm': 'fedcom', 'codec': {'kind': 'top_k', 'k': 50},
    'options': {'error_feedback': True}, 'sketch': {'kind': None},
    'server_lr': 1.0,
  },
  'two uplinks': {
    'algorithm': 'fedsketch_heaprix', 'options': {'k': 20},
    'sketch': {'kind': 'count_sketch', 'rows': 3, 'cols': 50},
  },
}  # fmt: skip


@pytest.fixture
def kits(tmp_path):
  made = []

  def kits(name='kits', **options):
    made.append(Kits(tmp_path / name, **options))
    return made[-1]

  yield kits
  for each in made:
    each.close()


def simulate(fields, folder, absent=lambda number: ()):
  """Plays a config, without some clients in some rounds."""
  exp = experiment.build(fields)

  def sample(number, *args):
    cohort = exp.sample(number, *args)
    gone = np.isin(cohort.ids, absent(number))
    return cohort._replace(weight=np.where(gone, 0, cohort.weight))

  training.train(exp._replace(sample=sample), folder, progress=False)
  return exp


@pytest.mark.parametrize('case', CASES)
def test_simulated_sites_are_the_simulation(case, tmp_path):
  """Catches a message that NVFlare changes, reorders, or gives to another."""
  c = Config.from_mapping(SAFL | CASES[case])
  write_data(simulate(c, tmp_path / 'simulated'), tmp_path)
  programs = None
  with tempfile.TemporaryDirectory() as sockets:
    for i in range(c.population):
      given = {'client': i, 'where': f'{tmp_path / str(i)}'}
      problem = functools.partial(own_data.of_site, **given)
      client = site.client(c, i, problem, tmp_path / f'state{i}', programs)
      programs = client.programs
      at = os.path.join(sockets, f'site-{i + 1}', 'socket')
      serve = functools.partial(worker.serve, client.handle, at)
      threading.Thread(target=serve, daemon=True).start()
    run = tmp_path / 'run'
    job = nvflare_jobs.deploy(files.as_json(c), tmp_path / 'job', run)
    count, where = f'{c.population}', tmp_path / 'workspace'
    nvflare = os.path.join(os.path.dirname(sys.executable), 'nvflare')
    command = nvflare, 'simulator', job, '-n', count, '-t', count, '-w', where
    env = {'FL_SKETCH_SITES': sockets, 'HOME': f'{tmp_path}'}
    env |= {'PYTHONPATH': f'{runs.ROOT}'}
    subprocess.run(command, env=os.environ | env, check=True)
  same_run(run, tmp_path / 'simulated')


class Deployed:
  """A run over a federation with certificates; sites start with workers."""

  def __init__(self, kits, folder, fields):
    self.kits, self.run, self._folder = kits, folder / 'run', folder
    self._config = f'{folder}/config.py'
    write_config(folder / 'config.py', fields)
    write_data(simulate(fields, folder / 'simulated'), folder)
    kits.start('localhost')
    until(kits.connects)
    for number in range(fields['population']):
      self.start_site(number)

  def start_site(self, number):
    """Starts the worker of a site, and NVFlare's client."""
    own = f'--client={number}', f'--data={self._folder / str(number)}'
    state = f'--state={self._folder / f"state{number}"}'
    flags = '-m', 'launch.site', self._config, *own, state, '--'
    self.kits.start(f'site-{number + 1}', [sys.executable, *flags])

  def supervise(self):
    """Starts `fl-sketch deploy`, which waits for the sites."""
    kit = self.kits.kit(ADMIN)
    flags = f'--kit={kit}', f'--workdir={self.run}', '--timeout=5'
    command = '-m', 'launch.deploy', self._config, '--engine=nvflare', *flags
    log = self._folder / 'deploy.log'
    with open(log, 'w') as out:
      process = subprocess.Popen(
        [sys.executable, *command], cwd=runs.ROOT, env=self.kits.env,
        stdout=out, stderr=subprocess.STDOUT,
      )  # fmt: skip
    return process, log

  def rows(self):
    return runs.rows(self.run)


def test_bytes_on_the_wire_are_those_of_the_bill(kits, tmp_path):
  """Catches payloads that grow on their way, and what nobody has billed."""
  of_run = SAFL | {'rounds': 30, 'eval_every': 30}
  fields = WIDE | {'empty': LARGE | {'sketch': TINY}}
  measured, billed = {}, {}
  for name, changed in fields.items():
    (tmp_path / name).mkdir()
    federation = kits(f'{name}/kits')
    with counting_proxy.Proxy(federation.port) as proxy:
      for site_name in ('site-1', 'site-2'):
        federation.to_port(site_name, proxy.port)
      deployed = Deployed(federation, tmp_path / name, of_run | changed)
      runs.finish(deployed.supervise())
      measured[name] = np.array([proxy.up, proxy.down])
    federation.close()
    bill = deployed.rows()[-1]
    ways = 'total_uplink_bytes', 'total_downlink_bytes'
    billed[name] = np.array([bill[way] for way in ways])
  for name in ('table', 'bits'):
    # Nobody asks for what the last round has announced.
    more = (billed[name] - billed['empty']) * [1, 29 / 30]
    extra = measured[name] - measured['empty'] - more
    assert (np.abs(extra) <= 0.02 * more + 1000 * 2 * 30).all(), (name, extra)
  print(measured, billed)


def test_what_dies_is_started_again_and_the_run_goes_on(kits, tmp_path):
  """Catches a run that stops, and rounds that are lost or played twice."""
  fields = SAFL | {'rounds': 1000, 'checkpoint_every': 10, 'eval_every': 1}
  deployed = Deployed(kits(), tmp_path, fields)
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
    kill(*{*processes('launch.site', f'{tmp_path}/state1')} - {keeper})
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
    runs.finish((process, log))
  rows = deployed.rows()
  assert [row['round'] for row in rows] == list(range(1000))
  absent = {row['round'] for row in rows if row['participants'] < 2}
  assert absent
  simulated = tmp_path / 'with_absences'
  simulate(fields, simulated, lambda number: [1] * (number in absent))
  # Bills also have what was sent to sites that did not answer.
  bills = 'downlink_bytes', 'total_downlink_bytes', 'total_uplink_bytes'
  same_run(deployed.run, simulated, 1e-4, bills)
