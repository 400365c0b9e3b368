"""Numbers in the README are those of stored results; guides have none."""

import collections
import re

from fl_sketch.runs import config, figures
from fl_sketch.utils import markdown
from generators import accountants, papers
from harness import ROOT
from papers import catalog
from papers.common import results
from papers.common.workspace import Workspace
from papers.trained import methods, overview, runs as trained
import pytest

from tests.docs import test_documents as documents

README = ROOT / 'README.md'
KEPT = {result['name']: result for result, _ in catalog.stored_results()}
LENET = KEPT['Trained-Digits']
LOGGED = 'checkpoint_every', 'eval_every', 'rounds_per_dispatch'
COMMAND = 'preconditioned momentum, one bit both ways'  # of the README
# 1 % is the size of a sketch and 95 % that of intervals, which are chosen.
MEASURED = re.compile(
  r'(?!\b(1|95) %)\b\d+\s?(%|ms|MB|GiB|MiB|points?|times)(?![\w-])'
)
COMPARED = {*accountants.counts()}  # lines of a guide


def tables():
  """The tables of the README by the studies that made them, heads first."""
  text = re.sub('^```.*?^```', '', README.read_text(), flags=re.M | re.S)
  found = re.findall(r'^\| method .*?\n\n', text, re.M | re.S)
  names = 'Language-Scratch', 'Trained'
  return dict(zip(names, map(markdown.cells, found), strict=True))


@pytest.mark.parametrize(('name', 'columns'), [
  ('Language-Scratch', (0, 1, 2, 6)), ('Trained', (0, 2, 3, 4, 5, 6)),
])  # fmt: skip
def test_a_table_is_of_its_stored_result(name, columns):
  """Catches a number that was typed, and one of an earlier run."""
  (stored,) = KEPT[name]['tables']
  wanted = [[r[i] for i in columns] for r in (stored['head'], *stored['rows'])]
  for row in tables()[name]:
    assert row in wanted


def test_the_overview_is_of_the_stored_tasks():
  """Catches a table or figure of all tasks that is older than theirs."""
  made = overview.overview(Workspace(results.STORED))
  (table,), (picture,) = made.tables, made.pictures
  stored = KEPT['Trained']
  assert stored['tables'][0]['head'] == table.head
  assert stored['tables'][0]['rows'] == table.rows
  assert stored['pictures'][0]['panels'] == figures.as_json(picture.panels)


def test_the_page_of_the_papers_counts_the_stored_verdicts():
  """Catches a paper without its claims, and counts that somebody typed."""
  found = [result for result, _ in catalog.stored_results()]
  page = papers._index(found)
  rows = page.partition('Studies of')[0].split('   * - ')[2:]
  for row, (title, arxiv, _) in zip(rows, papers.PAPERS.values(), strict=True):
    first, _, _, measured = row.strip().split('\n     - ')
    assert title in first
    own = [c for r in found if arxiv in r['source'] for c in r['claims']]
    holding = sum(claim['verdict'] == 'holds' for claim in own)
    assert measured.startswith(f'{holding} hold')


def test_the_rival_is_the_best_at_few_bytes():
  """Catches a table that leaves out a rival that is better on a task."""
  (stored,) = KEPT['Trained']['tables']
  rivals = {n for n, m in methods.METHODS.items() if m.kind == 'rival'}
  fewer = lambda row: float(row[3].split()[0].replace(',', ''))
  few = [r for r in stored['rows'] if r[0] in rivals and fewer(r) >= 20]
  shown = {row[0] for row in tables()['Trained'][1:]}
  for column, title in enumerate(stored['head'][4:], start=4):
    sign = 1 if 'nats' in title else -1
    found = {sign * float(r[column].split()[0]): r[0] for r in few if r[column]}
    assert not found or found[min(found)] in shown


def test_a_command_is_of_the_config_behind_its_row():
  """Catches a command that trains something else than its row of LeNet-5."""
  blocks = '\n'.join(documents.blocks(README, ''))
  (line,) = [x for x in blocks.splitlines() if ' train mnist' in x]
  record = trained.name_of('digits', COMMAND, 0.01)
  fields = LENET['configs'][record]['config'] | LENET['seeds'][record]['tuned']
  momentum = {'client_momentum': fields.pop('momentum')}
  fields['options'] = fields['options'] | momentum
  wanted = config.Config.from_mapping(fields)
  found = documents.checked_config(documents.parsed(line))
  for field in LOGGED:
    object.__setattr__(found, field, getattr(wanted, field))
  assert found == wanted


def test_the_readme_is_read_in_one_sitting():
  """Catches a README that grows, and a screen without a command to try."""
  lines = README.read_text().splitlines()
  assert len(lines) <= 120
  assert 'fl-sketch train quickstart --baseline' in lines[:25]


@pytest.mark.parametrize('path', documents.PAGES, ids=documents.name_of)
def test_no_sentence_has_a_measured_number(path):
  """Catches a number that goes stale: they belong to results and tables."""
  text = re.sub(r'^```.*?^```', '', path.read_text(), flags=re.M | re.S)
  table = '|' if path == README else '\0'  # which another test compares
  lines = [x for x in text.splitlines() if not x.startswith(table)]
  text = '\n'.join(x for x in lines if x not in COMPARED)
  assert not [m[0] for m in MEASURED.finditer(text)]


def test_the_comparison_of_accountants_is_of_its_stored_epsilons():
  """Catches a figure of the reviewers' page that its table does not give."""
  text = (ROOT / 'docs/concepts/privacy_review.md').read_text()
  assert COMPARED <= {*text.splitlines()}
  rows = accountants.rows()
  methods = collections.Counter(row['sampling'] for row in rows)
  assert f'{len(rows)} settings' in text
  assert f'{methods["poisson"]} with Poisson sampling' in text
  assert f'{methods["truncated_poisson"]} truncated' in text
  known = {(row['ours'], row['1e-4']) for row in rows}
  shown = re.findall(r'^\| [\d.]+, .* \| (\S+) \| (\S+) \|$', text, re.M)
  assert len(shown) == 2
  assert known.issuperset(shown)


def test_a_picture_with_bands_says_what_they_are():
  """Catches a band or bar that its caption does not explain."""
  pictures = [p for result in KEPT.values() for p in result['pictures']]
  for picture in pictures:
    lines = [x for panel in picture.get('panels', ()) for x in panel['lines']]
    bands = any('low' in line for line in lines)
    assert not bands or 'interval' in picture['caption'], picture['caption']
