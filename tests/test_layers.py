"""Imports point one way, modules import alone, type hints resolve."""

import ast
import functools
import importlib
import inspect
import pathlib
import subprocess
import sys
import typing

import pytest

ROOT = pathlib.Path(__file__).parents[1]
TOPS = ('fl_sketch', 'papers', 'benchmarks', 'configs', 'notebooks', 'launch')
# fl_sketch.configs, ... in the wheel.
RENAMED = ('papers', 'benchmarks', 'configs', 'launch')
# Lowest first. A room imports itself and rooms of lower layers; rooms of one
# layer do not import one another. The last is fl_sketch/__init__.py.
LAYERS = (
  ('utils',),
  ('accounting', 'sketches'),
  ('codecs', 'models'),
  ('rounds',),
  ('data', 'privacy'),
  ('local',),
  ('algorithms',),
  ('attacks', 'distributed', 'runs'),
  ('sites',),
  ('papers', 'benchmarks', 'configs', 'notebooks'),
  ('launch',),
  ('fl_sketch',),
)
LAYER = {room: i for i, layer in enumerate(LAYERS) for room in layer}
ACCOUNTING = (ROOT / 'fl_sketch/accounting').glob('[!_]*.py')
ACCOUNTANT = ', '.join(sorted(path.stem for path in ACCOUNTING))


def room_of(name: str) -> str:
  """The room of a dotted name: a package of fl_sketch, or a top level."""
  top, *rest = name.split('.')
  return rest[0] if top == 'fl_sketch' and rest and rest[0] in LAYER else top


def modules() -> dict[str, pathlib.Path]:
  """Every module of the repository, tests excepted, and its file."""
  paths = (p for top in TOPS for p in sorted((ROOT / top).rglob('*.py')))
  relative = {path.relative_to(ROOT).with_suffix(''): path for path in paths}
  return {
    '.'.join(r.parts).removesuffix('.__init__'): path
    for r, path in relative.items()
  }


def imports_of(source: str, module: str = '') -> set[str]:
  """Dotted names that a module imports anywhere, functions included."""
  names, neighbours, top = set(), set(), module.split('.')[0]
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, ast.Import):
      names |= {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom):
      inside = module.count('.') if top in RENAMED else 0
      assert node.level <= max(inside, top in RENAMED), 'imports are absolute'
      found = names if node.level == 0 else neighbours
      base = [part for part in (node.level and top, node.module) if part]
      found |= {'.'.join([*base, alias.name]) for alias in node.names}
  names = {name for name in names if name.split('.')[0] in TOPS}
  if top in RENAMED:
    assert {*map(room_of, names)}.isdisjoint(RENAMED), 'imports are relative'
  return names | neighbours


@functools.cache
def graph() -> dict[str, set[str]]:
  """What each module imports."""
  inside = {'__init__': '.__init__'}
  return {
    name: imports_of(p.read_text(), name + inside.get(p.stem, ''))
    for name, p in modules().items()
  }


def against_the_direction(imports: dict[str, set[str]]) -> list[str]:
  """The imports of {module: imported names} that no lower layer serves."""
  return [
    f'{module} -> {name}'
    for module, names in imports.items()
    for name in sorted(names)
    if room_of(name) != room_of(module)
    and LAYER[room_of(name)] >= LAYER[room_of(module)]
  ]


def test_imports_point_to_lower_layers():
  """Catches a circle of rooms: in strict layers there is none."""
  assert not against_the_direction(graph())


@pytest.mark.parametrize(('module', 'code'), [
  ('rounds.round', 'def f():\n  from fl_sketch.privacy import clipping'),
  ('rounds.traffic', 'from fl_sketch.data import availability'),
  ('rounds.comms', 'if TYPE_CHECKING:\n  from fl_sketch import runs'),
  ('models.networks', 'from fl_sketch.codecs import base'),
  ('runs.plan', 'from fl_sketch.papers import catalog'),
])  # fmt: skip
def test_an_arrow_against_the_direction_is_reported(module, code):
  """Negative control: the check sees lazy, typed, and same-layer imports."""
  module = f'fl_sketch.{module}'
  imports = graph()[module] | imports_of(code)
  (arrow,) = against_the_direction(graph() | {module: imports})
  assert arrow.startswith(f'{module} -> ')


