"""Notebooks are what their scripts generate, run, and keep their outputs."""

import base64
import re

import nbformat
import pytest

from notebooks import build

NAMES = sorted(path.stem for path in build.FOLDER.glob('*.ipynb'))
KB = 1000
LOCAL = re.compile(
  r'(?<![\w:/.])/\w+/\w'  # /home/name, not https:// nor bytes/s
  r'|[A-Z]:\\'
  r'|<[\w.]+ object at 0x'
)
each = pytest.mark.parametrize('name', NAMES)


def kept(name):
  return nbformat.read(build.FOLDER / f'{name}.ipynb', as_version=4)


def code_cells(notebook):
  return [cell for cell in notebook.cells if cell.cell_type == 'code']


def outputs_of(notebook):
  return [out for cell in code_cells(notebook) for out in cell.outputs]


def pictures_of(notebook):
  data = [out.get('data', {}) for out in outputs_of(notebook)]
  return [base64.b64decode(d['image/png']) for d in data if 'image/png' in d]


def texts_of(notebook):
  """What is printed, and other text that a reader sees."""
  for out in outputs_of(notebook):
    yield out.get('text', '')
    # The best form is shown; text/plain stands behind pictures and Markdown.
    data = {k: v for k, v in out.get('data', {}).items() if k != 'image/png'}
    yield from (
      v for k, v in data.items() if k != 'text/plain' or len(data) < 2
    )


@each
def test_a_notebook_is_what_its_script_generates_with_its_outputs(name):
  """Catches an edited script, lost outputs, warnings and local paths."""
  bare = kept(name)
  for cell in code_cells(bare):
    cell.outputs, cell.execution_count = [], None
  assert NAMES == [path.stem for path in build.scripts()]
  generated = build.notebook(build.FOLDER / f'{name}.py')
  assert re.match(r'# .*[^.]\n\n', generated.cells[1].source)  # the title
  assert bare == generated, 'Run python -m notebooks.build.'
  notebook = kept(name)
  counts = [cell.execution_count for cell in code_cells(notebook)]
  assert counts == list(range(1, len(counts) + 1))
  assert {out.get('name') for out in outputs_of(notebook)} <= {None, 'stdout'}
  assert 'error' not in {out.output_type for out in outputs_of(notebook)}
  assert not [text for text in texts_of(notebook) if LOCAL.search(text)]
  assert pictures_of(notebook)
  assert (build.FOLDER / f'{name}.ipynb').stat().st_size <= 300 * KB


@pytest.mark.long
@each
def test_a_notebook_runs_from_top_to_bottom(name):
  notebook = build.notebook(build.FOLDER / f'{name}.py')
  build.execute(notebook)
  assert pictures_of(notebook)
