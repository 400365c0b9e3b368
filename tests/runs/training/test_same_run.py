"""What a record holds; another problem's or other code's start is refused."""

import functools
import json
import shutil

from fl_sketch import runs
from fl_sketch.data import partitions
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.runs import config, noise_secret, same_run, workdir
from fl_sketch.utils import digests
import harness
import numpy as np
import optax
import own_problem as own
from own_problem import (
  ONE_IMAGE,
  PRIVATE,
  START,
  begin,
  build,
  changed,
  private,
  record,
  start,
  store_of,
)
import pytest

TEST_IMAGE = own.CLIENTS[0] | {'x': changed(own.CLIENTS[0]['x'])}
EDGES = np.array([0, 3, 8, 12])
ORDER = partitions.Partition(np.arange(12)[::-1], np.arange(0, 13, 4))


def refused(folder, exp, *names):
  """Checks that a start is refused, and that the error has these names."""
  with pytest.raises(workdir.WorkdirError) as error:
    start(folder, exp)
  for name in names:
    assert name in str(error.value)


def test_another_problem_is_refused_by_name(tmp_path):
  """Catches a folder that goes on with, or returns, another problem's run."""
  begin(tmp_path, build())
  start(tmp_path, build())
  before = {p: p.read_bytes() for p in tmp_path.glob('*.json*')}
  for changes, what in (
    ({'clients': ONE_IMAGE}, 'data'),
    ({'test': TEST_IMAGE}, 'data'),
    ({'partition': partitions.Partition(None, EDGES)}, 'data'),
    ({'partition': ORDER}, 'data'),
  ):
    refused(tmp_path, build(**changes), f'({what})')
  assert {p: p.read_bytes() for p in tmp_path.glob('*.json*')} == before


@pytest.mark.nightly
def test_a_problem_confirms_no_guess_of_data(tmp_path):
  """Catches a digest that who knows all samples but one can guess."""
  exp, seeded = own.private(), build(PRIVATE | {'noise_seed': 0})
  problem, written = own.record(exp), {}
  for name, each in (('one', exp), ('two', exp), ('seeded', seeded)):
    begin(tmp_path / name, each)
    text = (tmp_path / name / 'problem.json').read_text()
    written[name] = json.loads(text)
  for name in same_run.DATA, same_run.ROUND:
    assert len({written[x][name] for x in written}) == 3
  assert written['seeded'][same_run.DATA] == problem[same_run.DATA]
  start(tmp_path / 'one', exp)
  refused(tmp_path / 'one', build(PRIVATE, clients=ONE_IMAGE), '(data)')
  path = tmp_path / 'one' / 'problem.json'
  path.write_text(json.dumps(written['two']))  # of another secret
  refused(tmp_path / 'one', exp, 'data')


@pytest.mark.nightly
def test_without_its_secret_a_run_is_compared_by_what_is_open(tmp_path):
  """Catches a finished run that cannot be read once its secret is deleted."""
  begin(tmp_path, own.private())
  shutil.rmtree(tmp_path / 'secret')
  with pytest.warns(UserWarning, match='secret'):
    start(tmp_path, build(PRIVATE, clients=ONE_IMAGE))
  edit(tmp_path, jax='0.0.0')
  with pytest.warns(UserWarning, match='secret'):
    refused(tmp_path, own.private(), 'jax')


def secrets_of(folder, *experiments):
  """The number of secrets that these have in a folder."""
  roots = (
    noise_secret.of_run(exp.config, own.record(exp), folder, resumed=True)
    for exp in experiments
  )
  return len({root.sampling_seed for root in roots})


def test_a_killed_private_run_does_not_go_on_with_corrected_images(tmp_path):
  """Catches noise that cancels in the difference of two releases."""
  exp, corrected = own.private(), build(PRIVATE, clients=ONE_IMAGE)
  begin(tmp_path, exp)
  refused(tmp_path, corrected, '(data)')
  # Even where problem.json was removed or replaced, noise is not used again.
  (tmp_path / 'problem.json').unlink()
  refused(tmp_path, corrected, 'problem.json')
  assert secrets_of(tmp_path, exp, corrected) == 2
  points = [build(PRIVATE | {'clip_norm': c}) for c in (0.1, 0.2)]
  assert secrets_of(tmp_path, *points) == 2


def stronger(exp):
  """The experiment with another server, which no file or config tells."""

  def make(hp):
    algorithm = exp.make(hp)
    server = optax.chain(algorithm.server, optax.scale(2.0))
    server = optax.with_extra_args_support(server)
    return algorithm._replace(server=server)

  return exp._replace(make=make)


def test_another_program_is_refused_wherever_it_comes_from(tmp_path):
  """Catches noise that is used again for another algorithm, loss or mesh."""
  exp = own.private()
  begin(tmp_path, exp)
  shifted = functools.partial(own.values, shift=changed(own.SHIFT))
  for other in stronger(exp), build(PRIVATE, shifted):
    refused(tmp_path, other, '(one round)')
    assert secrets_of(tmp_path, exp, other) == 2
  one = same_run.problem_of(exp, mesh_lib.cohort_mesh(1))
  with pytest.raises(workdir.WorkdirError, match='one round'):
    workdir.Workdir(tmp_path, exp.config, one)


