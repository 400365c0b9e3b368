"""Both audits, on every break of the list (at 1e-3), and their false alarms."""

import pathlib

import breaks
from breaks import BOUND, BREAKS, FOUND, LAW, NONE, NOT
from fl_sketch.privacy.auditing import canaries
from fl_sketch.runs import audit, config, experiment, one_run_audit
import jax
import numpy as np
import pytest
from scipy import stats

SHARE = 1e-3
EPSILON = breaks.POISSON | {'noise_multiplier': None, 'epsilon': 8.0}
CYCLIC = breaks.BANDED | {'sampling': 'cyclic', 'cohort': 30}
SAMPLES = {
  'algorithm': 'private_iterative_sketching', 'batch_order': 'poisson',
  'batch_size': 8,
}  # fmt: skip
ALLOCATION = {'sampling': 'random_allocation', 'cohort': 30}
FIXED = {'sampling': 'fixed_size', 'cohort': 30, 'adjacency': 'replace_one'}
NOISY = breaks.POISSON | {'public_metrics': 'private'}
HONEST = [
  breaks.Break(f'nothing in {name}', lambda patch: None, NOT, one_run, fields)
  for name, fields, one_run in (
    ('safl', {}, NOT), ('masked', breaks.MASKED, NOT),
    ('poisson', EPSILON, NOT), ('banded', breaks.BANDED, NONE),
    ('cyclic', CYCLIC, NONE), ('samples', SAMPLES, NONE),
    ('allocation', ALLOCATION, NOT), ('fixed size', FIXED, NOT),
    ('quantile', breaks.QUANTILE, NOT), ('noisy metrics', NOISY, NOT),
    ('layers', breaks.DENSE | {'per_layer': True}, NOT),
    ('replaced', {'adjacency': 'replace_one', 'noise_multiplier': 2.8}, NOT),
  )
]  # fmt: skip
each = pytest.mark.parametrize('case', [*HONEST, *BREAKS], ids=lambda x: x.name)


def kind(bound, law):
  return {(1, 1): FOUND, (1, 0): BOUND, (0, 1): LAW}.get((bound, law), NOT)


@pytest.mark.nightly
@each
def test_many_runs_find_what_the_list_says(case, monkeypatch):
  """Catches an audit that is blind to a break, or sees one in what is right."""
  c = case.config_of()
  case.plant(monkeypatch)
  options = {'samples': 500, 'significance': SHARE, 'seed': 2}
  report = audit.audit_config(c, **options)
  shown = np.array(list(report.measured.values())) > np.array([report.theory])
  law = report.law is not None and report.law.chance <= report.share
  assert kind(shown.any(), law) == case.config, report.text()
  assert report.violated == (case.config != NOT)


@pytest.mark.nightly
@each
def test_one_run_finds_what_the_list_says(case, monkeypatch):
  """Catches an audit that is blind to a break, or sees one in what is right."""
  c = case.config_of()
  if case.one_run == NONE:
    with pytest.raises(config.ConfigError):
      one_run_audit.prepare(c, canaries=500)
    return
  case.plant(monkeypatch)
  # It refuses a denominator that follows the cohort before the audit.
  monkeypatch.setattr(experiment, 'proved', lambda exp: exp)
  game = one_run_audit.prepare(c, canaries=500, significance=SHARE)
  report = one_run_audit.play(game, seed=1)
  bound = any(x.refutes for x in report.bounds.values())
  law = report.law.chance <= game.share
  assert kind(bound, law) == case.one_run, report.text()
  assert report.refuted == (case.one_run != NOT)


def test_the_guide_shows_the_list():
  """Catches a table that is not what was tested."""
  root = pathlib.Path(__file__).parents[2]
  guide = (root / 'docs/guides/privacy.md').read_text()
  assert '\n'.join(breaks.table()) in guide
  assert len({x.name for x in BREAKS}) == len(BREAKS) >= 24
  # What is not found says why.
  assert all(bool(x.why) == (NOT in (x.config, x.one_run)) for x in BREAKS)


@pytest.mark.nightly
@pytest.mark.usefixtures('unproven')
@pytest.mark.parametrize('audited', ['many runs', 'one run'])
@pytest.mark.parametrize('fields', [{}, NOISY, breaks.QUANTILE], ids=str)
def test_what_is_honest_is_accused_as_often_as_stated(audited, fields):
  """Catches an audit that accuses what is right too often; alarms 1e-6."""
  c, share, runs = HONEST[0]._replace(fields=fields).config_of(), 0.05, 200
  if audited == 'one run':
    game = one_run_audit.prepare(c, canaries=500, significance=share)
    accused = sum(one_run_audit.play(game, seed=i).refuted for i in range(runs))
  else:
    game, _ = audit.game_of(c)
    options = {'samples': 200, 'significance': share}
    split = jax.random.split(jax.random.key(5), runs)
    accused = sum(canaries.audit(game, x, **options).violated for x in split)
  assert accused <= stats.binom.isf(1e-6, runs, share)
