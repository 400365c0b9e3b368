"""Studies at quick scale, their verdicts, and the page of all of them."""

from html import parser
import json
import math

from fl_sketch import reporting, sweeps
from fl_sketch.reproduce import catalog, lab as lab_lib, page, results, study
import numpy as np
import pytest
import runs


@pytest.fixture(scope='module')
def lab(tmp_path_factory):
  """One for all studies: they share runs."""
  folder = tmp_path_factory.mktemp('lab') / 'quick'
  return lab_lib.Lab(folder, 'quick', None, progress=False)


@pytest.mark.representatives('S0-X3', 'S2-Tab1')
@pytest.mark.parametrize('name', catalog.STUDIES)
def test_every_study_runs_at_quick_scale(name, lab):
  """A smoke test: its sizes are too small for a verdict to mean anything.

  Fast, of all studies: configs and claims, in test_studies.py.
  """
  result = results.play(catalog.find(name), lab)
  assert result == results.read(lab.folder, name)
  assert result['name'] == name
  assert result['claims']
  assert result['configs']
  assert result['seeds']
  for claim in result['claims']:
    assert claim['verdict'] in (study.HOLDS, study.FAILS, study.UNTESTABLE)
    untestable = claim['ok'] is None
    assert untestable == (claim['verdict'] == study.UNTESTABLE)
    assert not untestable or claim['remark'], 'says why it cannot be tested'
  for table in result['tables']:
    assert all(len(row) == len(table['head']) for row in table['rows'])
  for picture in result['pictures']:
    assert (lab.folder / picture['file']).stat().st_size > 2000


@pytest.mark.parametrize(
  ('measured', 'relation', 'bound', 'verdict', 'margin'),
  [
    (2.0, '>=', 1.5, study.HOLDS, 0.5),
    (1.5, '>=', 1.5, study.HOLDS, 0.0),
    (1.0, '>=', 1.5, study.FAILS, -0.5),
    (1.0, '<=', 1.5, study.HOLDS, 0.5),
    (math.inf, '<=', 1.5, study.FAILS, -math.inf),
    (math.nan, '<=', 1.5, study.FAILS, math.nan),
    (None, '<=', 1.5, study.UNTESTABLE, None),
  ],
)
def test_verdicts(measured, relation, bound, verdict, margin):
  claim = study.Claim('', measured, relation, bound)
  assert claim.verdict == verdict
  assert claim.margin == margin or (
    math.isnan(margin or 0) and math.isnan(claim.margin or 0)
  )


def made_up(lab):
  """Two claims and a picture, without any run."""
  lab.kept('made_up', {'x': 1}, lambda: [1.0, math.nan])
  axes = reporting.new_axes('x', 'y')
  axes.plot([0, 1], [0, 1])
  return study.Report(
    claims=[
      study.Claim('one & only <claim>', 1.0, '>=', 0.0, 0.25),
      study.Claim('it diverged', math.nan, '<=', 1.0),
    ],
    seeds={'a': [np.float32(1.5), math.inf]},
    tables=[study.Table('numbers', ('run', 'loss'), [['a', '<1']])],
    pictures=[study.Picture('a line', axes.get_figure(root=True))],
  )


MADE_UP = study.Study('X-1', 'made up', 'nobody', made_up, 0.0)


class Reader(parser.HTMLParser):
  """Tags that are open, addresses that the page names, and its text."""

  def __init__(self):
    super().__init__()
    self.stack, self.links, self.text = [], [], ''

  def handle_starttag(self, tag, attrs):
    if tag not in ('meta', 'img'):
      self.stack.append(tag)
    self.links += [v for k, v in attrs if k in ('src', 'href')]

  def handle_endtag(self, tag):
    assert self.stack.pop() == tag

  def handle_data(self, data):
    self.text += data


@pytest.fixture
def remark(tmp_path, monkeypatch):
  """A remark on the claim of `MADE_UP` that fails, one of two that fit."""
  monkeypatch.setattr(results, 'KEPT', tmp_path)
  sections = '# X-1', '## it', 'no', '## it di', 'too long\n<steps>', '## one'
  (tmp_path / 'X-1.md').write_text('\n\n'.join([*sections, 'no']))
  return [('it diverged', 'too long <steps>')]


def test_remarks_are_of_the_cpu_scale(tmp_path, remark):
  remarks = {}
  for scale in ('quick', 'cpu'):
    lab = lab_lib.Lab(tmp_path / scale, scale, progress=False)
    remarks[scale] = results.remarks(results.play(MADE_UP, lab))
  assert remarks == {'quick': [], 'cpu': remark}


@pytest.mark.usefixtures('remark')
def test_the_page_needs_nothing_but_itself(tmp_path):
  lab = lab_lib.Lab(tmp_path / 'cpu', 'cpu', progress=False)
  result = results.play(MADE_UP, lab)
  assert result['verdict'] == '1 of 2 claims hold'
  assert result['seeds'] == {'a': [1.5, None]}
  path = tmp_path / 'page' / 'index.html'
  entries = results.collect([lab.folder], ['X-1', 'X-2'])
  page.write(path, entries, {'X-2': 'no data'})
  reader = Reader()
  reader.feed(path.read_text())
  assert not reader.stack
  inside = [x.startswith(('#', 'data:image/png;base64,')) for x in reader.links]
  assert inside == [True, True]
  for words in (
    'one & only <claim>', '1 ± 0.25', 'not finite', 'too long <steps>',
    'not run: no data', '1 of 2 claims hold',
  ):  # fmt: skip
    assert words in reader.text


