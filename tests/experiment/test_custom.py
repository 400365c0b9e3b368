"""Problems of one's own: the document runs, and what does not fit is named."""

import re

from fl_sketch import experiment, models, training
from fl_sketch.data import sources
from fl_sketch.experiment import config, custom
from fl_sketch.models import losses
from fl_sketch.training import loaded
from flax import nnx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from runs import ROOT, SMALL

DOCUMENT = (ROOT / 'docs' / 'guides' / 'bring_your_own.md').read_text()
DATA, MODULE, RUN, READ, LOSS, PLAIN = re.findall(
  r'```python\n(.*?)```', DOCUMENT, re.DOTALL
)
FIELDS = SMALL | {'standardize': False}


def arrays(samples, seed=0, **other):
  rng = np.random.default_rng(seed)
  x, y = rng.normal(size=(samples, 3)), rng.integers(0, 2, samples)
  return {'x': x, 'y': y} | other


def squares(params, batch):
  miss = batch['x'] @ params - batch['y']
  return {'loss': miss**2, 'size': jnp.abs(miss)}


def test_the_document_keeps_to_forty_lines():
  lines = lambda *blocks: sum(map(bool, ''.join(blocks).splitlines()))
  assert lines(DATA, MODULE, RUN, READ) <= 40
  assert lines(DATA, RUN, PLAIN, READ) <= 40


@pytest.mark.usefixtures('own_parts')
def test_a_loss_of_the_document_is_one_by_name():
  """Catches a registered loss that a problem or its evaluation lacks."""
  exec(LOSS, {})
  outputs, y = np.ones((2, 3)), np.float32([[0, 1, 2], [1, 1, 4]])
  model = models.Model(lambda key, x: {}, lambda params, x, key: outputs)
  _, metrics_fn = losses.make(model, 'absolute')
  sums = metrics_fn({}, {'x': y, 'y': y})
  np.testing.assert_allclose(sums['loss'], 2 / 3 + 1, rtol=1e-6)


@pytest.mark.nightly
def test_the_document_runs_and_says_what_comes_out(
  tmp_path, monkeypatch, capsys
):
  monkeypatch.chdir(tmp_path)
  namespace = {'__name__': 'document'}
  exec(''.join([DATA, MODULE, RUN, READ, PLAIN]), namespace)
  for row in (namespace['result'].row, namespace['plain'].row):
    assert row['test_accuracy'] > 0.8
    assert row['uplink_bytes'] == 512
    assert 7.9 < row['epsilon'] <= 8 + 1e-6
  assert 4 * models.num_params(namespace['result'].state.params) == 9640
  printed = capsys.readouterr().out
  assert '(8, 0.0001)-differential privacy of one client' in printed
  assert '% at epsilon 8.00' in printed
  names = {path.name for path in (tmp_path / 'runs' / 'mine').iterdir()}
  assert names >= {'summary.json', 'metrics.jsonl', 'checkpoints', 'secret'}


def test_own_arrays_and_module_make_the_run_that_a_config_makes():
  c = config.Config(**FIELDS)
  named = experiment.build(c)
  ids = [named.partition.client(i) for i in range(c.population)]
  clients = [{k: x[i] for k, x in named.data.items()} for i in ids]
  module = models.make('mlp', 10, widths=(8,))
  test = sources.load('digits').test
  problem = custom.problem(module, clients, test, seed=c.seed)
  mine = experiment.assemble(c, problem, problem.partition)
  batches = lambda exp: exp.fetch(exp.data, exp.sample(3).batches)
  jax.tree.map(
    np.testing.assert_array_equal,
    (mine.params, mine.test, mine.sample(3).ids, batches(mine)),
    (named.params, named.test, named.sample(3).ids, batches(named)),
  )
  batch = jax.tree.map(lambda x: x[0, 0], batches(mine))
  loss = lambda exp: exp.loss_fn(exp.params, batch)
  assert loss(mine) == loss(named)


@pytest.mark.nightly
def test_a_run_goes_on_from_its_checkpoint(tmp_path):
  clients = [arrays(5, seed) for seed in range(6)]
  problem = custom.problem((np.zeros(3), squares), clients, arrays(7))

  def train(rounds, folder):
    c = config.Config(**FIELDS | {'rounds': rounds, 'client_lr': 0.01})
    exp = experiment.assemble(c, problem, problem.partition)
    return training.train(exp, tmp_path / folder, progress=False)

  whole = train(4, 'whole')
  train(2, 'parts')
  again = train(4, 'parts')
  np.testing.assert_array_equal(again.state.params, whole.state.params)
  assert train(4, 'parts').row == again.row
  assert {'test_loss', 'test_size'} <= again.row.keys()


def test_clients_lie_in_a_row_in_the_types_of_jax():
  clients = [arrays(5), arrays(2, 1)]
  problem = custom.problem((np.zeros(3), squares), clients, arrays(7))
  assert problem.data['x'].dtype == np.float32
  assert problem.data['y'].dtype == np.int32
  assert problem.params.dtype == np.float32
  for i, client in enumerate(clients):
    held = problem.data['y'][problem.partition.client(i)]
    np.testing.assert_array_equal(held, client['y'])


