"""The planner's bytes against counts by hand, and against a real process."""

import re
import tempfile

from configs import shakespeare_decoder
from fl_sketch import models, runs
from fl_sketch.privacy.mechanisms import generators
from fl_sketch.rounds import comms, mesh as mesh_lib
from fl_sketch.runs import (
  memory as memory_lib,
  plan as plan_lib,
  player as player_lib,
  program as program_lib,
)
from harness import DP, ROOT, SMALL, python
import jax
import natural_files
import numpy as np
import pytest

GIB = 2**30
POPULATION, COHORT, BATCH, WIDTH = 40, 20, 4, *SMALL['model_options']['widths']
D = 64 * WIDTH + WIDTH + 10 * WIDTH + 10
BASE = SMALL | dict(
  population=POPULATION, cohort=COHORT, local_steps=1, batch_size=BATCH,
  eval_every=4, checkpoint_every=4,
)  # fmt: skip
SAFL = dict(
  algorithm='safl',
  sketch={'kind': 'block_cyclic', 'size': 64},
  server_optimizer='adam',
)
SCAFFOLD = dict(algorithm='scaffold')
PRIVATE = DP | {'sampling': 'poisson'}


def built(**fields):
  return runs.build(BASE | fields)


def mesh():
  return mesh_lib.cohort_mesh(2)


