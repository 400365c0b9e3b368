"""Runs whose data differ, file by file, against the table of what they say."""

import functools
import re
import shutil
import typing

from fl_sketch import models, runs
from fl_sketch.data import store
from fl_sketch.runs import caveats, config, sweep
from fl_sketch.utils import files, markdown
import harness
import jax
import numpy as np
from own_problem import CLIENTS, PRIVATE, build, values
import published
import pytest

pytestmark = pytest.mark.xdist_group('public metrics')
HINT = typing.get_type_hints(config.Config, include_extras=True)
KINDS = typing.get_args(HINT['public_metrics'])[0].__metadata__[0].names
(HIDDEN,) = {*KINDS} - {'all', 'private'}
STORE = PRIVATE | {
  'dataset': 'store', 'model': 'own_faint', 'dropout': 0.2, 'noise_seed': 1,
  'personal_steps': 1, 'batch_size': 0, 'eval_every': 1, 'checkpoint_every': 1,
}  # fmt: skip
OWN = STORE | {
  'dataset': 'digits', 'model': 'linear', 'client_holdout': 0.3,
  'keep_best': 'test_loss', 'dropout': 0.0, 'cohort': 3,
  # Clients keep what was not sent.
  'algorithm': 'sketched_sgd', 'local_steps': 1, 'options': {'k': 2},
  'sketch': {'kind': 'count_sketch', 'rows': 1, 'cols': 3},
}  # fmt: skip
IN_FOLDER = STORE | {'dataset_options': {'folder': 'x'}}
SIZES, HELD = np.array([3, 4, 5]), np.array([2, 1, 3])


def faint(x):
  """The same number with hardly a gradient: an update is 0 on the grid."""
  fixed = jax.lax.stop_gradient(x)
  return fixed + 1e-30 * (x - fixed)


def own_faint(num_classes):
  start = np.linspace(-1, 1, 4 * num_classes, dtype=np.float32)
  start = start.reshape(4, num_classes)
  return models.Model(lambda key, x: start, lambda w, x, key: faint(x @ w))


@pytest.fixture(autouse=True)
def model(own_parts):
  models.register(own_faint)


def of_arrays(fields, other=None):
  """Clients of arrays; one sample of client 1 differs if `other` names it."""
  plain, data = build(fields), [{**client} for client in CLIENTS]
  if other is not None:
    part = plain.partition if other == 'trained' else plain.held_out
    place = part.client(1)[0] - 4
    data[1] = {k: x.copy() for k, x in data[1].items()}
    for x in data[1].values():
      x[place] += 1
  more = {'labels': np.arange(12) % 2, 'test': CLIENTS[0]}
  loss = lambda *args: {'loss': faint(values(*args)['loss'])}
  return build(fields, loss, clients=data, **more)


def of_store(folder, fields, other=None, test=False):
  """The same of a store, whose clients hold samples out without a `test`."""
  rng = np.random.default_rng(0)
  arrays = lambda n: {
    'x': rng.random((n, 4), np.float32),
    'y': np.arange(n) % 2,
  }
  train, held = arrays(12), arrays(6)
  if other is not None:
    part, first = (train, 3) if other == 'trained' else (held, 2)
    part['x'][first] += 1
  shutil.rmtree(folder, ignore_errors=True)
  chunk = store.Chunk(SIZES, train)
  if not test:
    chunk = chunk._replace(held_sizes=HELD, held_out=held)
  store.write(folder, [chunk], held if test else None, num_classes=2)
  return runs.build(fields | {'dataset_options': {'folder': str(folder)}})


