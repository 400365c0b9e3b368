"""Whole runs over sites, in one process or several, equal the simulation."""

import functools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import chex
from fl_sketch import runs
from fl_sketch.data.partitions import Partition
from fl_sketch.runs import noise_secret, problem as problem_lib
from fl_sketch.runs.config import Config, ConfigError
from fl_sketch.runs.workdir import WorkdirError
from fl_sketch.sites import federation, own_data, site, site_rounds
from fl_sketch.sites.transport import LocalSites
import harness
import jax
from messaging_clients import ALIEN, RUN, run_of
import numpy as np
import pytest
from refusals import refused
from site_files import same_rows, serve

BASE = {
  'dataset': 'digits', 'model_options': {'widths': (8,)}, 'population': 2,
  'cohort': 2, 'rounds': 3, 'local_steps': 2, 'batch_size': 10,
  'eval_every': 2, 'checkpoint_every': 2, 'client_lr': 0.1, 'server_lr': 0.1,
  'rounds_per_dispatch': 1,
}  # fmt: skip
TABLE = {
  'algorithm': 'safl', 'sketch': {'kind': 'block_cyclic', 'size': 64}
}  # fmt: skip
NOISE = {
  'clip_norm': 1.0, 'noise_multiplier': 1.0, 'noise_seed': 3, 'delta': 1e-5,
  'standardize': False,
}  # fmt: skip
SAMPLE = TABLE | NOISE | {
  'algorithm': 'private_iterative_sketching', 'batch_order': 'poisson',
}  # fmt: skip
CASES = {
  'weights': TABLE | {'weights': 'samples', 'client_holdout': 0.2},
  'partial': TABLE | {'cohort': 1},
  'scaffold': {'algorithm': 'scaffold'},
  'two_exchanges': {'algorithm': 'fedsketch_heaprix', 'sketch': {
    'kind': 'count_sketch', 'rows': 3, 'cols': 50}, 'options': {'k': 20}},
  'robust': TABLE | {'robust': 'median', 'groups': 3,
    'population': 3, 'cohort': 3},
  'private': TABLE | NOISE | {'sampling': 'poisson', 'cohort': 1, 'rounds': 5},
  'private_sample': SAMPLE,
  'private_local': {'algorithm': 'dp_fedavg', 'trust': 'local'} | NOISE,
  'private_metrics': TABLE | NOISE | {'sampling': 'poisson', 'cohort': 1,
    'public_metrics': 'private'},
}  # fmt: skip


def config_of(**fields):
  return Config.from_mapping(BASE | fields)


@functools.cache
def share(client):
  """What a client holds; sizes differ."""
  found = problem_lib.load(config_of(), None)
  mine = slice(client * 100, client * 105 + 100)
  return {k: x[mine] for k, x in found.data.items()}


def simulated(c, folder):
  """The run in which clients hold the same."""

  def problem(c):
    parts = [share(i) for i in range(c.population)]
    ends = np.cumsum([0, *(len(x['y']) for x in parts)])
    data = {k: np.concatenate([x[k] for x in parts]) for k in parts[0]}
    found = problem_lib.load(c, None)
    return found._replace(
      data=data, labels=None, partition=Partition(None, ends)
    )

  exp = runs.build(c, problem=problem)
  return runs.train(exp, folder, progress=False)


def clients_of(c, folder):
  """Clients that hold their shares, with programs that they share."""
  made = []
  for i in range(c.population):
    own = lambda c, i=i: own_data.problem(c, i, share(i))
    programs = made[0].programs if made else None
    made.append(site.client(c, i, own, folder / f'{i}', programs))
  return {f'site{i}': client.handle for i, client in enumerate(made)}


