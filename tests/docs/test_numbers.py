"""Numbers in the README are those of stored results; guides have none."""

import re

from fl_sketch.experiment import config
from fl_sketch.reporting import intervals
from fl_sketch.utils import markdown
import numpy as np
from papers import catalog
from papers.one_percent import runs as races
import pytest
from runs import ROOT

from tests.docs import test_documents as documents

README = ROOT / 'README.md'
KEPT = {result['name']: result for result, _ in catalog.stored_results()}
LENET = KEPT['One-Percent-MNIST']
SHARES = {'d': 1.0, 'd / 100': 0.01, 'd / 1,000': 0.001}
LOGGED = 'checkpoint_every', 'eval_every', 'rounds_per_dispatch'
COMMAND = 'preconditioned momentum, one bit both ways'  # of the README
# Numbers of the README that nobody measured, and where they are from.
STATED = {
  '3.11': 'pyproject.toml', '3.13': 'pyproject.toml', '0.10': 'tests',
  '2.0': 'the licence', '5': 'LeNet-5', '8': 'ResNet-8', '2': 'SST-2',
  '10': 'CIFAR-10', '40': 'the quickstart', '300': 'the quickstart',
  '95': 'intervals', '20': 'seeds', '49': 'its row', '10,000': 'ResNet-8',
}  # fmt: skip
# 1 % is the size of a sketch, which is chosen.
MEASURED = re.compile(
  r'(?!\b1 %)\b\d+\s?(%|ms|MB|GiB|MiB|points?|times)(?![\w-])'
)


def rows():
  """The rows of the README's table: of dense updates, and at a hundredth."""
  text = README.read_text()
  (table,) = re.findall(r'^\| method .*?\n\n', text, re.M | re.S)
  return markdown.cells(table)


def with_interval(accuracies):
  error = np.std(accuracies, ddof=1) / len(accuracies) ** 0.5
  width = intervals.half_width(error, len(accuracies))
  return f'{np.mean(accuracies):.2f} ± {width:.2f}'


def test_the_table_is_of_the_stored_result():
  """Catches a number that was typed, and one of an earlier run."""
  result = KEPT['One-Percent']
  (stored,) = result['tables']
  head, *shown = rows()
  assert head[2:] == stored['head'][3:]
  at_a_hundredth = {r[0]: r for r in stored['rows'] if r[1] != 'd / 1,000'}
  for method, share, *accuracies in shown:
    _, up, all_bytes, *_ = at_a_hundredth[method]
    digit = lambda found: f'{float(found[0]):.1f}'
    assert share == re.sub(r'\d\.\d+', digit, all_bytes)
    for task, accuracy in zip(head[2:], accuracies, strict=True):
      seeds = result['seeds'][task][f'{method}, {up}']
      many = method == 'FedAdam, dense' and task[:3] in ('Res', 'enc')
      assert len(seeds) == (20 if many else 5)
      assert accuracy == with_interval(seeds), (method, task)


def test_the_sentences_around_the_table_are_true():
  """Catches a count of methods or of images that the results do not have."""
  (stored,) = KEPT['One-Percent']['tables']
  methods = {row[0].removesuffix(', more rounds') for row in stored['rows']}
  assert (len(rows()) - 1, len(methods)) == (5, 15)
  assert 'Five of fifteen methods' in README.read_text()
  assert rows()[1][3].startswith('49.')
  for c in KEPT['One-Percent-ResNet']['configs'].values():
    seen = c['local_steps'] * c['batch_size'] * c['cohort'] * 300
    assert (c['train_slice'], round(seen / 1e4)) == ('0:10000', 10)


def test_no_address_of_the_project_is_made_up():
  """Catches an address that is nowhere else: install from folder or wheel."""
  for path in (README, ROOT / 'pyproject.toml', *ROOT.glob('notebooks/*.*')):
    own = re.search(r'git\+|git(hub|lab)\.\S*fl.sketch', path.read_text())
    assert not own, path


def test_the_page_of_the_papers_counts_the_stored_verdicts(monkeypatch):
  """Catches a paper without its claims, and counts that somebody typed."""
  monkeypatch.syspath_prepend(str(ROOT / 'docs'))
  from generators import papers

  found = [result for result, _ in catalog.stored_results()]
  page = papers._index(found)
  rows = page.partition('Studies of')[0].split('   * - ')[2:]
  for row, (title, arxiv, _) in zip(rows, papers.PAPERS.values(), strict=True):
    first, claims, counts, measured = row.strip().split('\n     - ')
    assert title in first
    assert len(claims) > 100
    assert re.match(r'\d+ hold, (\d+ \w+, )*\d+ wrong$', counts)
    own = [c for r in found if arxiv in r['source'] for c in r['claims']]
    holding = sum(claim['verdict'] == 'holds' for claim in own)
    assert measured.startswith(f'{holding} hold')
  assert 'results/Language-LoRA`' in page


def test_the_rivals_have_the_highest_mean_accuracy():
  """Catches a table that leaves out a method that is better than a rival."""
  (stored,) = KEPT['One-Percent']['tables']
  ours = 'FedAdam', 'SAFL', 'preconditioned'
  means = {
    row[0]: np.mean([float(cell.split(' ')[0]) for cell in row[3:]])
    for row in stored['rows']
    if row[1] == 'd / 100' and '' not in row and not row[0].startswith(ours)
  }
  best = sorted(means, key=lambda name: -means[name])[:2]
  assert [row[0] for row in rows()[3:5]] == best


def test_a_command_is_of_the_config_behind_its_row():
  """Catches a command that trains something else than its row of LeNet-5."""
  lines = [
    line
    for block in documents.blocks(README, '')
    for line in block.splitlines()
    if ' train mnist' in line
  ]
  assert len(lines) == 1
  folder = races.folder_of('mnist', COMMAND, SHARES['d / 100'], 300)
  fields = LENET['configs'][f'{folder}/race'] | {'sweep': None}
  wanted = config.Config.from_mapping(fields)
  found = documents.checked_config(documents.parsed(lines[0]))
  for field in LOGGED:
    object.__setattr__(found, field, getattr(wanted, field))
  assert found == wanted


def test_every_other_number_of_the_readme_has_a_source():
  """Catches a measured number in a sentence, which nothing would compare."""
  text = re.sub(r'^```.*?^```', '', README.read_text(), flags=re.M | re.S)
  text = re.sub(r'^\|.*$', '', text, flags=re.M)  # the table
  text = re.sub(r'\[[^\]]*\]\([^)]*\)|`[^`]*`', '', text)
  found = set(re.findall(r'\d+(?:[.,]\d+)*', ' '.join(text.split())))
  assert found <= set(STATED), found - set(STATED)


def test_the_readme_is_read_in_one_sitting():
  """Catches a README that grows, and a screen without a command to try."""
  lines = README.read_text().splitlines()
  assert len(lines) <= 120
  assert 'fl-sketch train quickstart' in lines[:25]


@pytest.mark.parametrize('path', documents.PAGES[1:], ids=documents.name_of)
def test_a_guide_has_no_measured_number(path):
  """Catches a number that goes stale: they belong to results."""
  text = re.sub(r'^```.*?^```', '', path.read_text(), flags=re.M | re.S)
  assert not [m[0] for m in MEASURED.finditer(text)]