def test_masked_rows_weigh_nothing():
  test = arrays(7)
  problem = custom.problem((np.ones(3), squares), [test], test)
  batch = problem.data | {'mask': np.arange(7) < 4}
  miss = test['x'].sum(1) - test['y']
  loss = problem.loss_fn(problem.params, batch)
  np.testing.assert_allclose(loss, (miss[:4] ** 2).mean(), rtol=1e-5)
  sums = problem.metrics_fn(problem.params, batch)
  assert sums['count'] == 4
  np.testing.assert_allclose(sums['size'], np.abs(miss[:4]).sum(), rtol=1e-5)


def test_a_plain_function_is_what_a_module_of_the_same_function_is():
  module, test = models.make('linear', 2), arrays(9)
  problem = custom.problem(module, [test], test)

  def values(params, batch):
    logits = module.apply({'params': params}, batch['x'])
    right = logits.argmax(1) == batch['y']
    return {
      'loss': losses.softmax_cross_entropy(logits, batch['y']),
      'accuracy': right,
    }

  plain = custom.problem((problem.params, values), [test], test)
  batch = jax.tree.map(lambda x: x[0], problem.test)
  assert plain.loss_fn(plain.params, batch) == problem.loss_fn(
    problem.params, batch
  )
  assert plain.metrics_fn(plain.params, batch) == problem.metrics_fn(
    problem.params, batch
  )


class OwnNnx(nnx.Module):
  def __init__(self, rngs):
    self.hidden = nnx.Linear(3, 8, rngs=rngs)
    self.dropout = nnx.Dropout(0.2, rngs=rngs)
    self.last = nnx.Linear(8, 2, rngs=rngs)

  def __call__(self, x):
    return self.last(self.dropout(nnx.tanh(self.hidden(x))))


def both(params, batch, key):
  """A plain function with noise in training."""
  noise = 0.0 if key is None else jax.random.normal(key)
  return {'loss': batch['y'] * (params + noise)}


@pytest.mark.parametrize('model', [OwnNnx, OwnNnx(nnx.Rngs(1)), (1.0, both)])
def test_models_that_draw_do_so_in_training_alone(model):
  """Dropout in evaluation, or none in training, went unnoticed."""
  task = custom.problem(model, [arrays(4)], arrays(4))
  batch = jax.tree.map(lambda x: x[0], task.test)
  loss = lambda key: task.loss_fn(task.params, batch, key)
  assert loss(jax.random.key(0)) != loss(jax.random.key(1))
  sums = task.metrics_fn(task.params, batch)
  np.testing.assert_allclose(sums['loss'] / 4, loss(None), rtol=1e-6)


class Tagger(nn.Module):
  """Logits of every word, of a dict of inputs."""

  @nn.compact
  def __call__(self, inputs):
    words = nn.Embed(9, 4)(inputs['words'])
    return nn.Dense(3)(nn.RNN(nn.GRUCell(4))(words) + inputs['shift'])


