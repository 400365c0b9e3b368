"""Pages of the papers, and of the stored results of their experiments."""

import inspect
import itertools
import pathlib
import re
import shutil

from fl_sketch import algorithms
from papers import catalog as studies
from papers.common import (
  inventory,
  pages as texts,
  results,
  statements as catalog,
)

from generators import docstrings, pages

# By the key of `statements.PAPERS`: title, arXiv identifier, and what an
# algorithm's Source section calls it.
PAPERS = {
  'S0': (
    'Sketching for First Order Method: Efficient Algorithm for Low-Bandwidth '
    'Channel and Vulnerability', '2210.08371', 'Song, Wang, Yu, Zhang',
  ),
  'S1': (
    'On the Convergence of Differentially Private Federated Learning on '
    'Non-Lipschitz Objectives, and with Normalized Client Updates',
    '2106.07094', 'Das, Hashemi, Sanghavi, Dhillon',
  ),
  'S2': (
    'FedSKETCH: Communication-Efficient and Private Federated Learning via '
    'Sketching', '2008.04975', 'Haddadpour, Karimi, Li, Li',
  ),
  'S4': (
    'Sketched Adaptive Federated Deep Learning: A Sharp Convergence Analysis',
    '2411.06770', 'Chen, Li, Banerjee',
  ),
}  # fmt: skip


def write(folder: pathlib.Path):
  """Writes a page for each paper and each result, and both indices."""
  found = [result for result, _ in studies.stored_results()]
  _write_results(folder / 'results', found)
  for key, (title, arxiv, authors) in PAPERS.items():
    page = _paper(key, title, arxiv, authors, found)
    pages.save(folder / 'papers' / f'{_stem(key)}.rst', page)
  pages.save(folder / 'papers' / 'index.rst', _index(found))


_INDEX = """\
The page of a paper has its statements in the printed and in a corrected form,
where our algorithms depart from it, and its experiments. *Statements* counts
the printed forms by label: they hold, are loose, are known up to a constant
(order), or are wrong. *Claims measured* counts the verdicts on the claims of
its :doc:`studies </generated/results/index>`.
"""
_OWN = """\
Experiments that no paper made, with the verdicts on their claims:
"""


def _index(found: list[results.Result]) -> str:
  """The page of all papers, with counts from registry and stored verdicts."""
  rows = []
  for key, (title, arxiv, authors) in PAPERS.items():
    (text,) = (t for t in _readmes() if f'arXiv:{arxiv}' in t)
    claims = text.partition('**The paper claims** ')[2].partition('\n\n')[0]
    own = [s for s in catalog.statements() if s.id.startswith(key)]
    labels = [s.labels['printed'] for s in own if 'printed' in s.labels]
    counts = ', '.join(f'{labels.count(x)} {x}' for x in sorted({*labels}))
    counts = counts.replace('holds', 'hold')
    measured = texts.summary(r for r in found if arxiv in r['source'])
    link = f':doc:`{title} <{_stem(key)}>`'
    source = f'{authors}, `arXiv:{arxiv} <https://arxiv.org/abs/{arxiv}>`__'
    rows.append((f'{link}. {source}', claims, counts, measured))
  own = []
  for text in (t for t in _readmes() if '**The paper claims**' not in t):
    named = {r['name']: r for r in found if f'| {r["name"]} |' in text}
    links = ', '.join(f':doc:`/generated/results/{name}`' for name in named)
    title = text.partition('\n')[0].removeprefix('# ')
    own.append((title, links, texts.summary(named.values())))
  head = 'paper', 'claims', 'statements', 'claims measured'
  parts = [
    pages.title('Papers'), _INDEX, pages.table(head, rows, '32 38 14 16'),
    pages.title('Studies of this project', '-'), _OWN,
    pages.table(('question', 'studies', 'claims measured'), own),
    pages.toctree(map(_stem, PAPERS), 'hidden'),
  ]  # fmt: skip
  return '\n'.join(parts)


def _readmes() -> list[str]:
  folders = pathlib.Path(studies.__file__).parent
  files = sorted(folders.glob('*/README.md'))
  return [path.read_text(encoding='utf-8') for path in files]


def _doc(function) -> str:
  return inspect.getdoc(function) or ''


def _stem(key: str) -> str:
  return catalog.PAPERS[key].lower()


def _write_results(folder: pathlib.Path, found: list[results.Result]):
  for result in found:
    pages.save(folder / f'{result["name"]}.md', texts.text(result))
    for picture in result['pictures']:
      shutil.copy(results.STORED / picture['file'], folder)
  names = [result['name'] for result in found]
  parts = [
    pages.title('Results'),
    docstrings.markup(texts.INTRODUCTION) + '\n',
    f'{texts.totals(found)}\n',
    _studies(found),
    pages.toctree(names, 'hidden'),
  ]
  pages.save(folder / 'index.rst', '\n'.join(parts))


def _studies(found: list[results.Result]) -> str:
  return pages.table(
    ('study', 'what it shows', 'source', 'claims'),
    [
      (f':doc:`{r["name"]} </generated/results/{r["name"]}>`',
       r['title'], r['source'], texts.summary([r]))
      for r in found
    ],
  )  # fmt: skip


