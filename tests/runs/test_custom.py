"""Problems of one's own: the document runs, and what does not fit is named."""

import re

from fl_sketch import models, runs
from fl_sketch.data import sources
from fl_sketch.models import losses
from fl_sketch.runs import config, custom
from harness import ROOT, SMALL
import jax
import jax.numpy as jnp
import numpy as np
import pytest

DOCUMENT = (ROOT / 'docs' / 'guides' / 'bring_your_own.md').read_text()
BLOCKS = re.findall(r'```python\n(.*?)```', DOCUMENT, re.DOTALL)
(LOSS,) = [block for block in BLOCKS if '@losses.register' in block]
FIELDS = SMALL | {'standardize': False}


def arrays(samples, seed=0, **other):
  rng = np.random.default_rng(seed)
  x, y = rng.normal(size=(samples, 3)), rng.integers(0, 2, samples)
  return {'x': x, 'y': y} | other


def squares(params, batch):
  miss = batch['x'] @ params - batch['y']
  return {'loss': miss**2, 'size': jnp.abs(miss)}


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
@pytest.mark.usefixtures('own_parts')
def test_the_document_runs_and_says_what_comes_out(
  tmp_path, monkeypatch, capsys
):
  monkeypatch.chdir(tmp_path)
  namespace = {'__name__': 'document'}
  exec(''.join(BLOCKS), namespace)
  assert namespace['first'].row['test_accuracy'] > 0.8
  assert len(namespace['made'].results) == 3
  for row in (namespace['result'].row, namespace['plain'].row):
    assert row['test_accuracy'] > 0.8
    assert row['uplink_bytes'] == 512
    assert 7.9 < row['epsilon'] <= 8 + 1e-6
  assert 4 * models.num_params(namespace['result'].state.params) == 9640
  assert '(8, 0.0001)-differential privacy' in capsys.readouterr().err


def test_own_arrays_and_module_make_the_run_that_a_config_makes():
  c = config.Config(**FIELDS)
  named = runs.build(c)
  ids = [named.partition.client(i) for i in range(c.population)]
  clients = [{k: x[i] for k, x in named.data.items()} for i in ids]
  module = models.make('mlp', 10, widths=(8,))
  test = sources.load('digits').test
  problem = custom.problem(module, clients, test, seed=c.seed)
  mine = runs.assemble(c, problem, problem.partition)
  batches = lambda exp: exp.fetch(exp.data, exp.sample(3).batches)
  batch = jax.tree.map(lambda x: x[0, 0], batches(mine))
  parts, others = [
    (x.params, x.test, x.sample(3).ids, batches(x), x.loss_fn(x.params, batch))
    for x in (mine, named)
  ]
  jax.tree.map(np.testing.assert_array_equal, parts, others)


@pytest.mark.nightly
def test_a_plain_function_is_what_a_module_of_the_same_function_is():
  """Catches another loss, or other metrics, of a plain function."""
  module, test = models.make('linear', 2), arrays(9)
  problem = custom.problem(module, [test], test)

  def values(params, batch):
    logits = module.apply({'params': params}, batch['x'])
    loss = losses.softmax_cross_entropy(logits, batch['y'])
    return {'loss': loss, 'accuracy': logits.argmax(1) == batch['y']}

  plain = custom.problem((problem.params, values), [test], test)
  batch = jax.tree.map(lambda x: x[0], problem.test)
  results = [
    (task.loss_fn(task.params, batch), task.metrics_fn(task.params, batch))
    for task in (problem, plain)
  ]
  assert results[0] == results[1]


def test_columns_beside_a_named_label_are_inputs():
  """Catches columns in another order, and a column of integers refused."""
  x, y = np.arange(12).reshape(4, 3) + 0.5, np.array([0, 1, 1, 0])
  table = dict(zip('xby', x.T, strict=True)) | {'kind': y}  # 'y': no label
  first = {k: table[k] for k in ('kind', 'y', 'b', 'x')}
  first['b'] = first['b'].astype(int)
  problem = custom.problem(LINEAR, [first, table], table, label='kind')
  np.testing.assert_array_equal(problem.data['x'], [*(x - [0, 0.5, 0]), *x])
  np.testing.assert_array_equal(problem.data['y'], [*y, *y])
  image = {'image': np.ones((4, 2, 2)), 'label': y}
  problem = custom.problem(LINEAR, [image], image, label='label')
  assert {k: x.shape for k, x in problem.data.items()} == {
    'x': (4, 2, 2), 'y': (4,),
  }  # fmt: skip


def test_a_problem_is_told_by_names_and_shapes():
  """Catches a notebook that prints all arrays."""
  problem = custom.problem(LINEAR, [arrays(900)] * 2, arrays(9))
  told = r"clients=2.*'float32\[1800, 3\]'.*'int32\[1800\]'"
  assert re.search(told, repr(problem))
  assert len(repr(problem)) < 300


@pytest.mark.usefixtures('own_parts')
@pytest.mark.nightly
def test_a_loss_of_a_config_may_be_a_mean_but_no_sum():
  """Catches a scalar that is summed over the padding of a batch."""
  fields = FIELDS | {'loss': 'of_batch'}
  for reduce, text in (jnp.mean, None), (jnp.sum, 'scalar'):
    kind = lambda o, b, reduce=reduce: reduce(
      losses.cross_entropy(o, b)['loss']
    )
    losses.register(kind, name='of_batch')
    if text is None:
      runs.build(fields)
    else:
      with pytest.raises(config.ConfigError, match=text):
        runs.build(fields)
    losses.REGISTRY._entries.pop('of_batch')


LINEAR = models.make('linear', 3)
IMAGE = {'image': np.ones((3, 2)), 'label': np.arange(3)}
cross_entropy = losses.softmax_cross_entropy


# Labels that would be broadcast, and functions without a value of each sample.
@pytest.mark.parametrize(('model', 'other', 'loss', 'name'), [
  (LINEAR, {'y': np.array([1, 2, 3])}, 'cross_entropy', 'client 0: labels'),
  (LINEAR, {'y': np.zeros((3, 1), int)}, 'cross_entropy', 'labels'),
  (LINEAR, {}, 'regression', 'labels'),
  (LINEAR, {}, 'tokens', 'outputs'),
  (LINEAR, {}, lambda x, _: {'loss': x}, 'values'),
  (LINEAR, {}, cross_entropy, r'takes \(outputs, batch\)'),
  (LINEAR, {}, lambda x, b: cross_entropy(x, b['y']).sum(), 'per sample'),
  ((np.zeros(3), lambda w, b: {'loss': (b['x'] @ w).mean()}), {}, '', 'values'),
])  # fmt: skip
def test_what_does_not_fit_is_refused(model, other, loss, name):
  """Catches an error from inside a compiled program, or none."""
  client = arrays(3, **other)
  with pytest.raises(ValueError, match=name):
    custom.problem(model, [client], client, loss=loss)


def test_a_client_without_inputs_is_told_so():
  """Catches an error of the model's library about a dict."""
  with pytest.raises(ValueError, match=r"no 'x'.* of image, label; "):
    custom.problem(LINEAR, [IMAGE], IMAGE)
