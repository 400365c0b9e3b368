"""A start in the folder of another problem, or of other code, is refused."""

import functools
import json
import re
import shutil

from fl_sketch import experiment, training
from fl_sketch.data import ragged
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.training import identity, noise_secret, same_run, workdir
import jax.numpy as jnp
import numpy as np
import optax
import own_problem as own
from own_problem import ONE_IMAGE, PRIVATE, START, begin, build, changed, start
import pytest
from runs import SMALL

TEST_IMAGE = own.CLIENTS[0] | {'x': changed(own.CLIENTS[0]['x'])}
EDGES = np.array([0, 3, 8, 12])
ORDER = ragged.Partition(np.arange(12)[::-1], np.arange(0, 13, 4))
SWAPS = {
  'tanh': (own.with_values(activation=jnp.tanh), 'model and loss'),
  'the loss': (own.with_values(scale=2.0), 'model and loss'),
  'captured': (own.with_values(shift=changed(own.SHIFT)), 'model and loss'),
  'the start': ({'start': {'w': changed(START['w'])}}, 'start'),
  'an image': ({'clients': ONE_IMAGE}, 'training data x'),
  'a test image': ({'test': TEST_IMAGE}, 'test data x'),
  'the partition': ({'partition': ragged.Partition(None, EDGES)}, 'partition'),
  'the order': ({'partition': ORDER}, 'partition'),
}


def refused(folder, exp, message):
  with pytest.raises(workdir.WorkdirError, match=message):
    start(folder, exp)


@pytest.mark.parametrize(
  ('name', 'fields'),
  [*((name, own.FIELDS) for name in SWAPS), ('tanh', PRIVATE)],
  ids=[*SWAPS, 'private'],
)
def test_another_problem_is_refused_by_name(name, fields, tmp_path):
  """Catches a folder that goes on with, or returns, another problem's run."""
  changes, what = SWAPS[name]
  begin(tmp_path, build(fields))
  start(tmp_path, build(fields))
  content = lambda: {p: p.read_bytes() for p in tmp_path.glob('*.json*')}
  files = content()
  if fields is PRIVATE:
    what += '; one round'  # of which the loss is a part
  message = re.escape(f'holds a run of another problem ({what})')
  refused(tmp_path, build(fields, **changes), message)
  assert content() == files


def test_a_problem_confirms_no_guess_of_data(tmp_path):
  """Catches a digest that who knows all samples but one can guess."""
  one, path = tmp_path / 'one', tmp_path / 'one' / 'problem.json'
  exp, seeded = own.private(), build(PRIVATE | {'noise_seed': 0})
  problem, then = own.record(exp), []
  for name, each in (('one', exp), ('two', exp), ('seeded', seeded)):
    begin(tmp_path / name, each)
    then.append(json.loads((tmp_path / name / 'problem.json').read_text()))
  of_data = [k for k in problem if ' data ' in k or k == 'partition']
  for name in *of_data, 'model and loss':
    assert then[2][name] == problem[name] not in path.read_text()
    assert then[0][name] != then[1][name]
  assert len(of_data) == 6
  start(one, exp)
  other = build(PRIVATE, clients=ONE_IMAGE)
  refused(one, other, r'\(training data x\): some rounds')
  path.write_text(json.dumps(problem))  # as older versions did
  start(one, exp)
  refused(one, other, r'\(training data x\)')
  path.write_text(json.dumps(then[1]))  # of another secret
  refused(one, exp, 'training data x')


def test_without_its_secret_a_run_is_compared_by_what_is_open(tmp_path):
  """Catches a finished run that cannot be read once its secret is deleted."""
  begin(tmp_path, own.private())
  shutil.rmtree(tmp_path / 'secret')
  with pytest.warns(UserWarning, match='its data and programs are not comp'):
    start(tmp_path, build(PRIVATE, clients=ONE_IMAGE))
  exp = build(PRIVATE, start={'w': changed(START['w'])})
  with pytest.warns(UserWarning, match='has no secret'):
    refused(tmp_path, exp, r'\(start\)')
  run = workdir.Workdir(tmp_path / 'new', exp.config, own.record(exp))
  with pytest.raises(workdir.WorkdirError, match='new has no secret'):
    run.begin(0)
  run.close()


