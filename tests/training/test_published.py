"""Runs whose data differ, file by file, against the table of what they say."""

import functools
import json
import shutil
import typing

from fl_sketch import experiment, models, training
from fl_sketch.data import store
from fl_sketch.experiment import config, published
from fl_sketch.training import sinks
from fl_sketch.utils import markdown
import jax
import numpy as np
import orbax.checkpoint as ocp
from own_problem import CLIENTS, PRIVATE, build, values
import pytest
import runs

pytestmark = pytest.mark.xdist_group('public metrics')
HINT = typing.get_type_hints(config.Config, include_extras=True)
KINDS = typing.get_args(HINT['public_metrics'])[0].__metadata__[0].names
(HIDDEN,) = {*KINDS} - {'all', 'private'}
FIXED = PRIVATE | {
  'personal_steps': 1, 'personal_lr': 0.1, 'noise_seed': 1,
  'eval_every': 1, 'checkpoint_every': 1, 'dropout': 0.2, 'batch_size': 0,
}  # fmt: skip
OWN = FIXED | {'client_holdout': 0.3, 'keep_best': 'test_loss'}
# Clients keep what was not sent.
RESIDUALS = OWN | {
  'sketch': {'kind': 'count_sketch', 'rows': 1, 'cols': 3}, 'cohort': 3,
  'algorithm': 'sketched_sgd', 'local_steps': 1, 'options': {'k': 2},
  'adjacency': 'replace_one',
}  # fmt: skip
STORE = FIXED | {'dataset': 'store', 'model': 'own_faint'}
SIZES, HELD = np.array([3, 4, 5]), np.array([2, 1, 3])
PART = {'trained': 0, 'held': 1}
TIMED = '_CHECKPOINT_METADATA', 'digests.json', 'commit_success.txt'


def faint(x):
  """The same number with hardly a gradient, so that an update is 0 on the grid.

  What is broadcast then depends on no data.
  """
  fixed = jax.lax.stop_gradient(x)
  return fixed + 1e-30 * (x - fixed)


def faint_values(params, batch):
  return {'loss': faint(values(params, batch)['loss'])}


def own_faint(num_classes):
  apply = lambda w, x, key: faint(x.reshape(len(x), -1) @ w)
  start = np.linspace(-1, 1, 4 * num_classes, dtype=np.float32)
  return models.Model(lambda key, x: start.reshape(4, num_classes), apply)


def own(fields, other=None):
  """Clients of arrays, one of whose samples is another one."""
  labels, plain = np.arange(12) % 2, build(fields)
  data = [{k: x.copy() for k, x in client.items()} for client in CLIENTS]
  if other is not None:
    part = (plain.partition, plain.held_out)[PART[other]]
    who, which = divmod(int(part.client(1)[0]), 4)
    data[who]['x'][which] += 1
    data[who]['y'][which] += 1
  test = {k: x + 1 for k, x in CLIENTS[0].items()}
  more = {'values_fn': faint_values, 'labels': labels, 'test': test}
  return build(fields, clients=data, **more)


def of_store(folder, fields, other=None, test=None):
  """A store whose clients hold samples out, unless there is a test."""
  rng = np.random.default_rng(0)
  arrays = lambda n: {
    'x': rng.integers(256, size=(n, 4), dtype=np.uint8), 'y': np.arange(n) % 2
  }  # fmt: skip
  parts = arrays(SIZES.sum()), arrays(HELD.sum())
  if other is not None:
    which = PART[other]
    parts[which]['x'][(SIZES, HELD)[which][0]] ^= 128  # of client 1
  held = (None, None) if test else (HELD, parts[1])
  chunk = store.Chunk(SIZES, parts[0], *held)
  store.write(folder, [chunk], parts[1] if test else None, num_classes=2)
  fields = fields | {'dataset_options': {'folder': str(folder)}}
  return experiment.build(fields)


def content(path):
  """What a file has that no clock or host decides, by a name for each part."""
  if path.name in ('metrics.jsonl', 'summary.json'):
    one = path.read_text().replace('\n  ', ' ').replace('\n}', '}')
    rows = [json.loads(line) for line in one.splitlines()]
    return {
      k: [row.get(k) for row in rows]
      for row in rows
      for k in {*row} - {'seconds'}
    }
  if path.parent.name == 'tensorboard':
    raw, records = path.read_bytes(), []
    while raw:  # of sizes, checksums, and events that begin with a time
      size = int.from_bytes(raw[:8], 'little')
      records += [raw[12 + 9 : 12 + size]] * (b'seconds' not in raw[:99])
      raw = raw[12 + size + 4 :]
    return {'': records[1:]}
  if path.suffix == '.npz':
    with np.load(path) as z:
      return {'': [z[name].tolist() for name in z.files]}
  return {'': path.read_bytes()}


def contents(folder, printed):
  """(name in the table, part) -> content, of all that a run has left."""
  found: dict = {('printed lines', ''): printed}
  for path in sorted(folder.rglob('*')):
    name = path.relative_to(folder).as_posix()
    if path.name == 'arrays':  # of a checkpoint, in files with times
      reader = ocp.Checkpointer(ocp.PyTreeCheckpointHandler())
      tree = reader.metadata(path).item_metadata.tree
      host = jax.tree.map(
        lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree
      )
      tree = reader.restore(path, restore_args=host)
      found[name, ''] = jax.tree.map(np.ndarray.tolist, tree)
    elif path.is_file() and '/arrays/' not in name:
      timed = path.name in TIMED
      name = name.replace(path.name, '*') * ('tensorboard' in name) or name
      parts = {'': ''} if timed else content(path)
      found |= {(name, part): x for part, x in parts.items()}
  return found


PROBLEMS = {'own': OWN, 'residuals': RESIDUALS, 'store': STORE}