@pytest.mark.nightly
def test_bytes_held_on_a_device(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
  safl = built(**SAFL)
  planned = plan_lib.plan(safl, mesh(), dry_rounds=1)
  assert not list(tmp_path.iterdir())  # a dry run leaves no files
  assert planned.seconds > 0
  lane = 4 + 4 + 4 * BATCH  # id, weight, indices
  test = comms.nbytes(mesh_lib.pad(safl.test, 2)) // 2
  # Model and two moments, data, this round's batches and the next ones.
  expected = 3 * 4 * D + comms.nbytes(safl.data) + COHORT * lane + test
  assert 0 < planned.memory.held - expected <= 2**10  # keys, counts, rates
  assert planned.wire == ([4 * 64] * 4, [4 * 64] * 4)
  # A round needs some models besides.
  assert 3 * 4 * D < planned.memory.work < 40 * 4 * D + 2**16


def arguments_of(exp):
  """Bytes on a device of a round's state, cohort and data."""
  _, state, cohort, _, data, _ = program_lib.program(exp, mesh()).args
  return [memory_lib.share(tree) for tree in (state, cohort, data)]


def test_state_lies_where_the_config_wants_it():
  """Catches rows of clients, data or moments that lie elsewhere."""
  state, _, _ = arguments_of(built(**SCAFFOLD))
  rows = POPULATION * 4 * D
  assert 4 * D + rows <= state <= 3 * 4 * D + rows
  host = built(**SCAFFOLD, client_state='host', feed='host')
  state, cohort, data = arguments_of(host)
  rows = COHORT // 2 * 4 * D
  assert 4 * D + rows <= state <= 3 * 4 * D + rows
  lane = 4 + 4 + BATCH * (64 + 4)  # pixels and labels instead of indices
  assert (cohort, data) == (COHORT // 2 * lane, 0)
  state, _, _ = arguments_of(built(**SAFL, server_state='sharded'))
  assert 0 < state - 2 * 4 * D <= 32  # half of two moments


@pytest.mark.parametrize('fields', [
  SAFL,
  PRIVATE,
  SCAFFOLD | {'client_state': 'host'},
  SAFL | {'server_state': 'sharded', 'feed': 'host'},
  SAFL | {'rounds_per_dispatch': 2},
], ids=lambda fields: '-'.join(map(str, fields.values())))  # fmt: skip
def test_the_abstract_run_is_that_of_the_player(fields, tmp_path):
  """The run reuses what its plan has compiled."""
  exp = built(**fields)
  run = program_lib.program(exp, mesh())
  player = player_lib.Shards(exp, mesh(), tmp_path, run)
  roots = generators.known_roots(exp.config.noise_seed)
  player.start(None if exp.guarantee is None else roots)
  cohorts, placed = player.feed.take(0)
  player.state = player.client_state.attach(
    player.state, np.asarray(cohorts[0].ids)
  )
  arguments = player.arguments(placed)
  player.close()
  assert jax.tree.structure(arguments) == jax.tree.structure(run.args)
  for x, y in zip(*map(jax.tree.leaves, (arguments, run.args)), strict=True):
    assert (x.shape, x.dtype) == (y.shape, y.dtype)
    assert x.sharding.is_equivalent_to(y.sharding, x.ndim)


def test_no_module_needs_the_inside_of_jax():
  """Catches imports of private modules of JAX, which any release may move."""
  sources = {p: p.read_text() for p in (ROOT / 'fl_sketch').rglob('*.py')}
  inside = re.compile(r'jax[. ](import )?(_src|interpreters)')
  found = [p.name for p, text in sources.items() if inside.search(text)]
  assert found == ['marks.py']


PLAN = """
import sys
from fl_sketch import runs
from fl_sketch.runs import devices, plan
devices.start(cpu_devices=2)
exp = runs.build(eval(sys.argv[1]))
print(plan.plan(exp, dry_rounds=0).memory.host_peak)
"""
# A small parent: a child's peak is never below its parent's at the fork.
RUN = """
import resource, subprocess, sys
subprocess.run([sys.executable, '-m', *sys.argv[1:]], check=True, stdout=2)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""
wide = lambda *widths: {'model_options': {'widths': widths}}


@pytest.mark.long
@pytest.mark.parametrize('fields', [
  SCAFFOLD | wide(2304) | {'population': 400},
  SAFL | wide(4096, 1024) | {'feed': 'host', 'clients_per_step': 10},
], ids=['rows', 'lanes'])  # fmt: skip
def test_the_peak_of_a_real_process(fields, tmp_path):
  """The plan is within 20 %, and most of it is not the interpreter."""
  fields = BASE | {'batch_size': 2} | fields
  config = tmp_path / 'config.py'
  config.write_text(
    'import configs\n'
    'def get_config():\n'
    '  c = configs.new()\n'
    f'  c.update({fields!r})\n'
    '  return c\n'
  )
  options = f'--config={config}', f'--workdir={tmp_path}/run', '--cpu_devices=2'
  measured = int(python('-c', RUN, 'launch', 'train', *options))
  assert measured > 2**30
  predicted = int(python('-c', PLAN, fields))
  assert abs(predicted - measured) < 0.2 * measured


CLIENTS = 12


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  """Plays of a few speakers: a window is as long as in the others."""
  folder = tmp_path_factory.mktemp('plays')
  natural_files.make_store('plays', folder, range(CLIENTS))
  return folder / 'store'


@pytest.fixture
def build(store):
  """Builds (variant) -> its experiment, without first parameters."""

  def of(variant):
    fields = shakespeare_decoder.get_config(variant).to_dict()
    del fields['sweep']
    fields |= {'population': CLIENTS, 'dataset_options': {'folder': str(store)}}
    return runs.build(fields, draw=False)

  return of


@pytest.mark.representatives('micro')
@pytest.mark.parametrize('size', shakespeare_decoder.PARAMETERS)
def test_a_size_has_the_parameters_that_its_tables_are_for(size, build):
  """Catches tables of another share of the model than is said."""
  d = models.num_params(build(size).params)
  assert d == shakespeare_decoder.PARAMETERS[size]


@pytest.mark.nightly
def test_a_round_of_100_million_parameters_lowers_for_accelerators(build):
  """Catches an operation of the round that TPUs or GPUs do not have."""
  exp = build('small,onebit')._replace(clients_per_step=None)
  run = program_lib.program(exp, mesh_lib.cohort_mesh())
  exported = jax.export.export(run.fn, platforms=['tpu', 'cuda'])(*run.args)
  assert exported.platforms == ('tpu', 'cuda')
