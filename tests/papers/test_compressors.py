"""Compressors by bytes: shares, state, claims, and methods of one's own."""

import dataclasses

from fl_sketch import algorithms, runs
from fl_sketch.rounds import (
  aggregation,
  comms,
  federated,
  init,
  mesh as mesh_lib,
  transforms,
)
from fl_sketch.runs import plan as plan_lib
from harness import ROOT
from laws import law
import numpy as np
import optax
from papers.common import comparison, registration
from papers.common.workspace import PointRun, Workspace
from papers.compressors import federations, own, study, tasks, workers
from papers.compressors.tasks import Task
import pytest
from refusals import refused

EXAMPLE = ROOT / 'docs' / 'examples' / 'own_compressor.py'
ROWS, FEW = (
  {study.title(row): row for row in study.rows(Workspace(ROOT), methods)}
  for methods in (federations.METHODS, workers.METHODS)
)
_WORK = 'rounds', 'local_steps', 'cohort', 'batch_size'


def widened(made):
  """A task with an MLP of 85,002 parameters, at no method's edge."""
  wide = made.fields | {'model_options': {'widths': (256, 256)}}
  dimension, factors = comparison.sizes(Workspace(ROOT), wide)
  return made._replace(fields=wide, dimension=dimension, factors=factors)


@pytest.fixture(scope='module')
def task():
  return widened(tasks.clothes(Workspace(ROOT, 'quick')))


@pytest.fixture(scope='module')
def few():
  return widened(tasks.characters(Workspace(ROOT, 'quick')))


def built(task, method, share):
  return runs.build(task.fields | method.fields(task, share))


@law(ROWS, fast=[f'{federations.SUBSPACE}, 0.01', 'FedSKETCH, HEAPRIX, 0.001'])
def test_a_federated_method_sends_its_share_and_keeps_nothing(name, task):
  """Catches more bytes than are claimed or far less, and state of clients."""
  method, share = ROWS[name]
  exp = built(task, federations.METHODS[method], share)
  (up, *_), _ = plan_lib.wire(exp, mesh_lib.cohort_mesh())
  fewer = method in (federations.FEWER, 'FedKSeed')  # in other numbers
  assert fewer or 0.8 <= up / (4 * share * task.dimension) <= 1.05
  rows = comms.client_rows(init(exp.make(exp.hyper), exp.params, 3))
  assert not rows


@law(FEW, fast=[f'{workers.OURS}, 0.01'])
def test_workers_see_as_many_samples_and_send_their_share(name, few):
  """Catches more bytes than are claimed or far less, and unequal work."""
  method, share = FEW[name]
  fields = few.fields | workers.METHODS[method].fields(few, share)
  seen = lambda x: np.prod([x[k] for k in _WORK])
  assert seen(fields) == seen(few.fields)
  (up, *_), _ = plan_lib.wire(runs.build(fields), mesh_lib.cohort_mesh())
  # The first round of ours has a second moment; small arrays send more.
  roughly = workers.METHODS[method].family in ('low rank', 'largest')
  most = 3 if method == workers.OURS else 2 if roughly else 1.05
  assert 0.5 <= up / (4 * share * few.dimension) <= most


@pytest.mark.parametrize('share', [0.1, 0.03])
def test_fewer_rounds_have_as_many_samples(share):
  """Catches a rival that trains on fewer."""
  sizes = {'rounds': 150, 'local_steps': 10, 'cohort': 10, 'batch_size': 20}
  method = federations.METHODS[federations.FEWER]
  made = sizes | method.fields(Task('', '', sizes, 0, ''), share)
  assert np.prod([made[k] for k in _WORK]) == np.prod([*sizes.values()])


@pytest.mark.parametrize('bad', [(0.1, -1.0), 0.1, ('x',)])
def test_rates_of_a_file_are_numbers(tmp_path, bad):
  """Catches a traceback in place of one line."""
  path = tmp_path / 'mine.py'
  path.write_text(f'RATES = {bad!r}\nfields = lambda dimension: {{}}\n')
  with pytest.raises(ValueError, match='list of positive numbers'):
    own.load(str(path), own.BENCHMARKS['digits'])


