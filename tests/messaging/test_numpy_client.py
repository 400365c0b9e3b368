"""Clients without JAX take part in rounds beside clients with JAX."""

import importlib
import os
import sys
import threading
import time

import cases
from fl_sketch import local
from fl_sketch.engines import relay, rounds as rounds_lib, transport
from fl_sketch.messaging import (
  client as client_lib,
  history,
  programs,
  requests,
  server,
)
from fl_sketch.models import mlp
from fl_sketch.utils import __version__
import jax
import numpy as np
import optax
import pytest
from runs import ROOT

EXAMPLES = ROOT / 'docs' / 'examples'
RUN = bytes(16)
IDS = np.arange(4, dtype=np.int32)
RATE = float(cases.HP.client_lr)


@pytest.fixture
def example(monkeypatch):
  """Imports an example by its name, as from its folder."""
  monkeypatch.syspath_prepend(str(EXAMPLES))
  before = set(sys.modules)
  yield importlib.import_module
  for name in set(sys.modules) - before:
    if name in ('numpy_client', 'numpy_operators', 'torch_client'):
      del sys.modules[name]


def batches_of(client_id):
  """Round -> the batches of a client, leaves [local_steps, batch, ...]."""

  def batches(r):
    cohort = cases.full_participation(r)
    (n,) = np.flatnonzero(cohort.ids == client_id)
    return jax.tree.map(lambda x: np.asarray(x[n]), cohort.batches)

  return batches


def least_squares(batches):
  """Local steps on the loss of `cases`, in NumPy."""

  def work(params, r):
    b, w, losses = params[:2].copy(), params[2:].reshape(4, 2).copy(), []
    for x, y in zip(*batches(r), strict=True):
      errors = x @ w + b - y
      losses.append(np.mean(errors**2))
      slope = 2 * errors / errors.size
      b, w = b - RATE * slope.sum(0), w - RATE * x.T @ slope
    return params - np.concatenate([b, w.ravel()]), np.mean(losses)

  return work


def trained(run_programs, others):
  """Parameters and metrics after three rounds; `others` are not JAX's."""
  sites = {f'site-{i}': one.handle for i, one in others.items()}
  for i in set(IDS.tolist()) - others.keys():
    one = client_lib.Client(
      run_programs, cases.PARAMS, run=RUN, client_id=i, batches=batches_of(i)
    )
    sites[f'site-{i}'] = one.handle
  play = rounds_lib.SiteRounds(transport.LocalSites(sites), RUN)
  play.greet(len(IDS))
  own = server.Server(run_programs, run=RUN)
  play.begin(own, history.History(run_programs))
  state, metrics = run_programs.first(cases.PARAMS), []
  for _ in range(3):
    closed = play.play(state, IDS, np.float32([1, 2, 1, 3]))
    state = closed.state
    metrics.append(closed.metrics)
  return vector(state.params), metrics


def vector(tree):
  """All numbers of a tree in a row."""
  return np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])


@pytest.mark.parametrize(
  'name', ['safl_adam', pytest.param('safl_onebit', marks=pytest.mark.nightly)]
)
def test_numpy_clients_leave_the_parameters_as_they_are(name, example):
  """Catches a request, key, update or reply that the page tells wrongly."""
  base, more = example('numpy_client'), example('numpy_operators')
  sketch, codec = {
    'safl_adam': (lambda key, x: base.block_cyclic(key, x, 4), None),
    'safl_onebit': (
      lambda key, x: base.block_srht(key, x, 8, block=4),
      more.eden,
    ),
  }[name]
  run_programs = programs.Programs(
    cases.ALGORITHMS[name].make, cases.HP, cases.PARAMS, cases.KEY
  )
  client = lambda i: base.Client(
    {'client': i, 'version': __version__}, 1, 10,
    least_squares(batches_of(i)), sketch, codec,
  )  # fmt: skip
  got, metrics = trained(run_programs, {1: client(1), 3: client(3)})
  want, simulated = trained(run_programs, {})
  np.testing.assert_allclose(got, want, rtol=0, atol=1e-6 * abs(want).max())
  for one, other in zip(metrics, simulated, strict=True):
    assert one['participants'] == other['participants'] == 4
    np.testing.assert_allclose(
      one['train_loss'], other['train_loss'], rtol=1e-5
    )


@pytest.mark.nightly
def test_a_torch_model_trains_as_the_one_in_flax(example, tmp_path):
  """Catches another order of leaves, and a socket that engines cannot use."""
  torch = pytest.importorskip('torch')
  torch_client = example('torch_client')
  model = torch_client.Model(5, 4, 3)
  flax = mlp.MLP(3, (4,))
  draws = np.random.default_rng(0)
  x = draws.standard_normal((2, 6, 5)).astype('f')
  labels = draws.integers(0, 3, (2, 6))
  params = flax.init(jax.random.key(0), x[0])['params']

  def loss(params, batch):
    logits = flax.apply({'params': params}, batch[0])
    return optax.softmax_cross_entropy_with_integer_labels(
      logits, batch[1]
    ).mean()

  moved, metrics = local.sgd(loss, 0.1, local_steps=2)(
    params, (x, labels), None, None
  )
  pairs = [*zip(map(torch.tensor, x), map(torch.tensor, labels), strict=True)]
  about = {'client': 3}
  one = torch_client.client(about, 0, model, lambda r: pairs, 0.1, 16)
  got, mean = one.work(vector(params), 0)
  np.testing.assert_allclose(got, vector(moved), rtol=0, atol=1e-6)
  np.testing.assert_allclose(mean, metrics['train_loss'], rtol=1e-6)

  path = str(tmp_path / 'site')
  arguments = one.handle, path
  threading.Thread(
    target=torch_client.serve, args=arguments, daemon=True
  ).start()
  hello = requests.encode(requests.Request(requests.Kind.HELLO, RUN, 0, 0, -1))
  while not os.path.exists(path):
    time.sleep(0.01)
  assert relay.ask(hello, path) == one.handle(hello)
