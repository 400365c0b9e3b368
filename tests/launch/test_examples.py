"""Examples and notebooks run as a user's own files do."""

import base64
import importlib
import json
import re
import runpy
import signal
import zipfile

import chex
from fl_sketch import algorithms, rounds, sketches
import harness
from harness import ROOT
import jax
from launch import configs
import nbformat
import numpy as np
import pytest

from notebooks import build

EXAMPLES = ROOT / 'docs' / 'examples'
# The hyperparameter of each and its values.
SCRIPTS = {
  'sketched_feddyn': ('options.alpha', '(0.03, 0.1)'),
  'folded_sketch': ('sketch.shrink', '(0.5, 1.0)'),
  'gru_text': ('model_options.gain', '(0.5, 1.0)'),
  'nnx_cnn': ('model_options.slope', '(0.0, 0.1)'),
}
# So many rounds, one at a time, that a kill hits a running process.
FEW = (
  '--config.rounds=30', '--config.rounds_per_dispatch=1',
  '--config.checkpoint_every=4',
)  # fmt: skip
# Checks that a model can be used again.
LOADED = """
import sys
import fl_sketch
run, sweep = (fl_sketch.load(folder) for folder in sys.argv[1:3])
x = {k: v[:3] for k, v in run.experiment.data.items()}
outputs = run.apply(x['x'])
assert outputs.shape[0] == 3 and outputs.dtype == 'float32', outputs
assert run.evaluate()['test_loss'] == run.metrics['test_loss'][-1]
assert sweep.params is not None
"""


def test_every_example_is_run():
  """Catches an example that no test runs."""
  tests = ''.join(x.read_text() for x in (ROOT / 'tests').rglob('*.py'))
  assert all(f'{x.stem}' in tests for x in EXAMPLES.glob('*.py'))


@pytest.mark.nightly
def test_safl_in_one_file_has_the_numbers_of_the_library():
  """Catches an algorithm that is not the one which the documents explain."""
  path = EXAMPLES / 'safl_in_one_file.py'
  assert len(path.read_text().splitlines()) <= 150
  alone = runpy.run_path(str(path))
  make = algorithms.make(
    'safl', alone['loss_fn'], server_optimizer='adam',
    sketch=sketches.block_cyclic(alone['SIZE']),
  )  # fmt: skip
  hp = algorithms.Hyper(alone['CLIENT_LR'], alone['SERVER_LR'])
  mesh = rounds.cohort_mesh()
  play = jax.jit(rounds.run_round(make, mesh))
  key, params = jax.random.key(0), alone['init_params'](jax.random.key(1))
  state = rounds.place(mesh, rounds.init(make(hp), params, population=4))
  rng, moments = np.random.default_rng(0), (np.float32(0), np.float32(0))
  for index in range(3):
    x = rng.standard_normal((4, 5, 16, 64), dtype=np.float32)
    batches = {'x': x, 'y': rng.integers(10, size=(4, 5, 16))}
    cohort = rounds.Cohort(np.arange(4), np.ones(4, np.float32), batches)
    state, metrics = play(hp, state, cohort, key)
    each = [{name: a[i] for name, a in batches.items()} for i in range(4)]
    params, moments = alone['play_round'](key, index, params, moments, each)
    chex.assert_trees_all_close(state.params, params, rtol=1e-4, atol=1e-5)
  assert metrics['uplink_bytes'] == 4 * alone['SIZE']


@pytest.mark.nightly
def test_sharded_muon_counts_collectives(monkeypatch):
  """Catches a table of zeros: optax that replicates, or other names in HLO."""
  monkeypatch.syspath_prepend(EXAMPLES)
  example = importlib.import_module('sharded_muon')
  monkeypatch.setattr(example, 'WIDTH', 8)
  monkeypatch.setattr(example, 'LAYERS', 1)
  found = {name: example.measure(*row) for name, row in example.ROWS.items()}
  sums = [gathers + reduces for gathers, reduces, _ in found.values()]
  assert [x > 0 for x in sums] == [False, False, True, True]


@pytest.mark.usefixtures('own_parts')
def test_the_folded_sketch_keeps_what_it_states():
  """Catches an example of Properties that do not hold."""
  configs.load(str(EXAMPLES / 'folded_sketch.py'))
  op = sketches.make('folded', size=8, shrink=1.0)
  report = sketches.verify(op, 20, jax.random.key(0))
  assert report.ok, report


@pytest.fixture(scope='module')
def site(wheel, tmp_path_factory):
  """The wheel, installed outside of the checkout."""
  folder = tmp_path_factory.mktemp('site')
  with zipfile.ZipFile(wheel) as z:
    z.extractall(folder)
  return folder


@pytest.mark.nightly
@pytest.mark.parametrize('name', SCRIPTS)
def test_an_example_is_trained_swept_resumed_and_loaded(name, site, tmp_path):
  """Catches a registered part that a command, a resume or `load` cannot use."""
  config = tmp_path / f'{name}.py'
  config.write_text((EXAMPLES / f'{name}.py').read_text())
  text = 'the quick brown fox jumps over the lazy dog. ' * 60
  (tmp_path / 'text.txt').write_text(text)

  def start(program, folder, *more):
    command = '-m', 'fl_sketch.launch', program, config, f'--workdir={folder}'
    log = tmp_path / 'log'
    return harness.start([*command, *FEW, *more], log, tmp_path, site), log

  harness.finish(start('train', 'whole'))
  process, log = start('train', 'cut')
  harness.wait_for_rows(tmp_path / 'cut', 5, process, log)
  process.kill()
  assert process.wait() == -signal.SIGKILL, 'it had ended: ask for more'
  assert not (tmp_path / 'cut' / 'summary.json').exists()
  harness.finish(start('train', 'cut'))
  cut, whole = (harness.rows(tmp_path / x) for x in ('cut', 'whole'))
  assert cut == whole
  field, values = SCRIPTS[name]
  swept = f'--config.sweep.{field}={values}', '--points_per_program=2'
  harness.finish(start('sweep', 'swept', *swept, '--config.rounds=8'))
  points = (tmp_path / 'swept' / 'points.jsonl').read_text().splitlines()
  assert len({json.loads(row)['train_loss'] for row in points}) == 2
  (best,) = (tmp_path / 'swept').glob('points/*/params')
  command = ['-c', LOADED, 'whole', best.parent]
  harness.finish((harness.start(command, log, tmp_path, site), log))


@pytest.mark.nightly
def test_one_chain_trains_alike_in_three_loops():
  """Catches a hash that differs on workers, and a mean of wrong numbers."""
  three = runpy.run_path(str(EXAMPLES / 'three_loops.py'))
  x = np.random.default_rng(0).standard_normal((6, 3), np.float32)
  plain, *others = (
    three[name](x) for name in ('plain', 'under_vmap', 'in_shard_map')
  )
  for other in others:
    chex.assert_trees_all_close(other, plain, rtol=1e-5)
  moved = jax.tree.map(lambda a, b: abs(a - b).min(), plain, three['PARAMS'])
  assert min(jax.tree.leaves(moved)) > 0.01


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
