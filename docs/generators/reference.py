"""Parts of reference pages: tables that are computed, and lists from code.

The pages include them: docs/reference/algorithms.md has
generated/parts/algorithms.md.
"""

import ast
import importlib
import inspect
import pathlib
import re
import textwrap

from absl import flags
from fl_sketch import algorithms, codecs, sketches
from fl_sketch.algorithms import server_optimizers
from fl_sketch.runs.fields import registries
from fl_sketch.utils import markdown
import launch
from launch import configs

from generators import config_fields, costs, docstrings, pages

ROOT = pathlib.Path(__file__).parents[2]
D = 1024  # coordinates, at which functions of d are shown
_OPTIONS = {  # of parts, where they have no default
  'size': 128, 'rows': 4, 'cols': 32, 'sparsity': 4, 'k': 32, 'levels': 7,
  'bits': 4, 'bucket': 32, 'bound': 3.0,
}  # fmt: skip


def write(folder: pathlib.Path):
  """Writes all parts."""
  parts = {
    'algorithms': _algorithms(),
    'sketches': _sketches(),
    'codecs': _codecs(),
    'config_fields': config_fields.experiment(),
    'options': _options(),
    'attack_fields': config_fields.attack(),
    'commands': _commands(),
    'configs': _configs(),
  }
  for name, text in parts.items():
    pages.save(folder / 'parts' / f'{name}.md', text + '\n')


def _entry(function) -> str:
  """The documentation of what has its entry on an API page, too."""
  name = f'{function.__module__}::{function.__name__}'
  kind = 'class' if inspect.isclass(function) else 'function'
  directive = f'```{{eval-rst}}\n.. auto{kind}:: {name}\n   :no-index:\n```\n'
  return f'## {function.__name__}\n\n{directive}'


def _algorithms() -> str:
  head, *rows = markdown.cells(costs.table())
  sent = [head.index(name) for name in ('algorithm', 'up', 'down', 'keys')]
  some = lambda row, places: [row[i] for i in places]
  held = [i for i in range(len(head)) if i not in sent]
  named = [[re.sub(r'\(.*\)', '', row[0]), *some(row, held)] for row in rows]
  # One table of all columns is wider than a page.
  parts = [
    markdown.table(some(head, sent), [some(row, sent) for row in rows]),
    'State, and what is held:\n',
    markdown.table(['algorithm', *some(head, held)], named),
  ]
  factories = [algorithms.entry(name).factory for name in algorithms.names()]
  return '\n'.join([*parts, *map(_entry, factories)])


def _examples(registry, *without: str) -> list:
  """One part of every factory."""
  options = lambda name: {o: _OPTIONS[o] for o in registry.required(name)}
  names = [name for name in registry.names() if name not in without]
  return [registry.make(name, **options(name)) for name in names]


def _entries(examples: list, module, *others: str) -> list[str]:
  """The documentation of the classes of examples, and of other functions."""
  classes = dict.fromkeys(map(type, examples))
  return [_entry(f) for f in (*classes, *(getattr(module, o) for o in others))]


def _yes(value: bool) -> str:
  return 'yes' if value else 'no'


def _at_d(function) -> str:
  return '' if function is None else f'{function(D):.4g}'


def _sketches() -> str:
  rows, examples = [], _examples(sketches.REGISTRY, 'layerwise')
  for op in examples:
    p = op.properties
    rows.append([
      f'`{op}`', str(p.floats(D)), _at_d(p.alpha), _at_d(p.coordinate_wise),
      _yes(p.linear),
    ])  # fmt: skip
  head = (
    'operator', 'floats', 'alpha', 'coordinate-wise constant',
    'desketch is linear',
  )  # fmt: skip
  others = 'layerwise', 'layer_cyclic', 'fwht'
  entries = _entries(examples, sketches, *others)
  return '\n'.join([markdown.table(head, rows), *entries])


def _codecs() -> str:
  examples = _examples(codecs.REGISTRY)
  rows = [[f'`{c}`', _at_d(c.omega), _at_d(c.contraction)] for c in examples]
  entries = _entries(examples, codecs, 'contract')
  return '\n'.join([
    markdown.table(('codec', 'omega', 'contraction'), rows), *entries
  ])  # fmt: skip


def _options() -> str:
  """The options of the parts that have no page of their own."""
  headings = {
    'dataset_options': 'Options of data sets',
    'model_options': 'Options of models',
    'lora': 'Means of adapters and their options',
    'local_optimizer': 'Optimizers of clients and their options',
    'client_schedule': 'Schedules of rates and their options',
  }
  parts = []
  for field, heading in headings.items():
    named_by, registry = registries.REGISTRIES[field]
    calls = [f'* `{registry.call(name)}`' for name in registry.names()]
    parts += [f'## {heading}', f'`{field}`, by `{named_by}`:', '\n'.join(calls)]
  known = server_optimizers.REGISTRY
  calls = [f'* `{known.call(name)}`' for name in known.names()]
  parts += ['## Optimizers of the server and their options', '\n'.join(calls)]
  return '\n\n'.join(parts)


def _docstring(path: pathlib.Path) -> str:
  """A module's docstring as Markdown: indented lines become code."""
  text = ast.get_docstring(ast.parse(path.read_text(encoding='utf-8'))) or ''
  blocks = []
  for block in text.split('\n\n'):
    if block.startswith(' '):  # a backslash has joined the lines of a command
      lines = re.sub(' {3,}(?=-)', ' \\\n    ', textwrap.dedent(block))
      blocks.append(f'```text\n{lines}\n```')
    else:
      block = re.sub('[*<$]', r'\\\g<0>', block)
      link = '[{0}]({1}.md)', '[](/{0}.md)'
      blocks.append(docstrings.link_pages(block, *link))
  return '\n\n'.join(blocks)


def _commands() -> str:
  parts = []
  for name in launch.summaries(ROOT / 'launch', 'main'):
    module = 'benchmarks.__main__' if name == 'bench' else f'launch.{name}'
    rows = [
      [f'`--{f.name}`', f.flag_type(), f'`{f.default}`', _cell(f.help)]
      for f in _flags(module)
    ]
    table = markdown.table(('flag', 'type', 'default', 'meaning'), rows)
    text = _docstring(ROOT / f'{module.replace(".", "/")}.py')
    parts += [f'## {name.replace("_", "-")}', text, table]
  return '\n\n'.join(parts)


def _cell(text: str | None) -> str:
  return (text or '').replace('|', '\\|').replace('<', '\\<')


def _flags(module: str) -> list[flags.Flag]:
  """The flags that a program defines, which other programs may define too."""
  before = set(flags.FLAGS)
  importlib.import_module(module)
  own = sorted(set(flags.FLAGS) - before)
  defined = [flags.FLAGS[name] for name in own]
  flags.FLAGS.remove_flag_values(own)
  return [f for f in defined if not f.name.startswith('experimental_orbax')]


def _configs() -> str:
  return '\n\n'.join(
    f'## {name}\n\n{_docstring(configs.paths()[name])}'
    for name in configs.names()
  )
