"""Invariants of each algorithm's state, its forms by size, server steps."""

import re

import cases
import chex
from fl_sketch import algorithms, rounds, sketches
from fl_sketch.algorithms import lora_products, power_sgd, server_optimizers
from fl_sketch.rounds import client_step, comms, keys, mesh as mesh_lib
from fl_sketch.rounds.error_feedback import compress
import jax
import jax.numpy as jnp
import numpy as np
from operators import vector
import optax
import pytest
import quadratics
from quadratics import linear
import reference

HP, MEAN = cases.HP, cases.MEAN


@pytest.mark.representatives('scaffold', 'feddyn')
@pytest.mark.parametrize('name', quadratics.TRACKING)
def test_tracking_reaches_the_optimum_of_unlike_clients(name):
  gap, variates = quadratics.tracked(name)
  assert gap[-1] < 1e-6
  assert np.abs(variates).max() > 0.1
  np.testing.assert_allclose(variates.sum(0), 0, atol=1e-5)


@pytest.mark.nightly
def test_gate_with_sampled_clients_reaches_their_optimum():
  """Catches variates of absent clients that move, or do not add up to 0."""
  every, rng = quadratics.heterogeneous(), np.random.default_rng(1)
  ids = [rng.choice(quadratics.CLIENTS, 3, replace=False) for _ in range(600)]
  cohorts = jax.tree.map(lambda x: x[np.array(ids)], every)
  gate = {'sketch': quadratics.COUNT, 'local_steps': quadratics.STEPS}
  state, gap = quadratics.play('fedsketchgate', cohorts, **gate)
  variates = rounds.state_of(state.protocol, comms.PerClient).value['w']
  assert gap[-1] < 1e-6
  np.testing.assert_allclose(variates.sum(0), 0, atol=1e-5)


def test_gate_reads_tables_by_the_operator_that_it_is_given():
  """Catches a Count Sketch that GATE builds in place of its argument."""
  op = cases.COUNT
  gate = lambda op: linear('fedsketchgate', sketch=op, local_steps=1)

  class ReadBy(sketches.count_sketch):
    linear_reader = MEAN

  class Unread(sketches.count_sketch):
    linear_reader = None

  gate(ReadBy(**vars(op)))(HP)
  with pytest.raises(ValueError, match='count_sketch'):
    gate(Unread(**vars(op)))(HP)


def test_a_description_has_its_source_departures_and_options():
  """Catches a docstring that hides how it departs from its paper."""
  for name in algorithms.names():
    text = algorithms.describe(name)
    for section in ('Source:', 'Symbols:', 'Departures:'):
      assert text.count(section) == 1, name
    for option in algorithms.options(name):
      assert f'  {option}: ' in text, name


def sent_in(make, r, client):
  """The payload of a client for one fixed update."""
  client_keys = keys.for_client(keys.round_keys(cases.KEY, r), client)
  update = jax.tree.map(jnp.ones_like, cases.PARAMS)
  return client_step.encode_once(make(HP), update, cases.PARAMS, client_keys)


@pytest.mark.parametrize(('name', 'options', 'constant'), [
  ('fetchsgd', {'k': 2}, True),
  ('safl', {}, False),
  ('iterative_sketching', {}, False),
  ('fedsketch_privix', {}, False),
  ('fedsketch_heaprix', {'k': 2}, False),
  ('fedsketchgate', {'local_steps': 3}, False),
])  # fmt: skip
def test_a_hash_is_constant_only_where_its_tables_outlive_a_round(
  name, options, constant
):
  make = linear(name, sketch=MEAN, **options)
  sent = [vector(sent_in(make, r, client=3)) for r in (0, 1)]
  assert (sent[0] == sent[1]).all() == constant
  np.testing.assert_array_equal(vector(sent_in(make, 1, client=5)), sent[1])


@pytest.mark.nightly
def test_a_kernel_of_rank_one_travels_whole():
  """Catches factors of the wrong axes: a kernel is a matrix of its last."""
  draw = np.random.default_rng(0).standard_normal
  kernel = np.outer(draw(12), draw(4)).reshape(2, 3, 2, 4)
  slope = {'kernel': kernel, 'row': draw((1, 5)), 'bias': draw(4)}
  slope = jax.tree.map(np.float32, slope)
  params = jax.tree.map(jnp.ones_like, slope)

  def loss_fn(params, batch):
    return batch.mean() * optax.tree.vdot(params, slope)

  make = algorithms.make('power_sgd', loss_fn, rank=1, local_steps=1)
  ids, one = np.arange(2, dtype=np.int32), np.ones(2, np.float32)
  cohort = rounds.Cohort(ids, one, np.float32([[[1]], [[3]]]))
  make.params = params
  state, metrics = cases.play(make, 1, count=1, cohort_of=lambda r: cohort)
  want = jax.tree.map(
    lambda x, g: x - HP.server_lr * HP.client_lr * 2 * g, params, slope
  )
  chex.assert_trees_all_close(state.params, want, atol=1e-6)
  assert (
    metrics['uplink_bytes'] == metrics['downlink_bytes'] == 4 * (12 + 4 + 5 + 4)
  )


