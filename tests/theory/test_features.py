"""Every row of the inventory of the papers is covered by what there is.

The inventory itself is no part of the project: where it lies beside the
repository, the ids are compared with it.
"""

import ast
import functools
import pathlib
import re

from features import COVERAGE
from fl_sketch.reproduce import catalog
import pytest

TESTS = pathlib.Path(__file__).parents[1]
ROOT = TESTS.parent
INVENTORY = ROOT.parent / 'shared' / 'FEATURES.md'
NODE = re.compile(r'(test_\w+\.py)::(test_\w+)(?:\[(.+)\])?')
MODULE = re.compile(r'fl_sketch/[\w/]+\.py')
COMMAND = re.compile(
  r'python -m launch\.(\w+)(?: --config=(configs/\w+\.py)(?::\S+)?)?'
)
STUDY = re.compile(r'python -m launch\.reproduce ([\w.-]+)')


@functools.cache
def text_of(path):
  return path.read_text(encoding='utf-8') if path.is_file() else ''


@functools.cache
def functions(path):
  """The names of the functions that a module defines at its top."""
  nodes = ast.parse(text_of(path)).body
  return {n.name for n in nodes if isinstance(n, ast.FunctionDef)}


def parts(text):
  return set(re.findall(r'[^\W_]+', text))


@functools.cache
def names():
  """Of parameters, of which parts may be put together, and all in quotes."""
  texts = (text_of(p) for p in TESTS.rglob('*.py') if 'features' not in p.name)
  nodes = (node for text in texts for node in ast.walk(ast.parse(text)))
  found = (n.value for n in nodes if isinstance(n, ast.Constant))
  return parts(' '.join(x for x in found if isinstance(x, str)))


def fault(coverage):
  """Why a string names nothing that there is; None if it does."""
  if node := NODE.fullmatch(coverage):
    file, function, parameter = node.groups()
    if function not in functions(next(TESTS.rglob(file))):
      return f'no {function} in tests/{file}'
    unknown = parts(parameter or '') - names()
    return f'no parameter {unknown}' if unknown else None
  if MODULE.fullmatch(coverage):
    shown = '>>>' in text_of(ROOT / coverage)
    return None if shown else f'no doctest in {coverage}'
  if command := COMMAND.fullmatch(coverage):
    module, config = command.groups()
    files = [f'launch/{module}.py', *([config] if config else [])]
    missing = [file for file in files if not (ROOT / file).is_file()]
    return f'no {missing}' if missing else None
  if study := STUDY.fullmatch(coverage):
    return None if study[1] in catalog.STUDIES else 'no study of this name'
  return 'of no known form'


@pytest.mark.parametrize('paper', ['S0', 'S1', 'S2', 'S4'])
def test_every_row_names_what_covers_it(paper):
  rows = {k: v for k, v in COVERAGE.items() if k.startswith(f'{paper}-')}
  assert len(rows) > 10
  for identity, coverage in rows.items():
    assert coverage, identity
    assert isinstance(coverage, tuple), identity
    assert len(set(coverage)) == len(coverage), identity
    faults = {x: why for x in coverage if (why := fault(x))}
    assert not faults, identity
    studies = [x for x in coverage if STUDY.fullmatch(x)]
    assert all(x.endswith(f' {identity}') for x in studies), identity


def test_no_row_is_of_another_paper():
  assert {k.partition('-')[0] for k in COVERAGE} == {'S0', 'S1', 'S2', 'S4'}


@pytest.mark.parametrize(
  ('coverage', 'why'),
  [
    ('test_sketch_laws.py::test_linear', None),
    ('test_sketch_laws.py::test_linear[gaussian]', None),
    ('test_sketch_laws.py::test_linear[gaussien]', 'no parameter'),
    ('test_sketch_laws.py::test_linea', 'no test_linea in'),
    ('test_sketch_laws.py::linear', 'of no known form'),
    ('test_sketch_law.py::test_linear', 'no test_linear in'),
    ('tests/sketches/test_sketch_laws.py::test_linear', 'of no known form'),
    ('fl_sketch/sketches/base.py', None),
    ('fl_sketch/sketches/bases.py', 'no doctest in'),
    ('fl_sketch/py.typed', 'of no known form'),
    ('python -m launch.compare', None),
    ('python -m launch.account --config=configs/fashion_dp.py:quick', None),
    ('python -m launch.accounts --config=configs/fashion_dp.py', 'no '),
    ('python -m launch.account --config=configs/fashion.py', 'no '),
    ('python -m launch.account --workdir=DIR', 'of no known form'),
    ('python -m launch.reproduce S4-Fig1', None),
    ('python -m launch.reproduce S4-Fig7', 'no study of this name'),
    ('python -m launch.reproduce S4-Fig1:quick', 'of no known form'),
    ('', 'of no known form'),
  ],
)
def test_a_wrong_name_is_caught(coverage, why):
  found = fault(coverage)
  assert (found is None) == (why is None)
  assert why is None or (found or '').startswith(why)


@pytest.mark.skipif(not INVENTORY.exists(), reason=f'needs {INVENTORY}')
def test_rows_are_those_of_the_inventory_in_its_order():
  _, _, inventory = text_of(INVENTORY).partition('\n## 2. ')
  first = (
    line.split('|')[1].strip()
    for line in inventory.splitlines()
    if line.startswith('|')
  )
  ids = [cell for cell in first if cell != 'id' and cell.strip('-')]
  assert len(ids) > 100
  assert list(COVERAGE) == ids
