"""Notebooks run from top to bottom, and are what their scripts generate."""

import jupytext
import nbclient
import pytest
import runs

from notebooks import build

NAMES = (
  'attack',
  'bring_your_own',
  'bytes_and_accuracy',
  'privacy',
  'round',
  'sketch',
  'sweep',
)
each = pytest.mark.parametrize('name', NAMES)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
  for variable, value in (
    ('FL_SKETCH_QUICK', '1'),
    ('JAX_PLATFORMS', 'cpu'),
    ('PYTHONPATH', str(runs.ROOT)),
  ):
    monkeypatch.setenv(variable, value)


def test_every_notebook_has_a_script_and_runs_here():
  notebooks = build.FOLDER.glob('*.ipynb')
  assert tuple(sorted(path.stem for path in notebooks)) == NAMES
  assert tuple(path.stem for path in build.scripts()) == NAMES


@each
def test_a_notebook_is_what_its_script_generates(name):
  script = build.FOLDER / f'{name}.py'
  text = script.with_suffix('.ipynb').read_text()
  assert text == build.notebook(script), 'Run python -m notebooks.build.'


@each
def test_a_notebook_begins_with_a_badge_and_installs_on_colab_alone(name):
  badge, install, *_, last = jupytext.read(build.FOLDER / f'{name}.ipynb').cells
  assert f'{build.REPOSITORY}/blob/main/notebooks/{name}.ipynb' in badge.source
  assert f'github.com/{build.REPOSITORY}' in install.source
  assert "if 'google.colab' in sys.modules:\n  %pip" in install.source
  assert last.source.count('assert ') >= 3


@pytest.mark.nightly
@each
def test_a_script_runs_from_top_to_bottom(name, tmp_path, monkeypatch):
  monkeypatch.setenv('MPLBACKEND', 'Agg')
  log = tmp_path / 'log'
  runs.finish((runs.start([build.FOLDER / f'{name}.py'], log), log))


@pytest.mark.long
@each
def test_a_notebook_runs_from_top_to_bottom(name, tmp_path, monkeypatch):
  monkeypatch.delenv('MPLBACKEND', raising=False)  # pictures go inline
  notebook = jupytext.read(build.FOLDER / f'{name}.ipynb')
  where = {'metadata': {'path': str(tmp_path)}}
  nbclient.NotebookClient(notebook, resources=where).execute()
  pictures = [
    output
    for cell in notebook.cells
    for output in cell.get('outputs', ())
    if 'image/png' in output.get('data', ())
  ]
  assert pictures
