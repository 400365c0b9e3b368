"""The rows of the papers are complete, and no verdict is without evidence."""

import ast
import itertools
import pathlib
import re

from papers import catalog, recompute
from papers.common import inventory, results, statements, symbols, verdicts
import pytest

ROOT = pathlib.Path(__file__).parents[2]
STORED = [result for result, _ in catalog.stored_results()]
# How many rows the readers of the papers found; where ours differ, why.
COUNTS = {'S0': 145, 'S1': 80, 'S2': 107, 'S4': 134}
ROWS = {paper: inventory.read(paper).rows for paper in inventory.FOLDERS}
EVERY = [row for rows in ROWS.values() for row in rows]


@pytest.mark.parametrize('paper', ROWS)
def test_a_paper_has_all_its_rows(paper):
  """Catches a row that was lost or entered twice, and an unknown verdict."""
  rows = ROWS[paper]
  ids = [row.id for row in rows]
  assert len(ids) == COUNTS[paper] == len({*ids})
  assert all(row.id.startswith(f'{paper}-') and row.says for row in rows)
  assert {row.verdict for row in rows} <= {*inventory.VERDICTS}
  summary = inventory.read(paper).summary.strip()
  assert 8 <= len(summary.splitlines()) <= 12


def evidence(row):
  """Verdicts of claims for and against a row, and labels of its functions."""
  claims = [c['verdict'] for _, c in inventory.claims(row.claims, STORED)]
  against = [c['verdict'] for _, c in inventory.claims(row.against, STORED)]
  labels = [s.labels.get('printed') for s in inventory.functions(row)]
  return claims, against, labels


def is_supported(row):
  """Return whether the evidence of a row gives its verdict."""
  claims, against, labels = evidence(row)
  refuted = verdicts.FAILS in claims or verdicts.HOLDS in against
  if row.verdict == verdicts.HOLDS:
    holds = {*claims} <= {verdicts.HOLDS} and not refuted
    found = claims or any(labels) or row.tests
    return holds and 'wrong' not in labels and bool(found)
  if row.verdict == verdicts.FAILS:
    return refuted or bool(row.tests)
  if row.verdict == inventory.WRONG:
    return bool(row.why) and (refuted or 'wrong' in labels or bool(row.tests))
  return bool(row.why) and not refuted


@pytest.mark.parametrize('paper', ROWS)
def test_the_evidence_of_a_row_gives_its_verdict(paper):
  """Catches a verdict that its claims, functions and tests do not support."""
  rows = ROWS[paper]
  assert [row.id for row in rows if not is_supported(row)] == []
  assert [row.id for row in rows if 'not at hand' in row.why] == []


def test_every_statement_and_claim_belongs_to_a_row():
  """Catches a function or a claim of a paper's study that no row names."""
  named = {s.id for row in EVERY for s in inventory.functions(row)}
  assert named == {s.id for s in statements.statements()}
  used = {
    (study, claim['text'])
    for row in EVERY
    for study, claim in inventory.claims(row.claims + row.against, STORED)
  }
  apart = [name for paper in ROWS for name in inventory.read(paper).own]
  ours = {(study, c['text']) for study, c in inventory.claims(apart, STORED)}
  assert not ours & used
  own = [r for r in STORED if re.match(r'S\d-', r['name'])]
  assert {(r['name'], c['text']) for r in own for c in r['claims']} <= (
    used | ours
  )


@pytest.mark.parametrize('paper', ROWS)
def test_the_readme_of_a_paper_has_its_studies(paper):
  """Catches a study that is new, renamed or gone, and a count of statements."""
  folder = ROOT / 'papers' / inventory.FOLDERS[paper]
  text = (folder / 'README.md').read_text(encoding='utf-8')
  (arxiv,) = {*re.findall(r'arXiv:([\d.]+)', text)}
  own = {s.name for s in catalog.STUDIES.values() if arxiv in s.source}
  assert {*re.findall(r'fl-sketch reproduce ([\w-]+)', text)} == own
  labelled = [s.id[:2] for s in statements.statements()]
  count = re.search(r'has (\d+) as functions', text)
  assert count is not None
  assert int(count[1]) == labelled.count(paper)


def test_symbols_are_of_arguments_that_there_are():
  """Catches a symbol of a renamed argument, which the catalog would lose."""
  for paper, known in symbols.SYMBOLS.items():
    own = [s for s in statements.statements() if s.id.startswith(paper)]
    used = itertools.chain(*(symbols.names(s.function) for s in own))
    assert known.keys() <= {*used}


def test_the_tests_of_rows_are_there():
  """Catches a test that was renamed or deleted."""
  names = {name for row in EVERY for name in row.tests}
  for name in names:
    path, _, test = name.partition('::')
    tree = ast.parse((ROOT / path).read_text(encoding='utf-8'))
    assert test in [getattr(node, 'name', '') for node in tree.body], name


def test_a_script_of_its_own_decides_the_same():
  """Catches a verdict that the stored numbers do not give."""
  ours = [
    (r['name'], c['text'], c['relation'], c['verdict'])
    for r in STORED
    for c in r['claims']
    if c['verdict'] != verdicts.UNTESTABLE
  ]
  theirs = recompute.decide(results.STORED)
  found = [(n, c['text'], c['relation'], verdict) for n, c, verdict in theirs]
  assert sorted(found) == sorted(ours)
  assert len(found) >= 100