def _paper(key, title, arxiv, authors, found) -> str:
  statements = [s for s in catalog.statements() if s.id.startswith(key)]
  own = [r for r in found if arxiv in r['source']]
  parts = [
    pages.title(catalog.PAPERS[key]),
    f'{authors}: *{title}*, `arXiv:{arxiv} <https://arxiv.org/abs/{arxiv}>`__.\n',
    *_rows(key, found),
    pages.title('Algorithms', '-'), *_departures(authors),
    pages.title('Formulas', '-'), _LABELS, _statements(statements),
    pages.title('Corrections', '-'), *_corrections(statements),
    pages.title('Studies', '-'), _studies(own),
  ]  # fmt: skip
  return '\n'.join(parts)


_EXAMPLES = re.compile('>>>|(Args|Attributes|Returns|Raises):')
_LABELS = """\
Each statement is a function, in the form that the paper prints, in a corrected
form, or in both. *holds*: it is proven, and met by every measurement of the
tests. *loose*: the same, but it is orders of magnitude above what is measured.
*order*: it is known up to a constant that the paper does not name. *wrong*: it
does not hold or cannot be met, which a test shows.
"""


def _statements(statements) -> str:
  rows = []
  for s in statements:
    what = docstrings.markup(_doc(s.function)).partition('\n\n')[0]
    link = pages.object_link(s.function.__name__, s.function)
    place = s.source.partition(', ')[2]
    labels = [s.labels.get(form, '') for form in catalog.FORMS]
    symbols = s.symbols.replace('|', '\\|')
    rows.append((s.id, place, f'{link}: {what}', *labels, symbols))
  head = ('id', 'place', 'statement', *catalog.FORMS, 'symbols')
  return pages.table(head, rows)


_VERDICTS = """\
A sentence about experiments is judged by its worst cell, in the nearest
setting that runs here; its evidence names that setting, and a larger model may
behave otherwise. *wrong as printed*: a counterexample or the algebra refutes a
formula, and the evidence has what is right. *undecided*: the interval contains
the bound, and the evidence has what would decide it. *not checkable*: no run or
proof can decide it. Numbers in brackets are intervals of 95 %. Symbols are the
paper's; like clients have one distribution of data, unlike clients their own.
"""


def _rows(key, found) -> list[str]:
  """The summary of a paper, and a table of verdicts for each of its parts."""
  paper = inventory.read(key)
  lines = docstrings.markup(paper.summary).strip().splitlines()
  summary = '\n'.join(f'* {line}' for line in lines)
  parts = [pages.title('What to believe of it', '-'), f'{summary}\n']
  parts.append(f'{len(paper.rows)} statements: {paper.counts()}.\n')
  parts.append(_VERDICTS)
  for part in paper.parts:
    rows = [
      (
        row.id,
        docstrings.markup(row.place),
        docstrings.markup(row.says),
        f'**{row.verdict}**',
        _evidence(row, found),
      )
      for row in part.rows
    ]
    head = 'id', 'place', 'what the paper says', 'verdict', 'evidence'
    table = pages.table(head, rows, '10 14 32 10 34')
    parts += [pages.title(part.title, '-'), table]
  if paper.own:
    said = [_claimed(name, c) for name, c in inventory.claims(paper.own, found)]
    title = pages.title('Claims of this project, not of the paper', '-')
    parts += [title, '\n'.join(f'* {x}' for x in said) + '\n']
  return parts


def _claimed(study, claim, word='') -> str:
  """A claim with its numbers and verdict, and a link to its study."""
  return (
    f':doc:`{study} </generated/results/{study}>`: {word}'
    f'{docstrings.markup(claim["text"])}: {texts.measured(claim)}, '
    f'{claim["verdict"]}.'
  )


def _evidence(row: inventory.Row, found) -> str:
  """Why a row has its verdict: words, claims with numbers, formulas, tests."""
  parts = [docstrings.markup(row.why)] if row.why else []
  for names, word in ((row.claims, ''), (row.against, 'against it: ')):
    parts += [_claimed(*x, word) for x in inventory.claims(names, found)]
  functions = inventory.functions(row)
  links = [
    pages.object_link(s.function.__name__, s.function) for s in functions
  ]
  links += [f'``{name.rpartition("::")[2]}``' for name in row.tests]
  return ' '.join([*parts, ', '.join(links)])


def _corrections(statements) -> list[str]:
  """What the docstring of a wrong statement says, without its examples."""
  parts = []
  for s in statements:
    if s.labels.get('printed') != 'wrong':
      continue
    sections = _doc(s.function).split('\n\n')
    prose = itertools.takewhile(lambda x: not _EXAMPLES.match(x), sections)
    link = pages.object_link(s.function.__name__, s.function)
    text = docstrings.markup('\n\n'.join(prose))
    place = s.source.partition(', ')[2]
    parts.append(f'**{s.id}**, {place}, {link}. {text}\n')
  return parts


def _departures(authors: str) -> list[str]:
  """What differs from the paper, of every algorithm that has it as source."""
  parts = []
  for name in algorithms.names():
    factory = algorithms.entry(name).factory
    sections = _doc(factory).split('\n\n')
    source = [s for s in sections if s.startswith('Source:')]
    if any(authors in ' '.join(s.split()) for s in source):
      text = [s for s in sections if s.startswith('Departures:')]
      parts += [f'{pages.object_link(name, factory)}\n']
      parts += [f'{docstrings.markup(part)}\n' for part in source + text]
  return parts
