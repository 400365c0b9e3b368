"""Training under watch: spectra over rounds, again, and from the shell."""

import json
from unittest import mock

from fl_sketch import runs
from fl_sketch.runs import problem as problem_lib
from harness import SMALL
import jax
from launch import configs
import numpy as np
from papers.chen.curvature import during_training, spectrum, spectrum_report
import pytest

OPTIONS = during_training.Options(lanczos_steps=12, probes=2, top=5, samples=70)
LINEAR = {'model': 'linear', 'model_options': None}
FIELDS = SMALL | LINEAR | {'eval_every': 4}


def run(folder, every=2, options=OPTIONS, **fields):
  return during_training.run(
    FIELDS | fields, str(folder), every=every, options=options, progress=False
  )


@pytest.fixture(scope='module')
def watched(tmp_path_factory):
  """A folder with the spectra of rounds 0, 2 and 4, and its rows."""
  folder = tmp_path_factory.mktemp('spectra')
  return folder, run(folder)


@pytest.mark.covers('S4-Fig5')
def test_every_other_round_has_its_spectrum(watched):
  folder, rows = watched
  assert [row['round'] for row in rows] == [0, 2, 4]
  record = json.loads((folder / 'spectrum.json').read_text())
  assert record['spectra'] == rows
  assert record['options'] == OPTIONS._asdict()
  assert (folder / 'spectrum.md').read_text() == spectrum_report.table(rows)
  assert (folder / 'spectrum.png').stat().st_size > 10_000
  for row in rows:
    assert -1e-4 < row['lambda_min'] < row['eigenvalues'][-1]  # it is convex
    assert row['eigenvalues'][0] <= row['lambda_max']
    assert len(row['eigenvalues']) == 5
    assert np.shape(row['nodes']) == np.shape(row['weights']) == (2, 12)
    assert 1 <= row['intrinsic_dimension'] <= row['dimension'] == 650
    assert 0 <= row['near_zero'] <= 1


@pytest.mark.long
def test_the_last_spectrum_is_that_of_the_trained_model(watched):
  folder, rows = watched
  exp = runs.build(FIELDS)
  batches = during_training._sampled(exp, OPTIONS.samples)
  assert batches['x'].shape == (2, 50, 8, 8, 1)
  assert batches['mask'].sum() == 70
  last = runs.train(exp, str(folder), progress=False).state.params
  loss_fn = problem_lib.load(exp.config, None).loss_fn
  problem = loss_fn, jax.device_get(last), batches, jax.random.key(0)
  nodes = spectrum.slq(*problem, steps=12, probes=2).nodes
  np.testing.assert_allclose(nodes, rows[-1]['nodes'], rtol=1e-5)


@pytest.mark.long
def test_started_again_it_takes_only_what_is_missing(watched, monkeypatch):
  folder, rows = watched
  slq = mock.Mock(wraps=spectrum.slq)
  monkeypatch.setattr(spectrum, 'slq', slq)
  assert run(folder) == rows
  assert slq.call_count == 0
  path = folder / 'spectrum.json'
  record = json.loads(path.read_text())
  record['spectra'].pop(1)  # as if it had been stopped before
  path.write_text(json.dumps(record))
  assert run(folder) == rows
  assert slq.call_count == 1
  longer = run(folder, rounds=6)
  assert longer[:3] == rows
  assert [row['round'] for row in longer] == [0, 2, 4, 6]
  assert slq.call_count == 2


def test_a_private_run_has_no_spectrum(tmp_path):
  """Catches a spectrum of the clients' data beside a guarantee."""
  private = configs.load('das_quadratics').get_config('quick').to_dict()
  with pytest.raises(ValueError, match='private'):
    run(tmp_path, every=10, **private)
  assert not list(tmp_path.iterdir())