def test_bytes_of_a_run_that_diverged_are_of_all_rounds(tmp_path, monkeypatch):
  """Catches a method that is on the frontier as it stopped at once."""
  row = {'participants': 2, 'total_downlink_bytes': 0, 'diverged': True}
  early, late = (
    row | {'round': n - 1, 'total_uplink_bytes': 60 * n} for n in (2, 10)
  )

  def ran(*_, **__):
    class One:
      rate, runs = 0.1, [PointRun(x, tmp_path) for x in (early, late)]
      final = staticmethod(lambda *_, **__: np.array([np.nan]))

    return One

  monkeypatch.setattr(comparison, 'run', ran)
  monkeypatch.setattr(study, '_seconds', lambda *_: 0.0)
  monkeypatch.setattr(PointRun, 'curve', lambda *_: (np.ones(1), np.ones(1)))
  task = Task('', '', {'rounds': 10}, 8, '')
  method = federations.Method(lambda *_: {}, 'dense')
  r = {'repetitions': 1, 'seed': 0, 'tuning_seed': 0, 'adaptive': [0.1]}
  made = study.play(Workspace(tmp_path), task, r, method, 'x', 0.1)
  assert made.up == 300.0
  finite = made._replace(final=[50.0], up=400.0)
  found = {('x', 0.1): made, ('y', 0.1): finite}
  line = study._frontier(task, found, 'bytes up', lambda x: x.up)
  assert line == 'The frontier of bytes up: y, 0.1 (50.0).'


@pytest.mark.parametrize('name', own.BENCHMARKS)
def test_claims_are_the_registered_ones(name):
  """Catches a claim that only the study, or only its registration, has."""
  of = own.BENCHMARKS[name]
  module = workers if of.methods is workers.METHODS else federations
  rows, r = study.rows(Workspace(ROOT), of.methods), registration.read(of.study)
  task = Task(name, '', {'rounds': 1}, 0, '')
  made = study.Record([80.0] * 6, [], [], 1.0, 1.0, 0.0)
  found = dict.fromkeys(rows, made)
  compared = study.Compared(task, found, module.METHODS)
  claims = registration.claims(r, module.claims(compared))
  assert {c.measured for c in claims} == {80.0, 0.0}


@algorithms.register
def sends_unbilled(task, hp):
  """FedAvg whose uplink returns an empty bill.

  Symbols: none. Departures: all. Source: this test.
  """
  link = aggregation.mean_over_cohort()

  def update(*args, **extra):
    mean, _ = link.update_fn(*args, **extra)
    return mean, comms.bill(down=4)

  unbilled = dataclasses.replace(link, update_fn=update)
  step = optax.scale(-1.0)
  return federated(task.steps(hp), unbilled, transforms.broadcast(), step)


def test_a_method_that_bills_less_than_it_sends_is_refused(task):
  """Catches a row whose bytes are those that its author wrote down."""
  whole = 4 * task.dimension
  unbilled = {'algorithm': 'sends_unbilled', 'server_schedule': None}
  with pytest.raises(ValueError, match=f'sends {whole:,} bytes up.* bills 0;'):
    own.check_bill(runs.build(task.fields | unbilled))


@pytest.mark.parametrize('text', [
  str(EXAMPLE), 'eden(bits=2)', 'block_srht(size=617)', 'EDEN, 0.01',
])  # fmt: skip
@pytest.mark.parametrize('name', own.BENCHMARKS)
def test_a_text_is_a_method_of_each_task(name, text, task, few):
  """Catches a task whose own fields do not suit what enters it."""
  of, on = own.BENCHMARKS[name], few if name == 'characters' else task
  if text in ROWS and name == 'characters':
    text = 'SparseLoCo with Muon, 0.01'
  method, share, _ = own.load(text, of)
  assert method.rates in registration.read(of.study)
  own.check_bill(built(on, method, share))


test_what_is_no_method_is_refused = refused(
  lambda text: own.load(text, own.BENCHMARKS['clothes']),
  ('eden2(bits=2)', 'neither FILE.py, nor a row of .*, nor one of .*eden'),
  (str(ROOT / 'configs' / 'quickstart.py'), r'no function fields\(dimension\)'),
  ('/nowhere.py', 'is no file'),
)


def test_an_own_method_runs_by_the_protocol(tmp_path):
  """Catches a lost row or seed, and a second start that tunes again."""
  ws, name = Workspace(tmp_path, 'quick', progress=False), str(EXAMPLE)
  made = own.report(ws, name, 'digits', 1)
  assert made.tables[0].rows[0][0] == name
  assert len(made.seeds[name]['final']) == 1
  # A repetition trains on as many seeds as are registered.
  curves = made.seeds[name]['curves']
  assert len(curves) == registration.read('Federated-Digits')['seeds_each'] == 2
  assert own.report(ws, name, 'digits', 1).seeds == made.seeds
