"""A folder knows its problem: what differs between two starts is named."""

import dataclasses
import functools
import json
import re
import shutil
import subprocess
import sys

from fl_sketch import experiment, models, training
from fl_sketch.data import ragged, store
from fl_sketch.experiment import config, custom
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.training import identity, noise_secret, same_run, workdir
from fl_sketch.utils import digests
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import registered
from runs import ROOT, SMALL

X = np.arange(48, dtype=np.float32).reshape(12, 4) % 7
CLIENTS = [{'x': X[i : i + 4], 'y': X[i : i + 4, 0]} for i in (0, 4, 8)]
START = {'w': np.linspace(-1, 1, 4, dtype=np.float32)}
SHIFT = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)
FIELDS = {'population': 3, 'cohort': 3, 'rounds': 2, 'standardize': False}
PRIVATE = FIELDS | {
  'algorithm': 'dp_fedavg', 'sampling': 'poisson', 'cohort': 2,
  'noise_multiplier': 1.0, 'clip_norm': 1.0, 'delta': 1e-2,
}  # fmt: skip


def values(params, batch, activation=jax.nn.relu, shift=SHIFT, scale=1.0):
  guess = activation(batch['x'] @ params['w'] + shift[0, 0])
  for row in shift:  # captured by a loop's body
    guess = jax.lax.fori_loop(0, 2, lambda _, g, row=row: g + row[0], guess)
  return {'loss': scale * jnp.square(guess - batch['y'])}


@jax.custom_vjp
def twice(x):
  return 2 * x


@jax.custom_vjp
def twice_but_for_its_gradient(x):
  return 2 * x


twice.defvjp(lambda x: (2 * x, None), lambda _, g: (2 * g,))
twice_but_for_its_gradient.defvjp(
  lambda x: (2 * x, None), lambda _, g: (3 * g,)
)


def changed(x, index=-1):
  return np.concatenate([x[:index], x[index:] + 1])


def build(
  fields=FIELDS, values_fn=values, start=START, clients=CLIENTS, **more
):
  task = custom.problem(
    (start, values_fn), clients, more.pop('test', CLIENTS[0])
  )
  partition = more.pop('partition', task.partition)
  c = config.Config(**fields)
  return experiment.assemble(c, task._replace(**more), partition)


def with_values(**changes):
  return {'values_fn': functools.partial(values, **changes)}


one_image = [*CLIENTS[:2], CLIENTS[2] | {'x': changed(CLIENTS[2]['x'])}]
SWAPS = {
  'tanh': (with_values(activation=jnp.tanh), 'model and loss'),
  'the loss': (with_values(scale=2.0), 'model and loss'),
  'a captured array': (with_values(shift=changed(SHIFT)), 'model and loss'),
  'the start': ({'start': {'w': changed(START['w'])}}, 'start'),
  'an image': ({'clients': one_image}, 'training data x'),
  'a test image': (
    {'test': CLIENTS[0] | {'x': changed(CLIENTS[0]['x'])}},
    'test data x',
  ),
  'the partition': (
    {'partition': ragged.Partition(None, np.array([0, 3, 8, 12]))},
    'partition',
  ),
  'the order': (
    {'partition': ragged.Partition(np.arange(12)[::-1], np.arange(0, 13, 4))},
    'partition',
  ),
}


def begin(folder, exp):
  """What a run leaves that was killed before its first checkpoint."""
  run = workdir.Workdir(folder, exp.config, identity.of(exp))
  run.begin(0)
  run.write({'round': 0})
  run.close()


def start(folder, exp):
  workdir.Workdir(folder, exp.config, identity.of(exp)).close()