@pytest.mark.representatives(f'store-{HIDDEN}')
@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('name', ['arrays', 'store'])
def test_only_what_the_table_names_tells_of_clients(
  name, kind, tmp_path, capfd, figures
):
  """Catches a file without an item, and what one client's data change."""
  fields = (OWN if name == 'arrays' else STORE) | {'public_metrics': kind}
  make = functools.partial(of_store, tmp_path / 'store')
  found, told = {}, {}
  for other in (None, 'trained', 'held'):
    exp = (of_arrays if name == 'arrays' else make)(fields, other)
    capfd.readouterr()
    runs.train(exp, tmp_path / f'{other}', progress=False)
    found[other] = published.contents(tmp_path / f'{other}', capfd.readouterr())
  given = {'keeps_state': name == 'arrays', 'test_of_clients': name == 'store'}
  for other in ('trained', 'held'):
    told[other] = published.told(exp.config, found[None], found[other], **given)
  assert 'problem.json' in told['trained'] & told['held']
  if kind == HIDDEN:
    assert told['held'] == {'problem.json'}
    kept = {x for x in told['trained'] - told['held'] if 'client_rows' not in x}
    assert not kept
  elif kind == 'all':
    assert {'train_loss', 'loss.png'} <= told['trained']
    assert 'personal_loss_mean' in told['held']
    assert ('test_loss' in told['held']) == (name == 'store')
  elif name == 'store':  # losses of the arrays exceed `loss_bound`
    assert 'train_loss' in told['trained'] - told['held']


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('fields', [IN_FOLDER, OWN | {'noise_seed': None}])
def test_a_statement_names_what_the_table_has_without_noise(fields, kind):
  """Catches an item that is left out or made up, and a page in a sentence."""
  of_clients = 'test_of_clients' if fields is IN_FOLDER else 'keeps_state'
  c = config.Config(**fields | {'public_metrics': kind})
  mechanism = runs.account(c).mechanism
  text = ' '.join(caveats.caveats(c, mechanism, 'central', None, metrics='',
    **{of_clients: True}))  # fmt: skip
  of_both = {'keeps_state': False, 'test_of_clients': None}
  lists = caveats.published(c, **of_both | {of_clients: True})
  columns, named, hidden = lists
  sizes = f'{len(columns)} columns of metrics and {len(named)} files'
  listed = ''.join(f' {name} is without noise.' for name in named)
  assert (sizes if columns else listed) in text
  assert text.count(', '.join(hidden)) == 1
  assert max(map(len, re.split(r'(?<=\.) ', text))) < 300
  items, seen = (*published.COLUMNS, *published.FILES), set()
  for item in published._present(c, items, **{of_clients: True}):
    names = item.names.replace('*_bytes', 'bytes')
    for name in names.split(', '):
      if name in seen | {'*', 'round', 'finite', 'seconds'} or 'rows' in name:
        continue
      seen.add(name)  # the first item of a name counts
      exact = item.says(c) == published.EXACT
      assert (name in ' '.join(columns + named)) == exact, name
      assert (name in hidden) == (item.says(c) == published.KEEP), name


def test_the_metrics_that_are_left_out_are_those_of_the_table():
  """Catches a metric that rows have, and the table has not, or the reverse."""
  names = 'train_loss', 'test_loss', 'client_loss_mean', 'personal_loss_mean'
  for kind in KINDS:
    c = config.Config(**OWN | {'public_metrics': kind})
    for whose in (False, True):
      for name in names:
        says = published.says(c, published.COLUMNS, name, test_of_clients=whose)
        left_out = caveats.is_left_out(c, whose, name)
        assert left_out == (says == published.ABSENT)


def test_no_model_is_chosen_by_what_is_not_published(tmp_path):
  """Catches best/, which tells when a client's held-out loss was least."""
  fields = STORE | {'keep_best': 'test_loss', 'personal_steps': None}
  for kind in KINDS:
    kept = fields | {'public_metrics': kind}
    if kind == 'all':
      exp = of_store(tmp_path / kind, kept)
      lists = caveats.published(exp.config, False, exp.test_of_clients)
      assert 'best/*' in lists[1]
      continue
    for more in {}, {'keep_best': 'client_loss_mean'}:
      with pytest.raises(config.ConfigError, match='keep_best'):
        of_store(tmp_path / kind, kept | more)
    of_store(tmp_path / kind, kept, test=True)
  exp = of_store(tmp_path / 'store', fields | {'keep_best': None})
  swept = files.as_json(exp.config) | {'public_metrics': HIDDEN}
  swept['sweep'] = {'client_lr': (0.1, 0.2)}
  with pytest.raises(config.ConfigError, match='public_metrics'):
    sweep.run(swept, str(tmp_path / 'sweep'), progress=False)


def test_the_guide_shows_the_table():
  """Catches a page that tells of another table than the code."""
  text = (harness.ROOT / 'docs/guides/privacy.md').read_text()
  start = text.index('| columns or file')
  _, *rows = markdown.cells(text[start:].partition('\n\n')[0])
  code = lambda names: ', '.join(f'`{name}`' for name in names.split(', '))
  items = (*published.COLUMNS, *published.FILES)
  assert rows == [[code(item.names), *item[1:]] for item in items]
