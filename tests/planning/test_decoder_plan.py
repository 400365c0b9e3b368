"""configs/shakespeare_decoder.py: planned, measured, and lowered."""

from configs import shakespeare_decoder
from fl_sketch import experiment, models, planning
from fl_sketch.data.natural import importing
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.training import program as program_lib
import jax
import natural_files
import pytest
from runs import python

from tests.planning.test_plan import GIB, PLAN, RUN

CLIENTS, COHORT = 12, 8
SMALL = shakespeare_decoder.PARAMETERS['small']


@pytest.fixture(scope='module')
def store(tmp_path_factory):
  """Plays of a few speakers: a window is as long as in the others."""
  folder = tmp_path_factory.mktemp('plays')
  (files := folder / 'files').mkdir()
  natural_files.KINDS['plays'](files, range(CLIENTS))
  importing.import_data('plays', files, folder / 'store')
  return folder / 'store'


def fields_of(variant, store):
  fields = shakespeare_decoder.get_config(variant).to_dict()
  given = {k: v for k, v in fields.items() if k != 'sweep'}
  options = {'folder': str(store)}
  return given | {'population': CLIENTS, 'dataset_options': options}


@pytest.fixture
def build(store):
  """Builds (variant) -> its experiment, without first parameters."""
  return lambda variant: experiment.build(fields_of(variant, store), draw=False)


@pytest.mark.parametrize('size', shakespeare_decoder.PARAMETERS)
def test_a_size_has_the_parameters_that_its_tables_are_for(size, build):
  """Catches tables of another share of the model than is said."""
  d = models.num_params(build(size).params)
  assert d == shakespeare_decoder.PARAMETERS[size]


@pytest.mark.parametrize('variant', ['tiny', 'mini,small', 'diloco,safl'])
def test_words_that_exclude_each_other_are_refused(variant):
  """Catches the first of two sizes or algorithms in place of a refusal."""
  with pytest.raises(ValueError, match=f"variant='{variant}' of a size in"):
    shakespeare_decoder.get_config(variant)


def bytes_up(name, d):
  """What a client sends, by hand: an entry is a float, or a bit and a scale."""
  if name == 'onebit':
    return -(-(d * 32 // 100) // 8) + 4
  return 4 * (d // 100 if name == 'safl' else d)


@pytest.mark.nightly
@pytest.mark.parametrize('name', shakespeare_decoder.ALGORITHMS)
@pytest.mark.parametrize('size', shakespeare_decoder.PARAMETERS)
def test_bytes_of_a_round(size, name, build):
  """Catches a table or a codec that is not the variant's."""
  up, _ = planning.wire(build(f'{size},{name}'), mesh_lib.cohort_mesh())
  assert {*up} == {bytes_up(name, shakespeare_decoder.PARAMETERS[size])}


@pytest.mark.nightly
@pytest.mark.parametrize('name', shakespeare_decoder.ALGORITHMS)
def test_a_round_of_100_million_parameters_lowers_for_accelerators(name, build):
  """Catches an operation of the round that TPUs or GPUs do not have.

  All clients of a device at once, as accelerators train them.
  """
  exp = build(f'small,{name}')._replace(clients_per_step=None)
  run = program_lib.program(exp, mesh_lib.cohort_mesh())
  exported = jax.export.export(run.fn, platforms=['tpu', 'cuda'])(*run.args)
  assert exported.platforms == ('tpu', 'cuda')


@pytest.mark.nightly
def test_a_run_of_100_million_parameters_is_planned(build):
  """Catches a plan that needs the model's numbers, or leaves out clients."""
  plan, d = planning.plan(build('small'), dry_rounds=0), SMALL
  assert plan.parameters == d
  assert plan.memory.held['model'] == 4 * d
  # Parameters and gradients of the clients that train at once.
  lanes = COHORT // plan.memory.devices
  assert plan.memory.round > 2 * lanes * 4 * d
  assert plan.seconds is None


@pytest.mark.long
@pytest.mark.parametrize('name', ['diloco', 'onebit'])
def test_ten_million_parameters_train_in_four_gib(name, store, tmp_path):
  """Catches a plan that is 15 % off, and a run of eight clients above 4 GiB.

  They keep the two moments of AdamW; onebit has tables beside them.
  """
  fields = fields_of(f'mini,{name}', store) | {'rounds': 2, 'eval_every': 2}
  assert fields['cohort'] == COHORT
  changes = {
    'rounds': 2, 'eval_every': 2, 'population': CLIENTS,
    'dataset_options.folder': store,
  }  # fmt: skip
  measured = int(
    python(
      *('-c', RUN, 'launch.train', f'shakespeare_decoder:mini,{name}'),
      *(f'--config.{k}={v}' for k, v in changes.items()),
      *(f'--workdir={tmp_path}/run', '--cpu_devices=2'),
    )
  )
  assert measured < 4 * GIB
  predicted = int(python('-c', PLAN, fields))
  assert abs(predicted - measured) < 0.15 * measured