@pytest.mark.parametrize('fields', [FIELDS, PRIVATE], ids=['plain', 'private'])
@pytest.mark.parametrize('name', SWAPS)
def test_another_problem_is_refused_by_name(name, fields, tmp_path):
  """Catches a folder that goes on with, or returns, another problem's run."""
  changes, what = SWAPS[name]
  begin(tmp_path, build(fields))
  start(tmp_path, build(fields))
  files = {p: p.read_bytes() for p in tmp_path.iterdir()}
  if (fields, what) == (PRIVATE, 'model and loss'):
    what += '; one round'  # of which the loss is a part
  message = re.escape(f'holds a run of another problem ({what})')
  with pytest.raises(workdir.WorkdirError, match=message):
    start(tmp_path, build(fields, **changes))
  assert {p: p.read_bytes() for p in tmp_path.iterdir()} == files


def test_gradients_that_no_loss_shows_are_seen():
  """Catches another rule of a gradient under the same forward pass."""
  first, second = (
    identity.record(
      [(jax.value_and_grad(lambda w, _, f=f: f(w).sum()), {})], X, {}
    )
    for f in (twice, twice_but_for_its_gradient)
  )
  assert same_run.differences(first, second).keys() == {'model and loss'}


FRESH = """
import json, sys
sys.path[:0] = ['tests/support', '.']
from tests.training import test_identity
print(json.dumps([*map(test_identity.identity.of, test_identity.two())]))
"""


def two():
  """Experiments of a function with constants in loops, and of a module."""
  return build(PRIVATE), experiment.build(SMALL, draw=False)


def test_a_fresh_process_makes_the_same_records():
  """Catches addresses, orders of sets and caches in a digest."""
  mesh = mesh_lib.cohort_mesh(1)  # there is one device
  env = {'PYTHONHASHSEED': '7', 'JAX_PLATFORMS': 'cpu'}
  done = subprocess.run(
    [sys.executable, '-c', FRESH],
    cwd=ROOT, env=env, capture_output=True, text=True, check=True,
  )  # fmt: skip
  there = json.loads(done.stdout)
  here = [identity.of(exp, mesh) for exp in two()]
  for record in (*there, *here):
    record.pop('device')
  assert there == here


def test_a_record_does_not_depend_on_what_was_traced_before():
  """Catches jaxprs whose text shows what the caches of JAX share."""
  first = identity.of(build())
  jax.clear_caches()
  assert identity.of(build()) == first


def test_a_killed_private_run_does_not_go_on_with_corrected_images(tmp_path):
  """Catches noise that cancels in the difference of two releases."""
  exp = build(PRIVATE)
  result = training.train(exp, tmp_path, progress=False)
  assert result.finished
  shutil.rmtree(tmp_path / 'checkpoints')
  (tmp_path / 'summary.json').unlink()
  rows = (tmp_path / 'metrics.jsonl').read_bytes()
  corrected = build(PRIVATE, clients=one_image)
  message = r'\(training data x\): some rounds would be released twice'
  with pytest.raises(workdir.WorkdirError, match=message):
    training.train(corrected, tmp_path, progress=False)
  assert (tmp_path / 'metrics.jsonl').read_bytes() == rows
  # Even where problem.json was removed or replaced, noise is not used again.
  (tmp_path / 'problem.json').unlink()
  with pytest.raises(workdir.WorkdirError, match=r'has no problem\.json'):
    training.train(corrected, tmp_path, progress=False)
  secrets = [
    noise_secret.of_run(x.config, identity.of(x), tmp_path, resumed=True)
    for x in (exp, corrected)
  ]
  assert secrets[0].sampling_seed != secrets[1].sampling_seed


def dropped(num_classes, rate=0.1, scale=1.0):
  """A linear model whose inputs drop out, with a hyperparameter."""

  def apply(params, x, key):
    x = x.reshape(len(x), -1)
    if key is not None:
      x = jnp.where(jax.random.bernoulli(key, rate, x.shape), 0.0, x)
    return scale * x @ params

  return models.Model(lambda key, x: jnp.zeros((64, num_classes)), apply)