@pytest.fixture
def play(tmp_path, capfd, own_parts):
  """(name of a problem, kind, other data) -> config, contents of the folder."""

  models.register(own_faint)

  @functools.cache
  def played(name, kind, other=None):
    fields = PROBLEMS[name] | {'public_metrics': kind}
    to = tmp_path / f'{other}'
    if name == 'store':
      shutil.rmtree(tmp_path / 'store', ignore_errors=True)
      exp = of_store(tmp_path / 'store', fields, other)
    else:
      exp = own(fields, other)
    capfd.readouterr()
    with sinks.opened(['tensorboard'], to, exp.config) as on_row:
      training.train(exp, to, progress=False, on_row=on_row)
    return exp, contents(to, capfd.readouterr())

  return played


@pytest.mark.representatives(f'store-{HIDDEN}')
@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('name', PROBLEMS)
def test_only_what_the_table_names_tells_of_clients(name, kind, play):
  """Catches a row, figure, choice or line that one client's data change.

  And a file that no item has. Models and seeds of noise are equal in all runs.
  """
  exp, base = play(name, kind)
  c, given = exp.config, {'keeps_state': name == 'residuals'}
  given |= {'test_of_clients': name == 'store'}
  columns = {part for file, part in base if file == 'metrics.jsonl'}
  says = lambda items, name: published.says(c, items, name, **given)
  assert published.ABSENT not in {says(published.COLUMNS, x) for x in columns}
  assert published.ABSENT not in {says(published.FILES, x) for x, _ in base}
  told = {}
  for other in PART:
    changed = play(name, kind, other)[1]
    told[other] = {k for k in base | changed if base.get(k) != changed.get(k)}
    moved = {x for file, x in told[other] if file == 'metrics.jsonl'}
    for file, part in told[other]:
      what = says(published.FILES, file)
      if what == published.ROWS and part in columns:
        what = says(published.COLUMNS, part)
      elif what == published.ROWS and moved:  # which are copied or drawn
        what = published.EXACT
      assert what not in (published.NOTHING, published.ROWS), (file, part)
  names = {k: {part or file for file, part in told[k]} for k in told}
  kept = {'problem.json'}
  if name == 'residuals':
    kept |= {x for x in names['trained'] if 'client_rows' in x}
    assert len(kept) > 1
  if kind == HIDDEN:
    assert names == {'trained': kept, 'held': {'problem.json'}}
  elif kind == 'private':
    # Own losses exceed the loss_bound, to which they are clipped.
    found = 'train_loss' in names['trained'] - names['held']
    assert found == (name == 'store')
    assert 'test_loss' not in columns or name != 'store'
  else:
    assert {'train_loss', 'loss.png'} <= names['trained']
    assert {'personal_loss_mean', 'clients.png'} <= names['held']
    assert ('test_loss' in names['held']) == (name == 'store')


def caveats(exp):
  return ' '.join(exp.guarantee.statement.caveats)


def test_a_statement_says_whose_the_test_set_is(tmp_path, own_parts):
  """Catches test metrics of clients that nobody is told of, or public ones."""
  models.register(own_faint)
  for kind in KINDS:
    fields = STORE | {'public_metrics': kind, 'personal_steps': None}
    fields |= {'personal_lr': None}
    texts = {}
    for test in (False, True):
      exp = of_store(tmp_path / f'{kind} {test}', fields, test=test)
      assert exp.test_of_clients != test
      assert published.evaluates(exp.config, not test) == (
        test or kind == 'all'
      )
      texts[test] = caveats(exp)
    assert 'No training client holds the test set.' in texts[True]
    said = 'test metrics are without noise'
    if kind != 'all':
      said = 'test metrics are left out'
    assert f'Training clients hold the test set: {said}.' in texts[False]
    assert ('*test_*' in texts[False]) == (kind == 'all')
    account = experiment.account(exp.config).statement.caveats
    assert f'If training clients hold the test set, {said}.' in ' '.join(
      account
    )


def test_no_model_is_chosen_by_what_is_not_published(tmp_path, own_parts):
  """Catches best/, which tells when a client's held-out loss was least."""
  models.register(own_faint)
  fields = STORE | {'keep_best': 'test_loss'}
  for kind in {*KINDS} - {'all'}:
    with pytest.raises(
      config.ConfigError, match="'test_loss': training clients"
    ):
      of_store(tmp_path / kind, fields | {'public_metrics': kind})
  fields |= {'public_metrics': 'all'}
  assert 'best/* (chosen by' in caveats(of_store(tmp_path / 'all', fields))
  fields |= {'public_metrics': HIDDEN, 'personal_steps': None}
  of_store(tmp_path / 'test', fields | {'personal_lr': None}, test=True)


def test_rounds_have_metrics_without_noise_only_if_all_are_published():
  """Catches a metric of local work that a hidden or a private run lets out."""
  metrics = 'train_loss', 'participants', 'rejected_clients', 'gradient_norm'
  for kind in (None, *KINDS):
    c = config.Config(**PRIVATE, public_metrics=kind)
    found = {published.without_noise(c, name) for name in metrics}
    assert found == {kind in (None, 'all')}
    assert not published.without_noise(c, 'finite')


def test_the_guide_shows_the_table():
  """Catches a page that tells of another table than the code."""
  text = (runs.ROOT / 'docs/guides/privacy.md').read_text()
  start = text.index('| columns or file')
  head, *rows = markdown.cells(text[start:].partition('\n\n')[0])
  code = lambda names: ', '.join(f'`{name}`' for name in names.split(', '))
  items = (*published.COLUMNS, *published.FILES)
  assert rows == [[code(item.names), *item[1:]] for item in items]
  assert len(head) == len(published.Item._fields)
