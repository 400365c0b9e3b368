"""Numbers in the README are those of stored results; guides have none."""

import re

from fl_sketch.experiment import config
from fl_sketch.utils import markdown
from papers import catalog
from papers.common import pages
from papers.one_percent import runs as races
import pytest
from runs import ROOT

from tests.docs import test_documents as documents

README = ROOT / 'README.md'
KEPT = {result['name']: result for result, _ in catalog.kept()}
LENET = KEPT['One-Percent-MNIST']
TABLES = 'One-Percent', 'Language-Scratch'  # in the order of the README
SHARES = {'d': 1.0, 'd / 100': 0.01, 'd / 1,000': 0.001}
LOGGED = 'checkpoint_every', 'eval_every', 'rounds_per_dispatch'
VERDICTS = pages.summary([KEPT[n] for n in catalog.STUDIES if n in KEPT])
# Numbers of the README that nobody measured, and where they are from.
STATED = {
  '50': 'MNIST', '25': 'MNIST', '300': 'MNIST', '28': 'its table',
  '3.11': 'pyproject.toml', '3.13': 'pyproject.toml', '0.10': 'tests',
  '29': 'lines of a guide',
  '2.0': 'the licence', '5': 'LeNet-5', '8': 'ResNet-8', '2': 'SST-2',
  '10': 'CIFAR-10', '2026': 'when others were read',
}  # fmt: skip
MEASURED = re.compile(r'\d\s?(%|ms|MB|GiB|MiB|points?|times)(?![\w-])')


def rows(name):
  """A table of the README, that of a stored result."""
  text = README.read_text()
  tables = re.findall(r'^\| method .*?\n\n', text, re.M | re.S)
  assert len(tables) == len(TABLES)
  return markdown.cells(tables[TABLES.index(name)])


@pytest.mark.parametrize('name', TABLES)
def test_a_table_is_of_the_stored_result(name):
  """Catches a number that was typed, and one of an earlier run."""
  (stored,) = KEPT[name]['tables']
  head, *shown = rows(name)
  assert len(shown) >= 10
  assert head == stored['head']
  assert [row for row in stored['rows'] if row in shown] == shown


def test_a_command_is_of_the_config_behind_its_row():
  """Catches a command that trains something else than a row of LeNet-5."""
  blocks = documents.blocks(README, '')
  (block,) = [body for body in blocks if 'One-Percent' in body]
  joined = re.sub(r'\\\n\s*', '', block)
  lines = [line for line in joined.splitlines() if ' train ' in line]
  named = {', '.join(row[:2]): row for row in rows('One-Percent')[1:]}
  for line in lines:
    name, up, *_ = named[line.partition('# ')[2].strip()]
    folder = races.folder_of('mnist', name, SHARES[up], 300)
    fields = LENET['configs'][f'{folder}/race'] | {'sweep': None}
    wanted = config.Config.from_mapping(fields)
    found = documents.checked_config(documents.parsed(line))
    for field in LOGGED:
      object.__setattr__(found, field, getattr(wanted, field))
    assert found == wanted, line
  assert len(lines) >= 4


def test_the_verdicts_are_those_of_the_page():
  """Catches a study that was played again, whose verdicts have changed."""
  assert f'rate, {VERDICTS}.' in ' '.join(README.read_text().split())


def test_every_other_number_of_the_readme_has_a_source():
  """Catches a measured number in a sentence, which nothing would compare."""
  text = re.sub(r'^```.*?^```', '', README.read_text(), flags=re.M | re.S)
  text = re.sub(r'^\|.*$', '', text, flags=re.M)  # the tables
  text = re.sub(r'\[[^\]]*\]\([^)]*\)|`[^`]*`', '', text)
  text = ' '.join(text.split()).replace(VERDICTS, '')
  found = set(re.findall(r'\d+(?:[.,]\d+)*', text))
  assert found <= set(STATED), found - set(STATED)


@pytest.mark.parametrize('path', documents.PAGES[1:], ids=documents.name_of)
def test_a_guide_has_no_measured_number(path):
  """Catches a number that goes stale: they belong to results."""
  text = re.sub(r'^```.*?^```', '', path.read_text(), flags=re.M | re.S)
  assert not [m[0] for m in MEASURED.finditer(text)]
