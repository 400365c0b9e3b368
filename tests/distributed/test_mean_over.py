"""Compressed means among workers: equal numbers, laws, what travels."""

import compressor_cases as cases
from fl_sketch import algorithms, codecs, distributed, rounds, sketches
from fl_sketch.rounds.algorithm import Hyper
import jax
from jax import flatten_util
import jax.numpy as jnp
from jax.sharding import AxisType, PartitionSpec as P
import numpy as np
import optax
import pytest


def split(items, fast):
  slow = lambda x: pytest.param(x, marks=pytest.mark.nightly)
  return [x if x in fast else slow(x) for x in items]


def test_the_list_has_every_codec_and_sketch():
  """Catches a new codec or sketch that no worker has ever sent."""
  assert {*codecs.REGISTRY.names()} == {*cases.CODECS}
  assert {*sketches.names()} - {'identity'} == {*cases.SKETCHES}


@pytest.mark.parametrize('name', split(cases.examples(), {'onebit_adam'}))
def test_workers_are_the_clients_of_the_engine(name):
  """Catches other keys, another order of links or a lost scale of a step."""
  options = dict(cases.examples()[name])
  if 'population' in options:
    options['population'] = 4
  grads = cases.gradients(3, 4)
  tx = distributed.algorithm(name, 'data', 0.1, **options)
  updates, _ = cases.run(tx, grads)
  given = lambda hp: lambda params, batches, key, correction: (batches, {})
  make = algorithms.make(name, local=given, **options)
  hp = Hyper(jnp.float32(1), jnp.float32(0.1))
  step = jax.jit(rounds.run_round(make, rounds.cohort_mesh(1)))
  state = rounds.init(make(hp), cases.PARAMS, 4)
  for i in range(3):
    before = state.params
    batches = jax.tree.map(lambda x, i=i: x[i], grads)
    cohort = rounds.Cohort(np.arange(4), np.ones(4, np.float32), batches)
    state, _ = step(hp, state, cohort, jax.random.key(0))
  moved = jax.tree.map(jnp.subtract, state.params, before)
  # The parameters of a worker stay as they are: compare the first step's rule.
  last = jax.tree.map(lambda x: x[-1, 0], updates)
  for got, want in zip(*map(jax.tree.leaves, (last, moved)), strict=True):
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize('case', split(cases.CASES, cases.FAST))
def test_devices_and_vmap_agree(case):
  """Catches keys, parts or states that depend on how workers are laid out."""
  tx = cases.mean_over(case)
  mesh = jax.make_mesh((2,), ('data',), (AxisType.Auto,))
  grads = cases.gradients(2, 2)
  want, _ = cases.run(tx, grads)
  state = distributed.init(tx, cases.PARAMS, mesh)
  specs = distributed.state_specs(tx, cases.PARAMS, mesh)

  def steps(state, grads):
    local = jax.tree.map(lambda x: x[:, 0], grads)
    step = lambda state, g: tx.update(g, state, cases.PARAMS)[::-1]
    return jax.lax.scan(step, state, local)[::-1]

  for check in (True, False):
    fn = jax.shard_map(
      steps, mesh=mesh, in_specs=(specs, P(None, 'data')),
      out_specs=(P(), specs), check_vma=check,
    )  # fmt: skip
    got, _ = jax.jit(fn)(state, grads)
    for a, b in zip(*map(jax.tree.leaves, (got, want)), strict=True):
      np.testing.assert_array_equal(b[:, 0], b[:, 1])
      np.testing.assert_allclose(a, b[:, 0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('case', split(cases.CASES, cases.FAST))
def test_no_floats_of_the_model_travel(case):
  """Catches decoded payloads that travel, and a mean that a step refuses."""
  mesh, tx = jax.sharding.AbstractMesh((4,), ('data',)), cases.mean_over(case)
  sent = distributed.bytes_per_step(tx, cases.PARAMS, mesh)
  cases.traced(tx, cases.PARAMS, mesh)
  text, both_ways = case
  if text.split('(')[0] in ('dense', 'identity'):
    assert sent.out >= 4 * cases.D  # n = 4: at least an all-reduce of floats
  elif 'dct_blocks' not in text or not both_ways:  # of parts of prime sizes
    assert sent.largest_float <= 0.35 * cases.D
    # A float32 of every number, gathered, is 12 D: 2 bytes a number are less.
    assert sent.out <= (3 if both_ways else 6) * (cases.D + 2)  # in equal parts


UNBIASED = ('eden(bits=1)', 'qsgd(levels=2)', 'rand_k(k=0.25)', cases.BOTH)


@pytest.mark.parametrize('case', split(
  [(text, both) for text in UNBIASED for both in (False, True)],
  [(UNBIASED[1], True)],
))  # fmt: skip
def test_the_estimate_is_unbiased(case):
  """Catches workers that share a draw, and a lost share; false alarms 1e-8."""
  grads = jax.random.normal(jax.random.key(1), (1, 4, 64)) ** 3

  def estimate(seed):
    tx = cases.mean_over(case, seed=seed)
    one = lambda g: tx.update(g, tx.init(grads[0, 0]))[0]
    return jax.vmap(one, axis_name='data')(grads[0])[0]

  draws = jax.jit(jax.vmap(estimate))(jnp.arange(1000))
  error = draws.mean(0) - grads[0].mean(0)
  scale = draws.std(0) / 1000**0.5 + 1e-6
  assert jnp.abs(error / scale).max() < 6.5


@pytest.mark.parametrize(
  'both_ways', [pytest.param(False, marks=pytest.mark.nightly), True]
)
def test_residuals_and_estimates_are_the_gradients(both_ways):
  """Catches a residual that is lost, or kept by the wrong worker."""
  grads = cases.gradients(5, 4)
  estimates, state = cases.run(
    cases.mean_over((cases.FEEDBACK, both_ways)), grads
  )
  flat = jax.vmap(lambda x: flatten_util.ravel_pytree(x)[0])
  sent = flat(jax.tree.map(lambda x: x[:, 0], estimates)).sum(0)
  given = flat(jax.tree.map(lambda x: x.mean(1), grads)).sum(0)
  if both_ways:
    own, mean = state.protocol[0].own.value, state.protocol[0].mean.value
    kept = own[:, 0].mean(0).ravel()[: cases.D] + mean[:, 0].ravel()[: cases.D]
  else:
    rows = jax.tree.map(lambda x: x[:, 0], state.encode.value)
    kept = flat(rows).mean(0)
  np.testing.assert_allclose(sent + kept, given, rtol=1e-4, atol=1e-4)


def test_one_worker_sends_nothing():
  """Catches a division by zero workers, or a payload sent to itself."""
  mesh = jax.make_mesh((1,), ('data',), devices=jax.devices()[:1])
  tx = cases.mean_over((cases.FEEDBACK, True))
  assert distributed.bytes_per_step(tx, cases.PARAMS, mesh).out == 0
  state, loss = distributed.init(tx, cases.PARAMS, mesh), lambda p, b: b.sum()
  step = distributed.train_step(loss, tx, mesh)
  params = jax.tree.map(jnp.copy, cases.PARAMS)
  assert step(params, state, jnp.ones((2, 3)))[2] == 6


@pytest.mark.parametrize('case', split(
  cases.CASES, [(cases.FEEDBACK, False)]
))  # fmt: skip
def test_every_worker_sees_a_nan(case):
  """Catches bits that hide it, and memory that keeps it in the next step."""
  grads = cases.gradients(2, 2)
  grads = jax.tree.map(lambda x: x.at[0, 1].set(jnp.nan), grads)
  estimates, state = cases.run(cases.mean_over(case), grads)
  for x in jax.tree.leaves(estimates):
    assert jnp.isnan(x[0]).any(), case
    assert jnp.isfinite(x[1]).all(), case
  floats = [x for x in jax.tree.leaves(state) if x.dtype == jnp.float32]
  assert all(jnp.isfinite(x).all() for x in floats)


def test_a_nan_that_is_not_sent_does_not_stay():
  """Catches a residual that shows its NaN again and again."""
  text = 'rand_k(k=0.1, contract=True, error_feedback=True)'
  tx = distributed.mean_over('data', text)
  grads = jnp.ones((30, 2, 100)).at[0, 1, 7].set(jnp.nan)
  swap = lambda step: lambda state, g: step(g, state)[::-1]
  one = lambda g: jax.lax.scan(swap(tx.update), tx.init(g[0]), g)
  state, updates = jax.vmap(one, in_axes=1, axis_name='data')(grads)
  assert all(jnp.isfinite(x).all() for x in jax.tree.leaves(state.encode))
  assert jnp.isfinite(updates[:, 1:]).all()


def test_half_precision_is_averaged_in_float32():
  """Catches 512 ones whose bfloat16 sum stops at 256."""
  tx = distributed.mean_over('data', 'int8')
  one = lambda g: tx.update(g, tx.init(jnp.ones(16, jnp.bfloat16)))[0]
  grads = jnp.ones((512, 16), jnp.bfloat16)
  mean = jax.jit(jax.vmap(one, axis_name='data'))(grads)[0]
  assert mean.dtype == jnp.bfloat16
  np.testing.assert_array_equal(mean, jnp.ones(16, jnp.bfloat16))


def test_two_means_of_a_chain_draw_for_themselves():
  """Catches the same coordinates twice, and state that differs by a NaN."""
  mean = lambda axis: distributed.mean_over(axis, 'rand_k(k=0.1)')
  tx = optax.chain(mean('a'), mean('b'))
  one = lambda g: tx.update(g, tx.init(g))[0]
  both = jax.jit(jax.vmap(jax.vmap(one, axis_name='a'), axis_name='b'))
  kept = (both(jnp.ones((1, 1, 100))) > 0).sum()
  assert kept < 10  # not the same ten
  mesh, params = jax.sharding.AbstractMesh((2, 2), ('a', 'b')), jnp.ones(100)
  cases.traced(tx, params, mesh)


def test_state_before_the_mean_survives_a_restart():
  """Catches momentum of one worker that is saved as that of all."""
  trace = distributed.per_worker(optax.trace(0.9), 'data')
  tx = optax.chain(trace, distributed.mean_over('data'))
  mesh = jax.make_mesh((2,), ('data',), (AxisType.Auto,))
  specs = distributed.state_specs(tx, jnp.ones(3), mesh)
  step = jax.jit(jax.shard_map(
    lambda g, s: tx.update(g[0], s), mesh=mesh, in_specs=(P('data'), specs),
    out_specs=(P(), specs), check_vma=False,
  ))  # fmt: skip
  grads = jnp.arange(6.0).reshape(2, 3)
  _, state = step(grads, distributed.init(tx, jnp.ones(3), mesh))
  want, _ = step(grads, state)
  place = lambda x, old: jax.device_put(np.asarray(x), old.sharding)
  again = jax.tree.map(place, jax.device_get(state), state)
  np.testing.assert_array_equal(step(grads, again)[0], want)
