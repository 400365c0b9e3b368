"""Studies at quick scale, what is stored of them, and their pages."""

import json
import math
import re

from fl_sketch.runs import figures, sweep
import numpy as np
from papers import catalog
from papers.common import pages, registration, results, study, verdicts
from papers.common.workspace import PointRun, Workspace
import pytest


@pytest.fixture(scope='module')
def ws(tmp_path_factory):
  """One for all studies: they share runs."""
  folder = tmp_path_factory.mktemp('ws') / 'quick'
  return Workspace(folder, 'quick', None, progress=False)


@pytest.mark.representatives('S2-Tab1')
@pytest.mark.parametrize('name', catalog.STUDIES)
def test_every_study_runs_at_quick_scale(name, ws):
  """A smoke test: its sizes are too small for a verdict to mean anything."""
  result = results.run(catalog.find(name), ws)
  assert result == results.read(ws.folder, name)
  assert result['name'] == name
  assert not result['claims'], 'a rehearsal has no verdicts'
  assert result['title'].startswith('Rehearsal of')
  assert result['configs']
  assert result['seeds']
  for table in result['tables']:
    assert all(len(row) == len(table['head']) for row in table['rows'])
  for picture in result['pictures']:
    assert (ws.folder / picture['file']).stat().st_size > 2000


def made_up(ws):
  """Claims and a picture, without any run."""
  ws.cached('made_up', {'x': 1}, lambda: [1.0, math.nan])
  line = figures.Line('a', [0, 1], [0.0, math.nan], cell='1 ± 2')
  return study.Report(
    claims=[
      verdicts.of_seeds('one & only <claim>', [1.0, 1.001, 1.002], '>=', 0.0),
      verdicts.of_seeds('it diverged', [math.nan] * 30, '<=', 1.0),
      verdicts.of_seeds('still open', [1.0, 2.0], '<=', 1.0),
      verdicts.exact('a count', 3, '>=', 3),
      verdicts.untestable('it is absent', '<=', 1.0, 'no data'),
    ],
    seeds={'a': [np.float32(1.5), math.inf]},
    tables=[study.Table('numbers', ('run', 'loss'), [['a', '1 ± 2']])],
    pictures=[study.Picture('a line', [figures.Panel('x', 'y', [line])])],
  )


MADE_UP = study.Study('X-1', 'made up', 'nobody', made_up, 0.0)


def test_a_page_has_every_claim_with_its_interval_and_verdict(
  tmp_path, monkeypatch
):
  """Catches NaN that becomes a verdict, and a remark on another claim."""
  ws = Workspace(tmp_path / 'cpu', 'cpu', progress=False)
  monkeypatch.setattr(results, 'STORED', tmp_path)
  sections = '# X-1', '## it', 'no', '## it di', 'too long\n<steps>', '## one'
  (tmp_path / 'X-1.md').write_text('\n\n'.join([*sections, 'no']))
  results.run(MADE_UP, ws)
  ((result, _),) = results.collect([ws.folder], ['X-1', 'X-2'])
  absent = ('it is absent', 'no data')
  assert pages.remarks(result) == [('it diverged', 'too long <steps>'), absent]
  assert result['seeds'] == {'a': [1.5, None]}
  pages.write([result], tmp_path / 'page', {'X-2': 'no disk'})
  text = (tmp_path / 'page' / 'X-1.md').read_text()
  for words in (
    '| one & only <claim> | 1.001 | 0.9985 to 1.003 | ≥ 0 | holds |',
    '| it diverged | not finite |  | ≤ 1 | does not hold |',
    '| still open | 1.5 | -4.853 to 7.853 | ≤ 1 | undecided',
    '| it is absent |  |  | ≤ 1 | not test', '| a count | 3 |  | ≥ 3 | holds |',
  ):  # fmt: skip
    assert words in text
  assert 'too long <steps>' in text
  assert '![a line](X-1-1.png)' in text
  index = (tmp_path / 'page' / 'index.md').read_text()
  counts = '2 hold, 1 does not hold, 1 is undecided, 1 is not testable here'
  assert counts in index


def stored():
  return results.collect([results.STORED], catalog.STUDIES)


def test_stored_results_are_small_and_every_failure_has_a_remark():
  """Catches a study without a result, and a remark on a claim that is gone."""
  names = [result['name'] for result, _ in stored()]
  registered = [n for n in catalog.STUDIES if registration.read(n)]
  # What is registered may wait for its runs.
  assert {*catalog.STUDIES} - {*names} <= {*registered}
  for result, folder in stored():
    assert result['commit']
    assert result['date']
    verdict = {claim['text']: claim['verdict'] for claim in result['claims']}
    unmet = verdicts.FAILS, verdicts.UNTESTABLE
    failed = {x for x, v in verdict.items() if v in unmet}
    assert failed <= {claim for claim, _ in pages.remarks(result)}
    path = folder / f'{result["name"]}.md'
    text = path.read_text() if path.exists() else ''
    for heading in re.findall('^## (.*)', text, re.M):
      assert any(claim.startswith(heading) for claim in verdict)
    assert all((folder / x['file']).exists() for x in result['pictures'])
  sizes = [file.stat().st_size for file in results.STORED.iterdir()]
  assert sum(sizes) < 4_200_000