def test_a_memory_without_a_meaning_is_refused():
  """Catches a residual that grows, and an average that has no epsilon."""
  with pytest.raises(ValueError, match='residual_decay'):
    compress(cases.TOP, residual_decay=1.1, error_feedback=True)
  momentum = {'privacy': cases.RELEASE, 'client_momentum': 0.9}
  with pytest.raises(ValueError, match='client_momentum'):
    linear('safl', sketch=MEAN, **momentum)(HP)


@pytest.mark.parametrize(('shape', 'rank', 'factors'), [
  ((4, 4), 1, True), ((4, 4), 2, False), ((3, 6), 1, True), ((3, 6), 2, False),
  ((5, 5), 2, True), ((2, 2, 5), 2, True), ((2, 2, 4), 2, False),
  ((16,), 1, False), ((0, 8), 1, False),
])  # fmt: skip
def test_an_array_has_factors_where_they_are_smaller(shape, rank, factors):
  """Catches factors of as many numbers as the array, or of a vector."""
  make = algorithms.make('power_sgd', cases.loss_fn, rank=rank)
  like = {'x': jax.ShapeDtypeStruct(shape, jnp.float32)}
  state = jax.eval_shape(lambda p: rounds.init(make(cases.HP), p, 1), like)
  assert len(rounds.state_of(state, 'right')) == factors


def test_a_basis_is_computed_of_one_matrix_at_a_time():
  """Catches LAPACK on a stack, which waits forever on threads of devices."""
  fn = jax.jit(jax.vmap(jax.vmap(power_sgd._basis)))
  text = fn.lower(jnp.ones((2, 3, 8, 2))).as_text()
  assert {*re.findall(r'num_batch_dims = "(\d)"', text)} == {'0'}


def test_a_residual_travels_in_its_smaller_form():
  """Catches a bill of the larger form, at and beside equal sizes."""
  for factors, dense in ((24, 32), (24, 48), (24, 47), (24, 49), (40, 32)):
    counts = jnp.arange(5, dtype=jnp.uint32)
    bill = lora_products._residual([(factors, dense)], counts, 5)
    want = factors + np.minimum(np.arange(5) * factors, dense)
    np.testing.assert_array_equal(bill, want)


@pytest.mark.parametrize(('shape', 'spec'), [
  ((3, 8), (None, 'shard')), ((8, 4), ('shard',)), ((4, 7), ('shard',)),
  ((3, 5), ()), ((0, 5), ()), ((), ()),
])  # fmt: skip
def test_state_is_split_along_an_axis_that_the_devices_divide(shape, spec):
  """Catches a longest axis of odd length, and one of length 0."""
  mesh = mesh_lib.cohort_mesh(2)
  assert (*mesh_lib.shardings_over(mesh, np.zeros(shape)).spec,) == spec


RATE = cases.HP.server_lr


@pytest.mark.parametrize('name', cases.EVERY)
def test_each_is_its_numpy_twin(name):
  """Catches bias correction in AMSGrad, and moments that start elsewhere."""
  rng = np.random.default_rng(0)
  gradients = rng.standard_normal((6, 10)).astype(np.float32)
  gradients[3:] *= 0.01  # the largest second moment of AMSGrad stays
  link = server_optimizers.server_step(cases.HP, name)
  state, twin = link.init(gradients[0]), reference.Server(name, 10)
  for gradient in gradients:
    step, state = link.update(gradient, state)
    want = -twin.step(gradient, float(RATE))
    np.testing.assert_allclose(step, want, rtol=1e-4)


OPTIONS = {
  'fedavg': {},
  'fedcom': {'codec': cases.RANDOM},
  'fedcomgate': {'codec': cases.RANDOM, 'local_steps': 3},
  'marina': {'codec': cases.RANDOM, 'sync_probability': 0.5},
  'demo': {'codec': cases.TOP, 'signs': False},
  'power_sgd': {'rank': 2},  # which sends these arrays as they are
  'ef21': {'codec': cases.TOP, 'population': cases.POPULATION},
}


@pytest.mark.parametrize('name', OPTIONS)
def test_a_schedule_reaches_the_server_of_an_algorithm(name):
  """Catches a schedule that is dropped, or starts one round late."""
  options = OPTIONS[name] | {'schedule': lambda count: 3.0 + count}
  make = algorithms.make(name, cases.loss_fn, **options)
  link = make(cases.HP).server
  broadcast = jax.tree.map(jnp.ones_like, cases.PARAMS)
  if name == 'power_sgd':
    broadcast = power_sgd.Message([], [], jax.tree.leaves(broadcast))
  state = link.init(cases.PARAMS)
  for factor in (3, 4):
    updates, state = link.update(broadcast, state, cases.PARAMS)
    for x in jax.tree.leaves(updates):
      want = {'ef21': 1 + (factor == 4)}.get(name, 1) * factor
      np.testing.assert_allclose(x, -want * RATE, rtol=1e-6)
