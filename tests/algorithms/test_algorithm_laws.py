"""Invariants of each algorithm's state, and its limits."""

import cases
import chex
from fl_sketch import algorithms, rounds, sketches
from fl_sketch.algorithms import fedsketchgate
from fl_sketch.rounds import client_step, keys
from fl_sketch.rounds.error_feedback import compress
import jax
import jax.numpy as jnp
import numpy as np
from operators import vector
import optax
import pytest
import quadratics
from quadratics import linear

D, HP, MEAN = cases.DIMENSION, cases.HP, cases.MEAN


@pytest.mark.representatives('scaffold', 'feddyn')
@pytest.mark.covers('S2-Alg6')
@pytest.mark.parametrize('name', quadratics.TRACKING)
def test_tracking_reaches_the_optimum_of_unlike_clients(name):
  gap, variates = quadratics.tracked(name)
  assert gap[-1] < 1e-6
  assert np.abs(variates).max() > 0.1
  np.testing.assert_allclose(variates.sum(0), 0, atol=1e-5)


def test_gate_reads_tables_by_the_operator_that_it_is_given():
  """Catches a Count Sketch that GATE builds in place of its argument."""
  op = sketches.count_sketch(5, 8, allow_larger=True)
  mean = sketches.count_sketch(5, 8, combine='mean', allow_larger=True)
  table = op.sketch(cases.KEY, cases.PARAMS)
  read = lambda op: op.desketch(cases.KEY, table, cases.PARAMS)
  reader = fedsketchgate.linear_reader(op)
  chex.assert_trees_all_equal(read(reader), read(mean))
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


@pytest.mark.covers('S4-Rem3.1')
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