def test_no_picture_disagrees_with_its_table():
  """Catches a picture of other runs than the table, and of uplinks alone."""
  compared = 0
  for result, _ in stored():
    cells = {c for t in result['tables'] for row in t['rows'] for c in row}
    for picture in result['pictures']:
      panels = figures.from_json(picture['panels'])
      of_bytes = [x.x_label for x in panels if 'bytes' in x.x_label]
      assert not of_bytes or any('up and down' in x for x in of_bytes)
      for panel in panels:
        for line in panel.lines:
          if line.cell:
            assert line.cell in cells
            shown = re.match(r'-?[\d.,e-]+', line.cell)[0].replace(',', '')
            digits = len(shown.partition('.')[2].partition('e')[0])
            off = 0.51 * 10.0**-digits + 1e-4 * abs(float(shown))
            assert abs(line.y[-1] - float(shown)) <= off
            compared += 1
  assert compared >= 100


def test_a_workspace_finds_runs_where_they_ran(tmp_path, monkeypatch):
  """Catches a study that reads the metrics of another point."""

  def ran(config, folder, **options):
    assert options == {'data_dir': None, 'progress': False}
    seeds = enumerate(config['sweep']['seed'])
    row = {'in': folder, 'seconds': 1.0}
    return [{'point': i, 'values': {'seed': x}} | row for i, x in seeds]

  monkeypatch.setattr(sweep, 'run', ran)
  ws, folder = Workspace(tmp_path, progress=False), tmp_path / 'runs' / 'a'
  runs = ws.sweep('a', {'sweep': {'seed': (3, 4)}})
  assert [run.values['seed'] for run in runs] == [3, 4]
  assert runs[1].row['in'] == str(folder)
  assert runs[1].folder == folder / 'points' / '001'


def test_what_was_computed_is_found_again(tmp_path, capsys):
  """Catches hours of runs without a word, or again under a key's new name."""
  ws, calls = Workspace(tmp_path, 'quick'), []
  compute = lambda: calls.append(1) or {'n': len(calls)}
  assert ws.cached('a', {'x': (1, 2)}, compute) == {'n': 1}
  assert ws.cached('a', {'x': [1, 2]}, compute) == {'n': 1}
  with pytest.raises(ValueError, match='fields'):
    ws.cached('a', {'x': [1, 3]}, compute)
  assert len(calls) == 1
  assert capsys.readouterr().err == f'Computing {ws.folder}/runs/a.json\n'


@pytest.mark.parametrize(('grid', 'best', 'tuned', 'beyond'), [
  ((0.01, 0.03, 0.1), 0.03, 0.03, []),
  ((0.01, 0.03, 0.1), 0.3, 0.3, ['a-0.3', 'a-1']),
  ((0.01, 0.03, 0.1), 0.0, 0.0003, ['a-0.003', 'a-0.001', 'a-0.0003']),
  ((0.02, 0.05), 0.12, 0.125, ['a-0.125', 'a-0.312']),
  ((0.02,), 0.0632, 0.0632, ['a-0.0632', 'a-0.2']),
  ((0.01, 0.03, 0.1), -np.inf, 0.0003, ['a-0.003', 'a-0.001', 'a-0.0003']),
])  # fmt: skip
def test_a_grid_goes_on_where_the_best_is_at_its_edge(
  tmp_path, grid, best, tuned, beyond
):
  """Catches rates off the half decades, and one that diverges and is taken."""

  class MadeUp(Workspace):
    def sweep(self, name, config):
      self.configs[name] = config
      swept = config['sweep']['client_lr']
      return [PointRun({'values': {'client_lr': x}}, tmp_path) for x in swept]

  ws = MadeUp(tmp_path)
  score = lambda run: -abs(run.values['client_lr'] - best)
  rates = {'client_lr': grid}
  assert ws.tune('a', {'rounds': 3}, rates, score) == {'client_lr': tuned}
  assert [*ws.configs] == ['a', *beyond]
  assert all(config['rounds'] == 3 for config in ws.configs.values())


def test_runs_tell_where_they_reach_a_target(tmp_path):
  row = lambda i: {
    'round': i, 'total_uplink_bytes': 10 * i, 'total_downlink_bytes': 5 * i,
    'test_accuracy': i / 10,
  }  # fmt: skip
  lines = [json.dumps(row(i)) + '\n' for i in range(5)]
  (tmp_path / 'metrics.jsonl').write_text(''.join(lines))
  run = PointRun({'values': {}, 'diverged': False}, tmp_path)
  assert run.reaches(0.3) == 30
  assert run.reaches(0.41) == math.inf
  assert run.reaches(0.3, x='total_bytes') == 45
  assert run.final(last=2) == pytest.approx(0.35)
  lost = PointRun({'values': {}, 'diverged': True}, tmp_path)
  assert math.isnan(lost.final())