def test_rooms_are_packages_and_few():
  folder = ROOT / 'fl_sketch'
  files = {path.stem for path in folder.glob('*.py')} - {'__init__'}
  rooms = {path.parent.name for path in folder.glob('*/__init__.py')}
  assert rooms | set(TOPS) == set(LAYER)
  assert len(rooms) <= 25
  assert len(files) <= 2


# Forks a process that has loaded the libraries, once a module, so that every
# module is the first of fl_sketch to load.
ALONE = """
import os, sys
import absl.app, flax.linen, jax, matplotlib.pyplot, ml_collections, numpy
import optax, orbax.checkpoint, scipy.stats
for name in sys.argv[1:]:
  assert not [m for m in sys.modules if m.startswith('fl_sketch')]
  child = os.fork()
  if not child:
    __import__(name)
    os._exit(0)
  if os.waitpid(child, 0)[1]:
    sys.exit(f'{name} does not import alone')
"""


@pytest.mark.long
def test_every_module_imports_alone():
  """Catches imports that only work in one order; notebooks would play."""
  names = [name for name in modules() if room_of(name) != 'notebooks']
  command = [sys.executable, '-W', 'ignore', '-c', ALONE, *names]
  done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
  assert not done.returncode, done.stderr


@pytest.mark.representatives('fl_sketch', 'accountant', 'sites')
@pytest.mark.parametrize(('code', 'absent'), [
  pytest.param('import fl_sketch', 'jax matplotlib', id='fl_sketch'),
  pytest.param(f'from fl_sketch.accounting import {ACCOUNTANT}\n'
    'gaussian.gaussian_epsilon(1.0, 1e-5)', 'jax dp_accounting',
    id='accountant'),
  pytest.param('import fl_sketch.rounds',
    'fl_sketch.algorithms fl_sketch.privacy', id='rounds'),
  pytest.param('from fl_sketch.sites import flower, nvflare, site_process',
    'jax numpy tqdm', id='sites'),
  pytest.param('from fl_sketch.runs import loaded, loop',
    'matplotlib pandas', id='runs'),
])  # fmt: skip
def test_a_package_loads_only_what_it_needs(code, absent):
  loaded = f'set({absent.split()}) & set(sys.modules)'
  check = f'{code}\nimport sys\nassert not {loaded}, {loaded}'
  subprocess.run([sys.executable, '-c', check], check=True, cwd=ROOT)


def test_every_package_has_the_names_that_it_exports():
  """Catches an export whose module has moved."""
  for name, path in modules().items():
    if path.stem == '__init__' and name.startswith('fl_sketch'):
      package = importlib.import_module(name)
      for public in getattr(package, '__all__', ()):
        assert getattr(package, public)
      assert not hasattr(package, 'absent')


def annotated(module):
  """The public functions, classes and methods that a module defines."""
  for name, value in vars(module).items():
    value = inspect.unwrap(value) if callable(value) else value
    if getattr(value, '__module__', None) != module.__name__:
      continue
    if name.startswith('_') or not hasattr(value, '__annotations__'):
      continue
    yield value
    if inspect.isclass(value):
      yield from filter(inspect.isfunction, vars(value).values())


def test_type_hints_resolve():
  """Catches names of annotations that only a type checker can see."""
  failures = []
  for name in modules():
    if not name.startswith('fl_sketch'):
      continue  # flags are defined once, and notebooks play
    for value in annotated(importlib.import_module(name)):
      try:
        typing.get_type_hints(value)
      except NameError as error:
        failures.append(f'{name}.{value.__qualname__}: {error}')
  assert not failures
