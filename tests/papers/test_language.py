"""The comparison on models of language: its data, tuning and claims."""

import pathlib

from fl_sketch import models
from fl_sketch.data import store
import numpy as np
from papers.common import workspace
from papers.language import methods, problems, report, tuning
import pytest

from tests.papers.test_trained import MadeUp


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  return tmp_path_factory.mktemp('language')


@pytest.fixture
def ws(folder):
  return MadeUp(folder, 'quick', progress=False)


def test_halves_share_nothing_and_one_client_has_everything(ws):
  """Catches a model that was trained on what it is adapted to."""
  parts = {p: problems.plays(ws, p) for p in ('all', 'first', 'second', 'one')}
  path = lambda fields: pathlib.Path(fields['dataset_options']['folder'])
  found = {part: store.open(path(fields)) for part, fields in parts.items()}
  assert parts['all']['population'] == 16
  assert parts['first']['population'] == parts['second']['population'] == 8
  assert not {*found['first'].ids} & {*found['second'].ids}
  assert {*found['first'].ids} | {*found['second'].ids} == {*found['all'].ids}
  assert parts['one']['population'] == 1
  for name in ('train', 'test'):
    one, whole = (getattr(found[p], name)['x'] for p in ('one', 'all'))
    np.testing.assert_array_equal(one, whole)


def test_rates_are_tuned_by_what_clients_hold_out(ws):
  """Catches a rate that is chosen by the test, or on a reported seed."""
  made = report.scratch(ws)
  assert made.seeds[methods.DENSE]['rate'] == 0.001
  tuned = [c for n, c in ws.configs.items() if n.endswith('/tune')]
  raced = [c for n, c in ws.configs.items() if n.endswith('/race')]
  assert len(tuned) == len(raced) == len(made.seeds) > 2
  for config in tuned:
    assert config['client_holdout'] == 0.1
    assert config['seed'] not in range(10)
  for config in raced:
    assert 'client_holdout' not in config
    assert config['sweep'] == {'seed': (0, 1)}


def test_claims_are_of_losses_and_bytes(ws):
  """Catches a claim of another method, and of bytes down."""
  near, fewer, *_ = report.scratch(ws).claims
  assert (near.measured, near.bound) == (0.0, 1.0)
  assert (fewer.measured, fewer.bound) == (10.0, 100)
  assert methods.TABLES in near.text
  assert methods.DILOCO in near.text


def test_all_methods_see_the_same_characters(ws):
  """Catches a method with more steps, samples or rounds than the others."""
  task = problems.scratch(ws)
  for name, method in methods.METHODS.items():
    fields = tuning.config(task, method, 6, 0.1)
    seen = fields['rounds'] * fields['local_steps'] * fields['batch_size']
    assert seen == 6 * 4 * 2, name
    assert fields['cohort'] == 8


@pytest.mark.parametrize('scale', workspace.SCALES)
def test_heads_divide_the_widths_of_every_scale(scale, folder, monkeypatch):
  """Catches a decoder that cannot be made, at a scale that nobody ran."""
  monkeypatch.setattr(problems, 'plays', lambda ws: {})
  made = lambda ws, name, fields, rates: fields
  monkeypatch.setattr(problems.tuning, 'task', made)
  fields = problems.scratch(MadeUp(folder, scale, progress=False))
  model = models.make(fields['model'], 67, **fields.get('model_options', {}))
  assert model.width % model.heads == 0
