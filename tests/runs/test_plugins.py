"""Registered parts play in runs and sweeps as the built-in ones do."""

import chex
from fl_sketch import algorithms, data, models, runs, sketches
from fl_sketch.rounds import aggregation, federated, transforms as t
from fl_sketch.runs import config, custom
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import registered

BASE = {
  'dataset': 'plugin_waves', 'dataset_options': {'noise': 0.1},
  'model': 'mlp', 'model_options': {'widths': (4,)},
  'population': 6, 'cohort': 4, 'rounds': 4, 'eval_every': 2, 'batch_size': 4,
  'local_steps': 2, 'rounds_per_dispatch': 3,
}  # fmt: skip


def waves(noise: float):
  """Data of 6 clients with 3 to 8 samples."""
  rng = np.random.default_rng(0)

  def samples(count):
    x = noise * rng.standard_normal((count, 8))
    return {'x': x, 'y': rng.integers(2, size=count)}

  every = [samples(3 + i) for i in range(6)]
  return data.from_clients(every, samples(20), num_classes=2)


def heavy(task, hp, *, sketch, beta: float = 0.5, nesterov: bool = False):
  """Sketched FedAvg with momentum on the server."""
  return federated(
    task.steps(hp), t.sketch(sketch), aggregation.mean_over_cohort(),
    t.broadcast(), t.desketch(sketch), optax.trace(beta, nesterov=nesterov),
    optax.scale_by_learning_rate(hp.server_lr),
  )  # fmt: skip


@pytest.fixture(scope='module', autouse=True)
def parts():
  with registered.forgotten():
    data.register(waves, name='plugin_waves')
    algorithms.register(heavy, name='plugin_heavy', hyper=('beta',))
    yield


HEAVY = BASE | {
  'algorithm': 'plugin_heavy', 'options': {'beta': 0.3},
  'sketch': {'kind': 'block_cyclic', 'size': 20},
}  # fmt: skip


@pytest.mark.nightly
def test_a_run_of_own_parts_is_that_of_the_same_parts_by_hand(tmp_path):
  """Catches options that do not reach a factory, or a hidden default."""
  result = runs.train(runs.build(HEAVY), tmp_path, progress=False)
  c = config.Config.from_mapping(HEAVY)
  task = waves(0.1)
  by_client = [
    {k: x[task.partition.client(i)] for k, x in task.train.items()}
    for i in range(6)
  ]
  net = models.make('mlp', 2, widths=(4,))
  problem = custom.problem(net, by_client, task.test)
  own = algorithms.make('plugin_heavy', problem.loss_fn, local_steps=2,
    sketch=sketches.block_cyclic(20), beta=0.3)  # fmt: skip
  exp = runs.assemble(c, problem, problem.partition)._replace(
    make=own, hyper=algorithms.Hyper(jnp.float32(0.1), jnp.float32(1.0))
  )
  again = runs.train(exp, tmp_path / 'by_hand', progress=False)
  chex.assert_trees_all_close(
    again.state.params, result.state.params, rtol=1e-5
  )
  assert result.row['uplink_bytes'] == 4 * 20


@pytest.mark.parametrize(('fields', 'name'), [
  ({'dataset_options': None}, 'noise'), ({'options': {'nest': 1}}, 'nest'),
  ({'partition': 'dirichlet'}, 'partition'), ({'population': 7}, 'population'),
  ({'local_optimizer': 'adamw', 'weight_decay': 0.1}, 'weight_decay'),
])  # fmt: skip
def test_what_does_not_fit_own_parts_is_named(fields, name):
  """Catches a wrong option of one's own that is ignored."""
  with pytest.raises(config.ConfigError, match=name):
    runs.build(HEAVY | fields)