VERSIONS = {
  'source of fl_sketch': '0' * 64, 'fl_sketch': '0.0.0', 'jax': '0.0.0',
  'numpy': '1.0.0', 'python': '3.0.0', 'device': '9 x cpu', 'processes': 7,
  'shards': 3,
  'deterministic kernels': False,
}  # fmt: skip
FIELDS = {'plain': own.FIELDS, 'public': PRIVATE | {'noise_seed': 0}}


def edit(folder, **entries):
  path = folder / 'problem.json'
  record = json.loads(path.read_text())
  assert record.keys() >= entries.keys()
  path.write_text(json.dumps(record | entries))


@pytest.mark.parametrize('kind', ['plain', 'public', 'private'])
def test_other_code_is_warned_of_or_refused(kind, tmp_path):
  """Catches numbers of two versions, or other noise, in one run."""
  exp = own.private() if kind == 'private' else build(FIELDS[kind])
  begin(tmp_path, exp)
  problem = (tmp_path / 'problem.json').read_text()
  for name, value in VERSIONS.items():
    edit(tmp_path, **{name: value})
    if kind == 'private':
      refused(tmp_path, exp, name)
    else:
      with pytest.warns(UserWarning, match=name):
        start(tmp_path, exp)
    (tmp_path / 'problem.json').write_text(problem)


def test_other_initial_parameters_are_other_data_of_a_private_run(tmp_path):
  """Catches the same noise under another start, and public runs it stops."""
  other = {'w': changed(START['w'])}
  begin(tmp_path / 'private', own.private())
  refused(tmp_path / 'private', build(PRIVATE, start=other), '(data)')
  begin(tmp_path / 'public', build())
  start(tmp_path / 'public', build(start=other))


def test_an_error_of_one_process_stops_all(tmp_path, monkeypatch):
  """Catches processes that wait for one that has found other data."""
  begin(tmp_path, build())
  flags = iter([False, True])  # of the lock, and of what is compared
  monkeypatch.setattr(workdir.peers, 'any_process', lambda _: next(flags))
  refused(tmp_path, build(), 'Another process')


FRESH = """
import json
from fl_sketch.runs import same_run
import own_problem
print(json.dumps(same_run.problem_of(own_problem.private())))
"""


@pytest.mark.nightly
def test_a_fresh_process_makes_the_same_record():
  """Catches addresses, orders of sets and caches in a digest."""
  here = same_run.problem_of(
    private(), mesh_lib.cohort_mesh(1)
  )  # as in the other
  there = json.loads(harness.python('-c', FRESH, PYTHONHASHSEED='7'))
  assert there | {'device': here['device']} == here


def test_every_file_of_the_source_counts(tmp_path, monkeypatch):
  """Catches an upgrade under the same version number."""
  monkeypatch.setattr(digests, 'ROOT', tmp_path)
  (tmp_path / 'utils').mkdir()
  sources = {digests.of_source.__wrapped__()}
  for name, text in (('a.py', ''), ('a.py', '1'), ('b.py', '')):
    (tmp_path / 'utils' / name).write_text(text)
    sources.add(digests.of_source.__wrapped__())
  assert len(sources) == 4


def test_a_store_is_read_in_private_runs_alone(tmp_path, monkeypatch):
  """Catches a private run on a store that was changed under its times."""
  x = np.arange(48, dtype=np.uint8).reshape(12, 4)
  exp = store_of(tmp_path / 'store', x, PRIVATE)
  plain = exp._replace(guarantee=None)
  read, of_array = [], digests.of_array
  note = lambda x: read.append(isinstance(x, np.memmap)) or of_array(x)
  monkeypatch.setattr(digests, 'of_array', note)
  wanted = same_run.problem_of(plain)
  assert not any(read)
  problem = same_run.problem_of(exp)
  assert any(read)
  assert problem.pop('noise multiplier') == 1
  assert problem.pop('one round')  # which an ordinary run does not trace
  assert problem.pop('data') != wanted['data']  # with initial parameters
  assert problem.items() < wanted.items()
  in_memory = plain._replace(data={k: v[:] for k, v in plain.data.items()})
  assert same_run.problem_of(in_memory) == wanted


@pytest.mark.nightly
def test_hyperparameters_are_no_part_of_a_round():
  """Catches a resumed run, or a point of a sweep, that is refused."""
  fields = PRIVATE | {
    'noise_multiplier': 3.0, 'clip_norm': 0.5, 'client_lr': 0.3, 'rounds': 9,
    'eval_every': 3, 'rounds_per_dispatch': 4, 'seed': 1,
  }  # fmt: skip
  other = same_run.problem_of(build(fields))
  assert record(private())['one round'] == other['one round']
  point = runs.reconfigured(private(), config.Config(**fields))
  assert same_run.problem_of(point) == other