@pytest.mark.nightly
@pytest.mark.parametrize('name', CASES)
def test_a_run_over_sites_is_the_simulated_one(name, tmp_path):
  """Catches rows, bills, epsilons or evaluations that sites change."""
  c = config_of(**CASES[name])
  want = simulated(site.deployed(c), tmp_path / 'simulated')
  sites = LocalSites(clients_of(c, tmp_path / 'sites'))
  got = federation.run(c, sites, tmp_path / 'run', progress=False)
  assert got.finished
  close = functools.partial(np.testing.assert_allclose, rtol=0, atol=1e-6)
  jax.tree.map(close, got.state.params, want.state.params)
  same_rows(tmp_path / 'run', tmp_path / 'simulated')
  row = harness.rows(tmp_path / 'run')[-1]
  evaluated = any('client' in x for x in row if 'loss' in x)
  assert evaluated == (name == 'weights')
  assert name.startswith('private') == ('epsilon' in row)


def test_local_work_uses_all_devices_of_a_site(monkeypatch):
  """Catches devices that idle, and numbers that depend on their number."""
  c, found = config_of(), []
  client = site.client(c, 0, lambda c: own_data.problem(c, 0, share(0)))
  for devices in jax.devices(), jax.devices()[:1]:
    monkeypatch.setattr(jax, 'local_devices', lambda devices=devices: devices)
    batches = client.batches(0)
    for x in jax.tree.leaves(batches):
      assert len(x.sharding.device_set) == len(devices)
    state = client.programs.first(problem_lib.load(c, None).params)
    who = None, np.int32(0), np.float32(1)
    found.append(client.programs.work(state, batches, *who))
  chex.assert_trees_all_close(*found, rtol=1e-5, atol=1e-7)


# Catches runs that would be other ones than their configs say.
test_what_sites_cannot_do_is_refused = refused(
  lambda fields: site.deployed(config_of(**fields)),
  (NOISE | TABLE | {'trust': 'secure_aggregation'}, 'trust'),
  (TABLE | {'dropout': 0.1}, 'dropout'),
  (SAMPLE | {'noise_multiplier': None, 'epsilon': 3.0}, 'noise_multiplier'),
  error=ConfigError,
)


@pytest.mark.parametrize(('change', 'named'), [
  (lambda run: {'name': ALIEN}, 'config'),
  (lambda run: {'population': 9}, r'\[8\]'),
  (lambda run: run.clients.update({2: run.clients[1]}), 'Sites 1 and 2'),
  (lambda run: setattr(run, 'edit', lambda i, x: x[:-1] + b'!'), 'Clients'),
  *[(lambda run, x=x: run.clients[1].about.update(x), 'ite 1|ient 1')
    for x in ({'version': '0'}, {'samples': -1}, {'samples': 2**40})],
])  # fmt: skip
@pytest.mark.filterwarnings('ignore:Site ')
def test_sites_that_do_not_fit_are_named(change, named):
  """Catches a run that begins with the wrong clients, or a traceback."""
  run = run_of('safl_adam')
  options = {'name': RUN, 'population': 8} | (change(run) or {})
  name, population = options.values()
  quick = site_rounds.Timeouts(sites=0)
  with pytest.raises(site_rounds.SitesError, match=named):
    site_rounds.SiteRounds(run, name, population, 0, quick).greet(wait=True)


@pytest.mark.nightly
def test_a_private_run_is_not_resumed_before_its_newest_checkpoint(tmp_path):
  """Catches a round that a served private run releases twice."""
  c = config_of(**CASES['private'] | {'rounds': 2, 'cohort': 2})
  sites = LocalSites(clients_of(c, tmp_path / 'sites'))
  start = lambda: federation.run(c, sites, tmp_path / 'run', progress=False)
  start()
  shutil.rmtree(tmp_path / 'run' / 'checkpoints' / '2')
  for _ in range(2):
    with pytest.raises(WorkdirError, match='lost the checkpoint of round 2'):
      start()