def sentences(samples, low=-1):
  rng = np.random.default_rng(samples)
  words = rng.integers(0, 9, (samples, 5))
  tags = np.where(words < 6, words // 2, low)
  shift = rng.normal(size=(samples, 1, 1))
  return {'words': words, 'shift': shift, 'y': tags}


@pytest.mark.nightly
def test_a_recurrent_model_of_a_dict_of_inputs_learns(tmp_path):
  """Catches a perplexity that is not exp of the mean loss of all tokens."""
  clients = [sentences(8 + i) for i in range(6)]
  task = custom.problem(Tagger(), clients, sentences(40), loss='tokens')
  fields = {'rounds': 30, 'local_steps': 5, 'client_lr': 1.0, 'cohort': 6}
  c = config.Config(**FIELDS | fields | {'population': 6, 'server_lr': 1.0})
  exp = experiment.assemble(c, task, task.partition)
  row = training.train(exp, tmp_path, progress=False).row
  assert row['test_accuracy'] > 0.9
  np.testing.assert_allclose(
    row['test_perplexity'], np.exp(row['test_loss']), rtol=1e-6
  )
  run = loaded.load(tmp_path, problem=task)
  test = sentences(40)
  inputs = {k: np.float32(x) if k == 'shift' else x for k, x in test.items()}
  del inputs['y']
  right = run.apply(inputs).argmax(-1) == test['y']
  mean = right[test['y'] >= 0].mean()
  np.testing.assert_allclose(mean, row['test_accuracy'], rtol=1e-6)


def tagged(y):
  return sentences(3) | {'y': np.asarray(y)}


Twice = lambda rngs: nnx.Sequential(nnx.Linear(3, 2, rngs=rngs))


@pytest.mark.parametrize(
  ('model', 'loss', 'arrays', 'message'),
  [
    (
      Tagger(),
      'tokens',
      tagged(np.full((3, 5), 3)),
      "labels 'y' from 3 to 3 must",
    ),
    (Tagger(), 'tokens', tagged(np.zeros(3, int)), "labels 'y' are int32(3,);"),
    (Tagger(), 'cross_entropy', sentences(3), 'outputs (1, 5, 3) of the'),
    (
      Twice,
      'multilabel',
      {'x': np.zeros((4, 3)), 'y': np.full((4, 2), 2)},
      'to 1',
    ),
    (
      Twice,
      'multilabel',
      {'x': np.zeros((4, 3)), 'y': np.ones(4)},
      'shape (2, 2)',
    ),
    (Twice, 'regression', arrays(4), "'y' have shape () per sample, outputs"),
    (Twice, 'hinge', arrays(4), "loss='hinge' must be one of"),
    (
      Twice,
      'cross_entropy',
      {'y': np.zeros(4, int)},
      "arrays ['y'] lack inputs such",
    ),
    (Twice, lambda out, batch: {'loss': out}, arrays(4), "'loss': (2, 2)"),
    (nn.BatchNorm(True), 'cross_entropy', arrays(4), "('batch_stats',)"),
  ],
)
def test_models_and_labels_that_do_not_fit_are_refused(
  model, loss, arrays, message
):
  """Catches labels that are broadcast, or a traceback from inside a program."""
  with pytest.raises(ValueError, match=re.escape(message)):
    custom.problem(model, [arrays], arrays, loss=loss)


def test_a_module_may_take_tokens():
  class Words(nn.Module):
    @nn.compact
    def __call__(self, x):
      return nn.Dense(2)(nn.Embed(11, 4)(x).mean(1))

  test = {'x': np.arange(8).reshape(4, 2), 'y': np.zeros(4, int)}
  problem = custom.problem(Words(), [test], test)
  assert problem.params['Embed_0']['embedding'].shape == (11, 4)


@pytest.mark.parametrize(
  ('clients', 'test', 'message'),
  [
    ([], arrays(3), 'clients is empty'),
    ([arrays(3), arrays(0)], arrays(3), "client 1: lengths {'x': 0, 'y': 0}"),
    ([arrays(3)], arrays(0), "the test: lengths {'x': 0, 'y': 0}"),
    (
      [arrays(3, y=np.zeros(2, int))],
      arrays(3),
      "client 0: lengths {'x': 3, 'y': 2}",
    ),
    ([arrays(3, z=np.zeros(3))], arrays(3), 'client 0: arrays'),
    ([arrays(3, x=np.zeros((3, 2)))], arrays(3), 'client 0: arrays'),
    (
      [arrays(3, mask=np.ones(3))],
      arrays(3, mask=np.ones(3)),
      "'mask' is reserved",
    ),
  ],
)
def test_arrays_that_do_not_fit_are_named(clients, test, message):
  with pytest.raises(ValueError, match=re.escape(message)):
    custom.problem((np.zeros(3), squares), clients, test)


@pytest.mark.parametrize(
  ('values', 'message'),
  [
    (lambda w, batch: {'miss': batch['x'] @ w}, "'miss': (2,)"),
    (lambda w, batch: {'loss': (batch['x'] @ w).mean()}, "'loss': ()"),
    (lambda w, batch: squares(w, batch) | {'n': w.sum()}, "'n': ()"),
    (lambda w, b: squares(w, b) | {'count': b['y']}, "values {'count': (2,),"),
    (lambda w, batch: {'loss': (batch['x'], batch['y'])}, '((2, 3), (2,))'),
    (lambda w, batch: (batch['x'] @ w).mean(), 'values () of 2 samples must'),
  ],
)
def test_a_function_without_values_of_each_sample_is_refused(values, message):
  with pytest.raises(ValueError, match=re.escape(message)):
    custom.problem((np.zeros(3), values), [arrays(3)], arrays(3))


@pytest.mark.parametrize(
  ('y', 'message'),
  [
    (np.array([1, 2, 3]), "labels 'y' from 1 to 3 must"),
    (np.array([-1, 1, 1]), "labels 'y' from -1 to 1 must"),
    (np.zeros((3, 1), int), "labels 'y' are int32(3, 1);"),
    (np.zeros(3), "labels 'y' are float32(3,);"),
    (np.ones(3, bool), "labels 'y' are bool(3,); pass"),
  ],
)
def test_labels_that_are_no_logits_are_refused(y, message):
  client = {'x': np.zeros((3, 2)), 'y': y}
  with pytest.raises(ValueError, match=re.escape(message)):
    custom.problem(models.make('linear', 3), [client], client)


def test_a_module_without_classes_is_refused():
  class Scalar(nn.Module):
    @nn.compact
    def __call__(self, x):
      return nn.Dense(1)(x)[:, 0]

  with pytest.raises(ValueError, match=re.escape('outputs (1,) of the model')):
    custom.problem(Scalar(), [arrays(3)], arrays(3))


def test_a_module_wants_its_two_arrays():
  alone = {'x': np.zeros((3, 2))}
  with pytest.raises(ValueError, match=r"arrays .'x'. lack labels 'y'"):
    custom.problem(models.make('linear', 2), [alone], alone)