def secrets_of(folder, *experiments):
  """The number of secrets that these have in a folder."""
  secrets = {
    noise_secret.of_run(
      exp.config, own.record(exp), folder, resumed=True
    ).sampling_seed
    for exp in experiments
  }
  return len(secrets)


def test_a_killed_private_run_does_not_go_on_with_corrected_images(tmp_path):
  """Catches noise that cancels in the difference of two releases."""
  exp = own.private()
  result = training.train(exp, tmp_path, progress=False)
  assert result.finished
  shutil.rmtree(tmp_path / 'checkpoints')
  (tmp_path / 'summary.json').unlink()
  rows = (tmp_path / 'metrics.jsonl').read_bytes()
  corrected = build(PRIVATE, clients=ONE_IMAGE)
  message = r'\(training data x\): some rounds would be released twice'
  with pytest.raises(workdir.WorkdirError, match=message):
    training.train(corrected, tmp_path, progress=False)
  assert (tmp_path / 'metrics.jsonl').read_bytes() == rows
  # Even where problem.json was removed or replaced, noise is not used again.
  (tmp_path / 'problem.json').unlink()
  refused(tmp_path, corrected, r'has no problem\.json')
  assert secrets_of(tmp_path, exp, corrected) == 2


def stronger(exp):
  """The experiment with another server, which no file or config tells."""

  def make(hp):
    algorithm = exp.make(hp)
    server = optax.chain(algorithm.server, optax.scale(2.0))
    server = optax.with_extra_args_support(server)
    return algorithm._replace(server=server)

  return exp._replace(make=make)


def test_another_algorithm_is_refused_wherever_it_comes_from(tmp_path):
  """Catches noise that is used again for an algorithm of a notebook."""
  exp = own.private()
  begin(tmp_path, exp)
  refused(tmp_path, stronger(exp), r'another problem \(one round')
  noise_secret.keep(tmp_path, resumed=False)
  assert secrets_of(tmp_path, exp, stronger(exp)) == 2


def test_another_mesh_is_refused(tmp_path):
  """Catches released rounds that are played again with other rounding."""
  exp = own.private()
  begin(tmp_path, exp)  # on both devices
  one = identity.of(exp, mesh_lib.cohort_mesh(1))
  with pytest.raises(workdir.WorkdirError, match=r'problem \(one round'):
    workdir.Workdir(tmp_path, exp.config, one)
  # Where the noise is public, devices may change.
  same_run.check_problem(tmp_path, one, private=False)


VERSIONS = {
  'source of fl_sketch': '0' * 64, 'fl_sketch': '0.0.0', 'jax': '0.0.0',
  'numpy': '1.0.0', 'python': '3.0.0', 'device': '9 x cpu', 'processes': 7,
  'deterministic kernels': False,
}  # fmt: skip


def edit(folder, **entries):
  path = folder / 'problem.json'
  record = json.loads(path.read_text())
  assert record.keys() >= entries.keys()
  path.write_text(json.dumps(record | entries))


def begin_elsewhere(folder, exp, name):
  """Begins a run with another version; returns how it is named."""
  begin(folder, exp)
  edit(folder, **{name: VERSIONS[name]})
  if name == 'source of fl_sketch':
    return r'\(source of fl_sketch\)'
  return re.escape(f'({name}: {VERSIONS[name]!r} then, ')


@pytest.mark.representatives('source of fl_sketch', 'jax')
@pytest.mark.parametrize('name', VERSIONS)
def test_other_code_is_refused_in_private_runs(name, tmp_path):
  """Catches a private run that is resumed with other noise or rounding."""
  message = begin_elsewhere(tmp_path, own.private(), name)
  refused(tmp_path, own.private(), message)


