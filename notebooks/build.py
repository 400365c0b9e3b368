"""Writes the .ipynb of every script of this folder beside it.

  python -m notebooks.build

The script is what is edited and read; the notebook has a badge and a line that
installs the package on Colab before its first cell, and no outputs.
"""

import pathlib

import jupytext
import nbformat

REPOSITORY = 'fl-sketch/fl_sketch'
FOLDER = pathlib.Path(__file__).parent
_COLAB = 'https://colab.research.google.com'
_BADGE = (
  f'[![Open in Colab]({_COLAB}/assets/colab-badge.svg)]'
  f'({_COLAB}/github/{REPOSITORY}/blob/main/notebooks/NAME.ipynb)'
)
_INSTALL = f"""import sys

if 'google.colab' in sys.modules:
  %pip install -q git+https://github.com/{REPOSITORY}"""
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


def notebook(script: pathlib.Path) -> str:
  """The text of the .ipynb that a script becomes, the same every time."""
  cells = [
    nbformat.v4.new_markdown_cell(_BADGE.replace('NAME', script.stem)),
    nbformat.v4.new_code_cell(_INSTALL),
    *jupytext.read(script, fmt='py:percent').cells,
  ]
  for i, cell in enumerate(cells):
    cell.id, cell.metadata = f'cell-{i}', {}
  document = nbformat.v4.new_notebook(cells=cells, metadata=_ABOUT)
  nbformat.validate(document)
  return nbformat.writes(document) + '\n'


def main():
  """Writes all of them."""
  for script in scripts():
    script.with_suffix('.ipynb').write_text(notebook(script))


if __name__ == '__main__':
  main()
