"""Pages of the papers, and of the stored results of their experiments."""

import inspect
import itertools
import pathlib
import re
import shutil

from fl_sketch import algorithms
from papers import catalog as studies
from papers.common import pages as texts, results, statements as catalog

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
  names = [_stem(key) for key in PAPERS]
  text = (
    'What each paper states, in its printed and in a corrected form, where our '
    'algorithms depart from it, and what its experiments gave.\n'
  )
  index = [pages.title('Papers'), text, pages.toctree(names)]
  pages.save(folder / 'papers' / 'index.rst', '\n'.join(index))


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
    f'In all: {texts.summary(found)}.\n',
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
    pages.title('Algorithms', '-'), *_departures(authors),
    pages.title('Statements', '-'), _LABELS, _statements(statements),
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