def test_dropout_of_a_model_with_hyperparameters_is_seen():
  """Catches a loss that is never traced with a key."""
  with registered.forgotten():
    models.register(dropped, name='own_dropped', hyper=('scale',))
    records = [
      identity.of(
        experiment.build(
          SMALL | {'model': 'own_dropped', 'model_options': options}
        )
      )
      for options in ({'scale': 2.0}, {'scale': 2.0, 'rate': 0.2})
    ]
  assert same_run.differences(*records).keys() == {'model and loss'}


VERSIONS = {
  'source of fl_sketch': '0' * 64, 'fl_sketch': '0.0.0', 'jax': '0.0.0',
  'numpy': '1.0.0', 'python': '3.0.0', 'device': '9 x cpu', 'processes': 7,
  'deterministic kernels': False,
}  # fmt: skip


def edit(folder, **entries):
  path = folder / 'problem.json'
  path.write_text(json.dumps(json.loads(path.read_text()) | entries))


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
  message = begin_elsewhere(tmp_path, build(PRIVATE), name)
  with pytest.raises(workdir.WorkdirError, match=message):
    start(tmp_path, build(PRIVATE))


@pytest.mark.representatives('jax-plain', 'numpy-plain', 'jax-public')
@pytest.mark.parametrize(
  'fields', [FIELDS, PRIVATE | {'noise_seed': 0}], ids=['plain', 'public']
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
  calibrated = {'noise_multiplier': None, 'epsilon': 3.0, 'cohort': 3}
  exp = build(PRIVATE | calibrated | {'sampling': 'fixed_size'})
  assert exp.guarantee.noise_multiplier > 0
  begin(tmp_path, exp)
  edit(tmp_path, **{'noise multiplier': 9.0})
  message = r'\(noise multiplier: 9\.0 then, .* now\)'
  with pytest.raises(workdir.WorkdirError, match=message):
    start(tmp_path, exp)


@pytest.mark.parametrize('other', [{'jax': '0.0.0'}, {'device': '2 x H100'}])
def test_jaxprs_of_another_jax_are_not_compared(other, tmp_path):
  """Catches a refusal because another version prints or rounds otherwise."""
  begin(tmp_path, build())
  edit(tmp_path, **other | {'model and loss': '', 'start': ''})
  message = r'or devices \(.*model and loss; start.*\); results may differ'
  with pytest.warns(UserWarning, match=message):
    start(tmp_path, build())
  with pytest.raises(workdir.WorkdirError, match=r'\(training data x\)'):
    start(tmp_path, build(clients=one_image))


def test_every_file_of_the_source_counts(tmp_path, monkeypatch):
  """Catches an upgrade under the same version number."""
  package = tmp_path / 'fl_sketch' / 'utils'
  package.mkdir(parents=True)
  monkeypatch.setattr(digests, 'ROOT', package.parent)
  of_source = digests.of_source.__wrapped__
  found = [of_source()]
  for name, text in (('a.py', ''), ('a.py', '1'), ('b.py', ''), ('c.txt', '')):
    (package / name).write_text(text)
    found.append(of_source())
  (package / 'b.py').rename(package / 'd.py')
  found.append(of_source())
  assert len({*found}) == len(found) - 1
  assert found[3] == found[4]  # c.txt is no source


BEGUN = ['config.json', 'metrics.jsonl', 'checkpoints/4/arrays']


@pytest.mark.parametrize('left', BEGUN)
@pytest.mark.parametrize('fields', [FIELDS, PRIVATE], ids=['plain', 'private'])
def test_a_folder_without_a_problem_is_refused(left, fields, tmp_path):
  """Catches an old folder that goes on with whatever problem there is."""
  exp = build(fields)
  begin(tmp_path, exp)
  (tmp_path / 'checkpoints' / '4' / 'arrays').mkdir(parents=True)
  if left != BEGUN[-1]:
    shutil.rmtree(tmp_path / 'checkpoints')
  for name in {*BEGUN[:2], 'problem.json'} - {left}:
    (tmp_path / name).unlink()
  with pytest.raises(
    workdir.WorkdirError, match=r'has no problem\.json: model'
  ):
    start(tmp_path, exp)


@pytest.mark.parametrize('text', ['', '{"start"', '[1]', '{}'])
def test_a_damaged_problem_is_named(text, tmp_path):
  """Catches a file that compares equal because it says nothing."""
  begin(tmp_path, build())
  (tmp_path / 'problem.json').write_text(text)
  message = (
    'another problem' if text == '{}' else r'problem\.json is not a prob'
  )
  with pytest.raises(workdir.WorkdirError, match=message):
    start(tmp_path, build())


def test_a_folder_without_permissions_is_named(tmp_path):
  """Catches a traceback where the workdir cannot be made, read or locked."""
  (tmp_path / 'file').write_text('')
  with pytest.raises(workdir.WorkdirError, match='file/run cannot be made'):
    start(tmp_path / 'file' / 'run', build())
  for name, message in (
    ('problem.json', r'problem\.json cannot be read'),
    ('lock', 'unlocked cannot be written'),
  ):
    folder = tmp_path / 'unlocked'
    (folder / name).mkdir(parents=True)
    with pytest.raises(workdir.WorkdirError, match=message):
      start(folder, build())
    (folder / name).rmdir()


def test_an_error_of_one_process_stops_all(tmp_path, monkeypatch):
  """Catches processes that wait for one that has found other data."""
  begin(tmp_path, build())
  flags = iter([False, True])  # of the lock, and of what is compared
  monkeypatch.setattr(workdir.processes, 'any_process', lambda _: next(flags))
  with pytest.raises(workdir.WorkdirError, match='Another process refuses'):
    start(tmp_path, build())


def write_store(folder, x):
  arrays = {'x': x, 'y': np.arange(12) % 2}
  store.write(folder, [(np.full(3, 4), arrays)], arrays, num_classes=2)


def test_a_store_is_read_in_private_runs_alone(tmp_path, monkeypatch):
  """Catches a private run on a store that was changed under its times."""
  x = np.arange(48, dtype=np.uint8).reshape(12, 4)
  write_store(tmp_path / 'store', x)
  folder = {'folder': str(tmp_path / 'store')}
  fields = {'dataset': 'store', 'dataset_options': folder}
  fields |= {'model': 'linear', 'model_options': None}
  plain, private = (experiment.build(f | fields) for f in (FIELDS, PRIVATE))
  read, of_array = [], digests.of_array
  note = lambda x: read.append(isinstance(x, np.memmap)) or of_array(x)
  monkeypatch.setattr(digests, 'of_array', note)
  records = []
  for exp, is_private in ((plain, False), (private, True)):
    records.append(identity.of(exp))
    assert any(read) == is_private
    read.clear()
  assert records[1].pop('noise multiplier') == 1
  assert records[1].pop('one round')
  assert records[0] == records[1]
  in_memory = plain._replace(data={k: v[:] for k, v in plain.data.items()})
  assert identity.of(in_memory) == records[0]


def test_points_of_a_problem_share_a_record():
  """Catches a record that depends on what only the config says."""
  exp = build()
  c = dataclasses.replace(exp.config, client_lr=0.5, rounds=9)
  assert identity.of(experiment.reconfigured(exp, c)) == identity.of(exp)


def test_parameters_that_are_not_drawn_are_not_compared(tmp_path):
  """Catches a finished run that is refused because nothing is drawn again."""
  fields = SMALL | {'model': 'linear', 'model_options': None}
  drawn, shapes = (experiment.build(fields, draw=d) for d in (True, False))
  records = identity.of(drawn), identity.of(shapes)
  assert records[0].keys() - records[1].keys() == {'start'}
  for record, folder in zip(records, ('drawn', 'shapes'), strict=True):
    (tmp_path / folder).mkdir()
    (tmp_path / folder / 'problem.json').write_text(json.dumps(record))
  for private in False, True:
    check = functools.partial(same_run.check_problem, private=private)
    check(tmp_path / 'drawn', records[1])
    with pytest.raises(workdir.WorkdirError, match=r'\(start\)'):
      check(tmp_path / 'shapes', records[0])
