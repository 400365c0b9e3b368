"""configs/shakespeare_decoder.py: planned, measured, and lowered."""

from configs import shakespeare_decoder
from fl_sketch import models, runs
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.runs import program as program_lib
import jax
import natural_files
import pytest

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
