"""Clients without JAX take part in rounds beside clients with JAX."""

import functools
import importlib
import sys

import cases
from fl_sketch import local
from fl_sketch.models import networks
from fl_sketch.utils import __version__
from harness import ROOT
import jax
from messaging_clients import run_of
import numpy as np
import optax
import pytest

EXAMPLES = 'numpy_client', 'numpy_operators', 'torch_client'


@pytest.fixture
def example(monkeypatch):
  """Imports an example by its name, as from its folder."""
  monkeypatch.syspath_prepend(str(ROOT / 'docs' / 'examples'))
  yield importlib.import_module
  for name in EXAMPLES:
    sys.modules.pop(name, None)


def vector(tree):
  """All numbers of a tree in a row."""
  return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


def least_squares(batches):
  """Local steps on the loss of `cases`, in NumPy."""
  rate = float(cases.HP.client_lr)

  def work(params, r):
    b, w, losses = params[:2], params[2:].reshape(4, 2), []
    for x, y in zip(*batches(r), strict=True):
      errors = x @ w + b - y
      losses.append(np.mean(errors**2))
      slope = 2 * errors / errors.size
      b, w = b - rate * slope.sum(0), w - rate * x.T @ slope
    return params - vector([b, w]), np.mean(losses)

  return work


@pytest.mark.parametrize(
  'name', ['safl_adam', pytest.param('safl_onebit', marks=pytest.mark.nightly)]
)
def test_numpy_clients_leave_the_parameters_as_they_are(name, example):
  """Catches a request, key, update or reply that the page tells wrongly."""
  base, more = example('numpy_client'), example('numpy_operators')
  tables = (lambda key, x: base.block_cyclic(key, x, 4)), None
  if name == 'safl_onebit':
    tables = (lambda key, x: base.block_srht(key, x, 8, block=4)), more.eden
  got, want = run_of(name), run_of(name)
  for i in (1, 3):
    about = {'client': i, 'version': __version__}
    work = least_squares(functools.partial(got.batches, i))
    got.clients[i] = base.Client(about, 1, 10, work, *tables)
  got.serve()
  params = [vector(run.play(3).params) for run in (got, want)]
  np.testing.assert_allclose(*params, rtol=0, atol=1e-6 * abs(params[1]).max())
  for closed, simulated in zip(got.closed, want.closed, strict=True):
    assert closed.metrics['participants'] == 4
    losses = [x.metrics['train_loss'] for x in (closed, simulated)]
    np.testing.assert_allclose(*losses, rtol=1e-5)


@pytest.mark.nightly
def test_a_torch_model_trains_as_the_one_in_flax(example):
  """Catches another order of leaves."""
  torch = pytest.importorskip('torch')
  torch_client = example('torch_client')
  flax, draws = networks.MLP(3, (4,)), np.random.default_rng(0)
  x = draws.standard_normal((2, 6, 5)).astype('f')
  labels = draws.integers(0, 3, (2, 6))
  params = flax.init(jax.random.key(0), x[0])['params']

  def loss(params, batch):
    logits = flax.apply({'params': params}, batch[0])
    cross_entropy = optax.softmax_cross_entropy_with_integer_labels
    return cross_entropy(logits, batch[1]).mean()

  want, metrics = local.sgd(loss, 0.1)(params, (x, labels), None, None)
  pairs = [*zip(torch.tensor(x), torch.tensor(labels), strict=True)]
  model = torch_client.Model(5, 4, 3)
  batches = lambda r: pairs
  one = torch_client.client({'client': 3}, 0, model, batches, 0.1, 16)
  got, mean = one.work(vector(params), 0)
  np.testing.assert_allclose(got, vector(want), rtol=0, atol=1e-6)
  np.testing.assert_allclose(mean, metrics['train_loss'], rtol=1e-6)