@pytest.mark.nightly
def test_a_private_site_is_one_client_with_its_record(tmp_path):
  """Catches two clients with one noise, and noise without a record of use."""
  c = config_of(**CASES['private_local'] | {'noise_seed': None})
  own = lambda c: own_data.problem(c, 0, share(0))
  start = lambda *programs: site.client(c, 0, own, tmp_path, *programs)
  client = start()
  assert 'samples' not in client.about  # the server has no use for it
  forget = functools.partial(noise_secret.forget, tmp_path)
  for attempt in (start, forget):
    with pytest.raises(WorkdirError, match='in use'):
      attempt()
  programs = client.programs
  del client
  record = tmp_path / 'secret' / noise_secret.ANSWERED
  content = record.read_text()
  record.unlink()
  with pytest.raises(noise_secret.SecretError, match='answered is missing'):
    start(programs)
  record.write_text(content)
  start(programs)
  forget()  # at a site that has stopped, without a second flag
  with pytest.raises(noise_secret.SecretError, match='was deleted'):
    start(programs)


# A server that kills itself in the n-th call of a method, before or after it
# does anything.
SERVER = """
import importlib, json, os, pathlib, signal, sys
from fl_sketch.sites import federation
from site_files import Sockets

where, when, left = sys.argv[4], sys.argv[5], int(sys.argv[6])
if where:
  module, cls, method = where.split(':')
  owner = getattr(importlib.import_module(f'fl_sketch.{module}'), cls)
  plain = getattr(owner, method)

  def killed(*args, **options):
    global left
    left -= 1
    if left == 0 and when == 'before':
      os.kill(os.getpid(), signal.SIGKILL)
    found = plain(*args, **options)
    if left == 0:
      os.kill(os.getpid(), signal.SIGKILL)
    return found

  setattr(owner, method, killed)
fields = json.loads(pathlib.Path(sys.argv[2]).read_text())
folder = pathlib.Path(sys.argv[1])
paths = {path.name: str(path) for path in folder.iterdir()}
federation.run(fields, Sockets(paths), sys.argv[3], progress=False)
"""
CHECKPOINTS = 'runs.checkpoints:Checkpoints:save'
PHASES = [  # in, before or after what the server does
  ('sites.site_rounds:SiteRounds:_add_site', 'after', 2),
  ('sites.inbox:Inbox:receive', 'after', 3),
  ('sites.inbox:Inbox:close', 'before', 2),
  ('sites.inbox:Inbox:close', 'after', 2),
  ('sites.history:History:add', 'after', 2),
  ('runs.log:RunLog:record', 'after', 2),
  (CHECKPOINTS, 'before', 1),
  (CHECKPOINTS, 'after', 1),
]


@pytest.mark.long
@pytest.mark.parametrize('kind', ['scaffold', 'two_exchanges', 'private'])
def test_a_server_that_is_killed_goes_on(kind, tmp_path):
  """Catches rows, rounds or checkpoints that a kill leaves out or doubles."""
  fields = BASE | CASES[kind] | {'rounds': 16, 'eval_every': 4}
  c = Config.from_mapping(fields)
  simulated(site.deployed(c), tmp_path / 'simulated')
  (tmp_path / 'config.json').write_text(json.dumps(fields))
  script, sockets = tmp_path / 'server.py', tempfile.TemporaryDirectory()
  script.write_text(SERVER)
  with sockets as folder:
    for name, handle in clients_of(c, tmp_path / 'sites').items():
      serve(handle, pathlib.Path(folder, name))
    paths = f'{harness.ROOT}:{harness.ROOT}/tests/support'
    environment = os.environ | {'PYTHONPATH': paths}
    for phase in [*PHASES, ('', '', 0)]:
      command = [sys.executable, script, folder, tmp_path / 'config.json']
      command += [tmp_path / 'run', *map(str, phase)]
      done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300
      )
      expected = -signal.SIGKILL if phase[0] else 0
      assert done.returncode == expected, (phase, done.stderr[-2000:])
  same_rows(tmp_path / 'run', tmp_path / 'simulated', but=['train_loss'])