def test_kept_results_are_small_and_every_failure_has_a_remark():
  """Catches a study without a result, and a remark on a claim that is gone."""
  kept = results.collect([results.KEPT], catalog.STUDIES)
  assert [result['name'] for result, _ in kept] == list(catalog.STUDIES)
  for result, folder in kept:
    assert result['commit']
    assert result['date']
    claims = [claim['text'] for claim in result['claims']]
    not_held = [c['text'] for c in result['claims'] if c['ok'] is not True]
    assert [claim for claim, _ in results.remarks(result)] == not_held
    path = folder / f'{result["name"]}.md'
    lines = path.read_text().splitlines() if path.exists() else []
    for heading in (x[3:] for x in lines if x.startswith('## ')):
      assert any(claim.startswith(heading) for claim in claims)
    files = folder.glob(f'{result["name"]}[.-]*')
    assert sum(file.stat().st_size for file in files) < 500_000
  sizes = [file.stat().st_size for file in results.KEPT.iterdir()]
  assert sum(sizes) < 3_000_000


def test_a_lab_finds_runs_where_they_were_played(tmp_path, monkeypatch):
  """Catches a study that reads the metrics of another point."""

  def play(config, folder, **options):
    assert options == {'data_dir': None, 'progress': False}
    return [
      {'point': i, 'values': {'seed': seed}, 'folder': folder}
      for i, seed in enumerate(config['sweep']['seed'])
    ]

  monkeypatch.setattr(sweeps, 'run', play)
  lab = lab_lib.Lab(tmp_path, 'quick', progress=False)
  (run,) = lab.sweep('a', {'seed': 5})
  assert run.values == {'seed': 5}
  assert run.row['folder'] == str(tmp_path / 'runs' / 'a')
  assert run.folder == tmp_path / 'runs' / 'a' / 'points' / '000'
  runs = lab.sweep('b', {'sweep': {'seed': (3, 4)}})
  assert [r.values['seed'] for r in runs] == [3, 4]
  assert lab.played == {
    'a': {'seed': 5, 'sweep': {'seed': (5,)}},
    'b': {'sweep': {'seed': (3, 4)}},
  }


def test_what_was_computed_is_found_again(tmp_path):
  lab, calls = lab_lib.Lab(tmp_path, 'quick'), []
  compute = lambda: calls.append(1) or {'n': len(calls)}
  assert lab.kept('a', {'x': (1, 2)}, compute) == {'n': 1}
  assert lab.kept('a', {'x': [1, 2]}, compute) == {'n': 1}
  with pytest.raises(ValueError, match='another workdir'):
    lab.kept('a', {'x': [1, 3]}, compute)
  assert len(calls) == 1


@pytest.mark.parametrize(
  ('best', 'tuned', 'beyond'),
  [
    (0.03, 0.03, []),
    (0.3, 0.3, ['a-0.3', 'a-1']),
    (0.0, 0.0003, ['a-0.003', 'a-0.001', 'a-0.0003']),
  ],
)
def test_a_grid_goes_on_where_the_best_is_at_its_edge(
  tmp_path, best, tuned, beyond
):
  class Lab(lab_lib.Lab):
    def sweep(self, name, config):
      self.played[name] = config
      return [
        lab_lib.Run({'values': {'client_lr': lr}}, tmp_path)
        for lr in config['sweep']['client_lr']
      ]

  lab = Lab(tmp_path)
  score = lambda run: -abs(run.values['client_lr'] - best)
  grid = {'client_lr': (0.01, 0.03, 0.1)}
  assert lab.tune('a', {'rounds': 3}, grid, score) == {'client_lr': tuned}
  assert [*lab.played] == ['a', *beyond]
  assert all(config['rounds'] == 3 for config in lab.played.values())


def test_runs_tell_where_they_reach_a_target(tmp_path):
  rows = [
    {'round': i, 'total_uplink_bytes': 10 * i, 'test_accuracy': i / 10}
    for i in range(5)
  ]
  text = '\n'.join(json.dumps(row) for row in rows)
  (tmp_path / 'metrics.jsonl').write_text(text + '\n')
  run = lab_lib.Run({'values': {}, 'diverged': False}, tmp_path)
  assert run.reaches(0.3) == 30
  assert run.reaches(0.41) == math.inf
  assert run.final(last=2) == pytest.approx(0.35)
  lost = lab_lib.Run({'values': {}, 'diverged': True}, tmp_path)
  assert math.isnan(lost.final())


@pytest.mark.parametrize(
  ('flags', 'words'),
  [
    (['S4-Fg1', '--workdir=x'], "Did you mean 'S4-Fig1'?"),
    (['S4-Fig1:tiny', '--workdir=x'], "Expected scale='tiny' in"),
    ([], 'Expected --list, --page, or NAME'),
  ],
)
def test_the_command_names_what_it_does_not_know(flags, words):
  ended = runs.command('reproduce', *flags)
  assert ended.returncode == 1
  assert words in ended.stdout + ended.stderr
  assert 'Traceback' not in ended.stderr
