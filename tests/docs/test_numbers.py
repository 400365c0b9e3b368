"""Numbers in the README are those of stored results; guides have none."""

import collections
import re

from fl_sketch.utils import markdown
from generators import accountants, papers
from harness import ROOT
from papers import catalog
from papers.compressors import study
import pytest

from tests.docs import test_documents as documents

README = ROOT / 'README.md'
KEPT = {result['name']: result for result, _ in catalog.stored_results()}
# Of the tables of the README; two may stand side by side.
STUDIES = ('Federated-Clothes', 'Federated-Digits'), ('Workers-Characters',)
# 1 % is the size of a sketch and 95 % that of intervals, which are chosen.
MEASURED = re.compile(
  r'(?!\b(1|95) %)\b\d+\s?(%|ms|MB|GiB|MiB|points?|times)(?![\w-])'
)
COMPARED = {*accountants.counts()}  # lines of a guide


def rows_of(name):
  """The rows of the README's table of a study."""
  text = re.sub('^```.*?^```', '', README.read_text(), flags=re.M | re.S)
  found = re.findall(r'^\| method.*?\n\n', text, re.M | re.S)
  pairs = zip(STUDIES, map(markdown.cells, found), strict=True)
  (table,) = (table for names, table in pairs if name in names)
  return table[1:]


def measured(name, title):
  """Times fewer bytes, the error, how far above dense, and the verdict."""
  by_bytes, by_error = KEPT[name]['tables'][:2]
  of_row = lambda row: study.title((row[0], float(row[1])))
  (times,) = [row[4] for row in by_bytes['rows'] if of_row(row) == title]
  (error,) = [row[1:3] for row in by_error['rows'] if row[0] == title]
  claim = f' of {title} above that of the best dense method'
  words = [c['verdict'] for c in KEPT[name]['claims'] if claim in c['text']]
  return [times, *error, *(words or [''])]


@pytest.mark.parametrize('names', STUDIES)
def test_a_table_is_of_its_stored_results(names):
  """Catches a number that was typed, and one of an earlier run."""
  for title, *row in rows_of(names[0]):
    assert row == [cell for name in names for cell in measured(name, title)]


@pytest.mark.parametrize('name', [name for names in STUDIES for name in names])
def test_a_table_has_the_best_of_any_size(name):
  """Catches a table that leaves out a rival with less error and fewer bytes."""
  every = [row[0] for row in KEPT[name]['tables'][1]['rows']]
  size = lambda title: float(measured(name, title)[0].replace(',', ''))
  error = lambda title: float(measured(name, title)[1].split()[0])
  shown = [title for title, *_ in rows_of(name)]
  for title in every:
    fewer = [x for x in shown if size(x) >= size(title)]
    assert error(title) > 50 or min(map(error, fewer), default=100) <= error(
      title
    ), title


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
