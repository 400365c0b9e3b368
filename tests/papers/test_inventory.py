"""Every row of the inventory of the papers is covered by what there is."""

import itertools
import pathlib
import re

import inventory
from papers import catalog
from papers.common import statements, symbols
import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAPERS = {'song': 'S0', 'das': 'S1', 'haddadpour': 'S2', 'chen': 'S4'}


def test_every_row_is_covered_and_no_other():
  coverage = inventory.coverage()
  assert list(coverage) == inventory.ROWS
  for row, names in coverage.items():
    assert names, row
    assert len(set(names)) == len(names), row
  assert all('.py::test_' in name for _, name in inventory.marks())


@pytest.mark.parametrize('paper', PAPERS)
def test_the_readme_of_a_paper_has_its_studies(paper):
  """Catches a study that is new, renamed or gone, and a count of statements."""
  text = (ROOT / 'papers' / paper / 'README.md').read_text(encoding='utf-8')
  (arxiv,) = {*re.findall(r'arXiv:([\d.]+)', text)}
  own = [s.name for s in catalog.STUDIES.values() if arxiv in s.source]
  assert sorted(re.findall(r'fl-sketch reproduce ([\w-]+)', text)) == sorted(
    own
  )
  labelled = [s.id[:2] for s in statements.statements()]
  count = re.search(r'has (\d+) as functions', text)
  assert count is not None
  assert int(count[1]) == labelled.count(PAPERS[paper])


def test_what_has_no_function_is_no_statement():
  """Catches a place that is entered twice, and a line that says no reason."""
  entered = {s.source for s in statements.statements()}
  for key, places in statements.WITHOUT.items():
    assert entered.isdisjoint(f'{statements.PAPERS[key]}, {x}' for x in places)
    why = ' '.join(places.values())
    assert len(re.findall('textbook:|not at hand', why)) == len(places)


def test_symbols_are_of_arguments_that_there_are():
  """Catches a symbol of a renamed argument, which the catalog would lose."""
  for paper, known in symbols.SYMBOLS.items():
    own = [s for s in statements.statements() if s.id.startswith(paper)]
    used = itertools.chain(*(symbols.names(s.function) for s in own))
    assert known.keys() <= {*used}


def test_commands_and_modules_are_there():
  for name in inventory.OTHERS:
    files = re.findall(r'[\w/]+\.py', name)
    files += [f'launch/{x}.py' for x in re.findall(r'launch\.(\w+)', name)]
    assert files, name
    assert all((ROOT / file).is_file() for file in files), name