@pytest.mark.representatives('jax-plain', 'numpy-plain', 'jax-public')
@pytest.mark.parametrize(
  'fields', [own.FIELDS, PRIVATE | {'noise_seed': 0}], ids=['plain', 'public']
)
@pytest.mark.parametrize('name', VERSIONS)
def test_other_code_is_warned_of_elsewhere(name, fields, tmp_path):
  """Catches numbers of two versions in one run that nobody is told of."""
  message = begin_elsewhere(tmp_path, build(fields), name)
  if name in ('source of fl_sketch', 'fl_sketch', 'jax'):
    with pytest.warns(UserWarning, match=message):
      start(tmp_path, build(fields))
  else:  # a warning would be an error
    start(tmp_path, build(fields))


def test_another_noise_multiplier_is_refused(tmp_path):
  """Catches one noise in two sizes, by two versions of the accountant."""
  exp = own.private()
  begin(tmp_path, exp)
  edit(tmp_path, **{'noise multiplier': 9.0})
  refused(tmp_path, exp, r'\(noise multiplier: 9\.0 then, 1\.0 now\)')


@pytest.mark.parametrize('other', [{'jax': '0.0.0'}, {'device': '2 x H100'}])
def test_jaxprs_of_another_jax_are_not_compared(other, tmp_path):
  """Catches a refusal because another version prints or rounds otherwise."""
  begin(tmp_path, build())
  edit(tmp_path, **other | {'model and loss': '', 'start': ''})
  message = r'or devices \(.*model and loss; start.*\); results may differ'
  with pytest.warns(UserWarning, match=message):
    start(tmp_path, build())
  refused(tmp_path, build(clients=ONE_IMAGE), r'\(training data x\)')


@pytest.mark.parametrize(
  'left', ['config.json', 'metrics.jsonl', 'checkpoints/4/arrays/d']
)
def test_a_folder_without_a_problem_is_refused(left, tmp_path):
  """Catches an old folder that goes on with whatever problem there is."""
  exp = build()
  if left == 'config.json':
    begin(tmp_path, exp)
    (tmp_path / 'problem.json').unlink()
    (tmp_path / 'metrics.jsonl').unlink()
  else:
    (tmp_path / left).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / left).touch()
  refused(tmp_path, exp, r'has no problem\.json: model')


@pytest.mark.parametrize('text', ['', '{"start"', '[1]', '{}'])
def test_a_damaged_problem_is_named(text, tmp_path):
  """Catches a file that compares equal because it says nothing."""
  begin(tmp_path, build())
  (tmp_path / 'problem.json').write_text(text)
  damaged = r'problem\.json is not a prob'
  refused(tmp_path, build(), 'another problem' if text == '{}' else damaged)


def test_a_folder_without_permissions_is_named(tmp_path):
  """Catches a traceback where the workdir cannot be made, read or locked."""
  (tmp_path / 'file').write_text('')
  refused(tmp_path / 'file' / 'run', build(), 'file/run cannot be made')
  for name, message in (
    ('problem.json', r'problem\.json cannot be read'),
    ('lock', 'unlocked cannot be written'),
  ):
    folder = tmp_path / 'unlocked'
    (folder / name).mkdir(parents=True)
    refused(folder, build(), message)
    (folder / name).rmdir()


def test_an_error_of_one_process_stops_all(tmp_path, monkeypatch):
  """Catches processes that wait for one that has found other data."""
  begin(tmp_path, build())
  flags = iter([False, True])  # of the lock, and of what is compared
  monkeypatch.setattr(workdir.processes, 'any_process', lambda _: next(flags))
  refused(tmp_path, build(), 'Another process refuses')


def test_parameters_that_are_not_drawn_are_not_compared(tmp_path):
  """Catches a finished run that is refused because nothing is drawn again."""
  fields = SMALL | {'model': 'linear', 'model_options': None}
  drawn, shapes = (
    identity.of(experiment.build(fields, draw=draw)) for draw in (True, False)
  )
  assert drawn.keys() - shapes.keys() == {'start'}
  path = tmp_path / 'problem.json'
  for private in False, True:
    check = functools.partial(same_run.check_problem, private=private)
    path.write_text(json.dumps(drawn))
    check(tmp_path, shapes)
    path.write_text(json.dumps(shapes))
    with pytest.raises(workdir.WorkdirError, match=r'\(start\)'):
      check(tmp_path, drawn)
