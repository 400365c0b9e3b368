"""Writes the .ipynb of every script of this folder beside it, with outputs.

  python -m notebooks.build [NAME ...]

The script is what is edited and read. The notebook has a cell that installs
the package in Colab before its first cell, the outputs of a run on a CPU, and
a title without the full stop that the script's docstring has.
"""

import os
import pathlib
import re
import sys
import tempfile
import time

import jupytext
import nbclient
import nbformat

FOLDER = pathlib.Path(__file__).parent
_INSTALL = """import importlib.metadata
import pathlib
import sys

# In Colab: the URL of a wheel in your Drive (file:///content/drive/MyDrive/...)
# or of your repository (git+https://...), since fl_sketch is not on PyPI. If it
# is empty, the cell asks you for the wheel: `pip wheel --no-deps .` makes it in
# the folder of the source.
SOURCE = ''

if 'google.colab' in sys.modules:
  if not SOURCE:
    from google.colab import files

    (name,) = files.upload()
    SOURCE = pathlib.Path(name).absolute().as_uri()
  # pip keeps what is in range ('only-if-needed', its default), so the kernel
  # needs no restart. Where JAX or NumPy would have to change, pip stops.
  kept = ('jax', 'jaxlib', 'numpy')
  kept = ' '.join(f'{p}=={importlib.metadata.version(p)}' for p in kept)
  %pip install -q {kept} "fl_sketch[plots] @ {SOURCE}"

%matplotlib inline"""
_ABOUT = {
  'kernelspec': {
    'display_name': 'Python 3',
    'language': 'python',
    'name': 'python3',
  },
  'language_info': {'name': 'python'},
}


def scripts() -> list[pathlib.Path]:
  """The scripts that are notebooks."""
  ours = ('__init__', 'build')
  return sorted(p for p in FOLDER.glob('*.py') if p.stem not in ours)


def notebook(script: pathlib.Path) -> nbformat.NotebookNode:
  """The notebook that a script becomes, without outputs."""
  cells = [
    nbformat.v4.new_code_cell(_INSTALL),
    *jupytext.read(script, fmt='py:percent').cells,
  ]
  cells[1].source = re.sub(r'\A(# .*)\.$', r'\1', cells[1].source, flags=re.M)
  for i, cell in enumerate(cells):
    cell.id, cell.metadata = f'cell-{i}', {}
  return nbformat.v4.new_notebook(cells=cells, metadata=_ABOUT)


def execute(document: nbformat.NotebookNode) -> None:
  """Adds the outputs of every cell, run on a CPU in an empty folder.

  Raises:
    CellExecutionError: a cell fails.
  """
  env = os.environ | {
    'JAX_DISABLE_MOST_OPTIMIZATIONS': 'true',  # most of the time is compiling
    'JAX_PLATFORMS': 'cpu',
    'PYTHONPATH': str(FOLDER.parent),
  }
  with tempfile.TemporaryDirectory() as folder:
    nbclient.NotebookClient(
      document,
      record_timing=False,
      coalesce_streams=True,
      resources={'metadata': {'path': folder}},
    ).execute(env=env)
  document.metadata = _ABOUT  # without the version of this Python


def main(names: list[str]):
  """Writes the notebooks of these names, or all."""
  for script in scripts():
    if names and script.stem not in names:
      continue
    start = time.perf_counter()
    document = notebook(script)
    execute(document)
    nbformat.validate(document)
    text = nbformat.writes(document) + '\n'
    script.with_suffix('.ipynb').write_text(text)
    print(f'{script.stem}: {time.perf_counter() - start:.0f} s')


if __name__ == '__main__':
  main(sys.argv[1:])
