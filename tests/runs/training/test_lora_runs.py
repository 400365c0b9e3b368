"""Runs of adapters: their bytes, checkpoints, evaluations, sweeps and plans."""

import chex
import fl_sketch
from fl_sketch import models, runs
from fl_sketch.data import sources
from fl_sketch.models import lora
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.runs import plan as plan_lib, same_run
import harness
import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytestmark = pytest.mark.xdist_group('training')
WIDTH, RANK, CLASSES, INPUTS = 8, 2, 10, 64
A, B, HEAD = INPUTS * RANK, RANK * WIDTH, (WIDTH + 1) * CLASSES
KERNEL = INPUTS * WIDTH
PLAIN = harness.SMALL | {'standardize': False}
NAMES = {'naive': 'fedavg', 'ffa': 'fedavg', 'flora': 'flora', 'fedex': 'fedex'}


def built(kind, **fields):
  options = {'kind': kind, 'rank': RANK, 'alpha': 4.0, 'targets': ('Dense_0',)}
  options |= {'trainable': ('Dense_1',)}
  own = {'algorithm': NAMES[kind], 'lora': options, 'server_lr': 1.0}
  return runs.build(PLAIN | own | fields)


def mesh():
  return mesh_lib.cohort_mesh(2)


# Numbers by hand: those that a client sends; those that it receives.
BYTES = {
  'naive': (A + B + HEAD, A + B + HEAD),
  'ffa': (B + HEAD, B + HEAD),
  'flora': (A + B + HEAD, 4 * (A + B) + HEAD),  # of 4 participants
  'fedex': (A + B + HEAD, A + B + HEAD + KERNEL),  # less than 4 (A + B)
}


@pytest.mark.representatives('fedex')
@pytest.mark.parametrize('kind', BYTES)
def test_what_is_frozen_is_neither_sent_nor_counted(kind):
  """Catches kernels and biases in a bill, or in d."""
  exp = built(kind)
  up, down = (4 * n for n in BYTES[kind])
  assert plan_lib.wire(exp, mesh()) == ([up] * 4, [down] * 4)
  assert models.num_params(exp.params) == B + HEAD + A * (kind != 'ffa')


@pytest.mark.representatives('fedex')
@pytest.mark.parametrize('kind', ['naive', 'fedex'])
def test_own_steps_of_a_client_train_no_kernel(kind):
  """Catches an evaluation after own steps on arrays that the server changes."""
  exp = built(kind, client_holdout=0.3, personal_steps=2)
  batches = {k: v[:10].reshape(2, 5, *v.shape[1:]) for k, v in exp.data.items()}
  own = exp.personalize(exp.hyper, exp.params, batches, None)
  chex.assert_trees_all_equal_structs(own, exp.params)
  kernels = lora.split(exp.params)[1]
  chex.assert_trees_all_equal(lora.split(own)[1], kernels)
  adapter = own['Dense_0']['kernel']
  assert jnp.abs(adapter.b).max() > 0
  if kind == 'fedex':
    assert adapter.base.shape == (INPUTS, WIDTH)


@pytest.mark.nightly
def test_a_run_is_read_as_the_model_with_its_kernels_merged(tmp_path):
  """Catches outputs, an evaluation or a file without factors or scale."""
  result = runs.train(built('fedex'), tmp_path / 'run', progress=False)
  sizes = {x.size for x in jax.tree.leaves(result.state)}
  assert KERNEL in sizes
  assert WIDTH not in sizes  # the frozen bias
  run = fl_sketch.load(tmp_path / 'run')
  logged = {k: v for k, v in result.row.items() if k.startswith('test_')}
  assert run.evaluate() == logged
  exp = run.experiment
  trained = jax.device_get(result.state.params)
  params = jax.tree.map(
    np.float64, lora.join(jax.device_get(exp.hyper.frozen), trained)
  )
  first, last = params['Dense_0'], params['Dense_1']
  adapter = first['kernel']
  assert np.abs(adapter.b).max() > 0.01
  kernel = adapter.base + 2.0 * adapter.a @ adapter.b  # alpha / rank
  x = sources.load('digits').test['x'][:50]
  x_flat = np.reshape(x, (50, -1)) / 255
  hidden = np.maximum(x_flat @ kernel + first['bias'], 0)
  wanted = hidden @ last['kernel'] + last['bias']
  np.testing.assert_allclose(run.apply(x), wanted, rtol=1e-3, atol=1e-3)

  run.save_safetensors(tmp_path / 'merged.safetensors')
  whole = runs.build(
    PLAIN | {'pretrained': str(tmp_path / 'merged.safetensors')}
  )
  outputs = whole.apply_fn(whole.params, jnp.asarray(x))
  np.testing.assert_allclose(outputs, wanted, rtol=1e-3, atol=1e-3)


def test_a_run_does_not_go_on_beside_other_frozen_arrays():
  """Catches a resume, or a load, with the weights of another file."""
  exp = built('naive')
  other = jax.tree.map(lambda x: x + 1e-3, exp.hyper.frozen)
  changed = exp._replace(hyper=exp.hyper._replace(frozen=other))
  assert same_run.problem_of(exp) == same_run.problem_of(built('naive'))
  assert same_run.problem_of(exp) != same_run.problem_of(changed)
