"""Rounds: equal to the twins on any mesh, exact bytes, absent clients."""

import cases
import chex
from fl_sketch import algorithms, rounds
from fl_sketch.algorithms import topology
from fl_sketch.rounds import (
  aggregation,
  client_step,
  comms,
  keys,
  mesh as mesh_lib,
  transforms as t,
)
from fl_sketch.rounds.algorithm import federated
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import reference
import twins

HP, KEY, PARAMS = cases.HP, cases.KEY, cases.PARAMS


def twin_options(case):
  """The options of a case as its twin takes them."""
  options = dict(case.options)
  if 'local_steps' in algorithms.options(case.name):
    options['local_steps'] = 3
  if options.pop('schedule', None):
    options['server_optimizer'] = 'cosine'
  if (graph := options.pop('graph', None)) is not None:
    mixing = topology.metropolis(graph)
    steps = options.pop('gossip_steps', None)
    exact = np.full(mixing.shape, 1 / len(mixing))
    power = np.linalg.matrix_power
    options['mixing'] = power(mixing, steps) if steps else exact
  return options


def twin(case, cohorts):
  """The parameters of the NumPy twin after these cohorts."""
  options, registry = twin_options(case), twins.TWINS
  if cases.secret(case.make):
    options['noise_key'], registry = cases.SECRET, twins.PRIVATE
  start = reference.flat(cases.params_of(case.make))
  return registry[case.name](case.hp, start, cohorts, KEY, **options)


@cases.each_case
def test_agrees_with_its_numpy_twin(case):
  """Five rounds, of which all but the decentralised ones miss clients."""
  cohort_of = cases.cohorts_of(case.make)
  if case.name == 'decentralised':
    cohort_of = cases.full_participation
  state, _ = cases.play(case.make, cohort_of=cohort_of)
  cohorts = [cohort_of(r) for r in range(5)]
  np.testing.assert_allclose(
    reference.flat(state.params), twin(case, cohorts), atol=2e-5
  )


@cases.law(cases.ALGORITHMS, fast=['safl_adam', 'scaffold'])
def test_the_mesh_and_chunks_of_lanes_are_invisible(case):
  """Catches numbers that depend on two shards, or on three lanes at a time."""
  chunks = cases.play(case.make, 1, clients_per_step=3)
  chex.assert_trees_all_close(cases.play(case.make), chunks, atol=1e-5)


@cases.each_case
def test_bytes_are_those_counted_by_hand(case):
  """Catches a bill of what is sent in other rounds, in each of five rounds."""
  _, rows = cases.play_all(case.make)
  more = np.array(more_bytes(case))
  down = more * (case.name != 'marina')  # whose mean is whole
  assert ([row['uplink_bytes'] for row in rows] == case.up + more).all()
  assert ([row['downlink_bytes'] for row in rows] == case.down + down).all()


def more_bytes(case):
  """Bytes of five rounds above those of the last."""
  if case.name == 'preconditioned_sketching':  # factors, in rounds 0 and 3
    return [28, 0, 0, 28, 0]
  if case.name == 'onebit_adam':  # two rounds of the warm-up
    return [34, 34, 0, 0, 0]
  if case.name == 'marina':  # the whole gradient, first and by the coin
    coin = lambda r: keys.coin(keys.round_keys(KEY, r), 0.3)
    return [20 * bool(r == 0 or coin(r)) for r in range(5)]
  return [0] * 5


@cases.each_structure
def test_absent_clients_leave_no_trace(case):
  def tampered(r):
    cohort = cases.cohorts_of(case.make)(r)
    for x in cohort.batches:
      x[0] = np.nan
    return cohort

  state, metrics = cases.play(case.make)
  other, other_metrics = cases.play(case.make, cohort_of=tampered)
  chex.assert_trees_all_equal(state, other)
  chex.assert_trees_all_equal(metrics, other_metrics)


@cases.law(cases.ONE_EACH, fast=['scaffold'])
def test_one_compilation_for_all_rounds(case):
  mesh = mesh_lib.cohort_mesh(2)
  chex.clear_trace_counter()
  round_fn = cases.jit(
    chex.assert_max_traces(rounds.run_round(case.make, mesh), n=1),
    donate_argnums=1,
  )
  state = cases.start(case.make, mesh)
  for r in range(3):
    cohort = cases.cohorts_of(case.make)(r)
    cohort = mesh_lib.place(mesh, cohort, jax.P(comms.SHARD))
    state, _ = round_fn(HP, state, cohort, KEY, *cases.secret(case.make))


@cases.law(cases.ONE_EACH, fast=['scaffold'])
def test_fused_rounds_are_the_same_rounds(case):
  """Catches a trajectory of the states before the rounds, or of the last."""
  mesh = mesh_lib.cohort_mesh(2)
  fused = rounds.scan_rounds(
    rounds.run_round(case.make, mesh), trajectory=lambda state: state.params
  )
  cohorts = [cases.cohorts_of(case.make)(r) for r in range(5)]
  stacked = jax.tree.map(lambda *xs: np.stack(xs), *cohorts)
  args = HP, cases.start(case.make, mesh), stacked, KEY
  result = cases.jit(fused)(*args, *cases.secret(case.make))
  state, metrics, path = jax.device_get(result)
  want, last = cases.play(case.make)
  chex.assert_trees_all_close(state, want, atol=1e-6)
  for r, count in ((0, 1), (4, 5)):
    at = jax.tree.map(lambda x, r=r: x[r], path)
    params = cases.play(case.make, count=count)[0].params
    chex.assert_trees_all_close(at, params, atol=1e-6)
  assert metrics['uplink_bytes'].shape == (5,)
  np.testing.assert_allclose(metrics['train_loss'][-1], last['train_loss'])


@cases.law(cases.ONE_EACH, fast=['safl_adam'])
def test_lowers_for_accelerators(case):
  mesh = mesh_lib.cohort_mesh(2)
  round_fn = jax.jit(rounds.run_round(case.make, mesh, clients_per_step=None))
  rest = KEY, *cases.secret(case.make)
  cohort = cases.cohorts_of(case.make)(0)
  args = HP, cases.start(case.make, mesh), cohort, *rest
  exported = jax.export.export(round_fn, platforms=['tpu', 'cuda'])(*args)
  assert exported.platforms == ('tpu', 'cuda')


@cases.law(cases.ONE_EACH, fast=['scaffold'])
def test_a_vmapped_sweep_is_its_single_runs(case):
  mesh = mesh_lib.cohort_mesh(2)
  rates = jnp.array([0.02, 0.1, 0.3])
  hps = jax.tree.map(lambda x: jnp.full(3, x), HP)._replace(server_lr=rates)
  rest = KEY, *cases.secret(case.make)
  axes = 0, 0, None, *(None for _ in rest)
  sweep = cases.jit(jax.vmap(rounds.run_round(case.make, mesh), axes))
  states = jax.vmap(
    lambda hp: rounds.init(
      case.make(hp), cases.params_of(case.make), cases.POPULATION
    )
  )(hps)
  for r in range(3):
    states, _ = sweep(hps, states, cases.cohorts_of(case.make)(r), *rest)
  # The middle point is the run that `cases.play` makes.
  alone, _ = cases.play(case.make, count=3)
  middle = jax.tree.map(lambda x: x[1], jax.device_get(states))
  chex.assert_trees_all_close(middle, alone, atol=1e-5)


@pytest.mark.parametrize(('x', 'bound'), [(np.inf, None), (1e9, 100.0)])
def test_a_client_whose_update_is_absurd_is_rejected(x, bound):
  """Catches a bound on norms that is not applied; a NaN needs none."""

  def of(weight, x):
    def cohort_of(r):
      cohort = cases.cohort(0, r)
      cohort.weight[2] *= weight
      cohort.batches[0][2] *= x
      return cohort

    return cohort_of

  make = cases.ALGORITHMS['safl_adam'].make
  state, metrics = cases.play(
    make, count=2, cohort_of=of(1, x), max_payload_norm=bound
  )
  want, absent = cases.play(make, count=2, cohort_of=of(0, 1))
  assert metrics['rejected_clients'] == 1
  assert metrics['train_loss'] == absent['train_loss']  # of those who remain
  assert metrics['finite']
  chex.assert_trees_all_equal(state, want)


@cases.each_structure
def test_a_round_without_participants_changes_nothing_or_is_noise(case):
  """Catches momentum that decays; a private one must not show it is empty."""
  size = cases.POPULATION if case.make(HP).full_participation else 4
  cohort_of = lambda r: cases.cohort(size if r else 1, r, size)
  want, _ = cases.play(case.make, count=1)
  state, metrics = cases.play(case.make, count=3, cohort_of=cohort_of)
  assert metrics['participants'] == metrics['train_loss'] == 0
  assert state.round == 3
  if cases.secret(case.make):
    assert metrics['finite']
    cohorts = [cohort_of(r) for r in range(3)]
    params = reference.flat(state.params)
    np.testing.assert_allclose(params, twin(case, cohorts), atol=2e-5)
    privacy = case.options.get('privacy')
    released = privacy is not None and privacy.trust == 'central'
    assert released == (params != reference.flat(want.params)).any()
  else:
    chex.assert_trees_all_equal(state, want._replace(round=state.round))


def first_round(update, server_link, denominator=None):
  """A round in which every coordinate of a client's update is the same."""
  make = lambda hp: federated(
    lambda params, *_: (jax.tree.map(lambda x: x + update, params), {}),
    aggregation.mean_over_cohort(denominator=denominator),
    t.broadcast(),
    server_link,
  )
  return cases.play(make, count=1)


def test_what_overflows_on_the_server_is_reported():
  """Adam's second moment is infinite, so that its update would be zero."""
  state, metrics = first_round(1e25, optax.scale_by_adam())
  assert np.isfinite(state.params['w']).all()
  assert not metrics['finite']
  _, metrics = first_round(1e30, optax.scale(1e30))
  assert not metrics['finite']
  assert metrics['rejected_clients'] == 0


def test_a_check_of_every_leaf_is_compiled_once():
  """Catches a check that XLA repeats in the work of each leaf."""

  def guarded(leaves):
    finite = client_step.all_finite(leaves)
    return [jnp.where(finite, x, 0) for x in leaves]

  compiled = jax.jit(guarded).lower([jnp.ones((64, 32))] * 20).compile()
  assert compiled.as_text().count(' and(') < 20**2


EVERYONE = [
  n for n in cases.FIRST if cases.FIRST[n].make(HP).full_participation
]


@pytest.mark.parametrize('name', EVERYONE)
def test_a_partial_cohort_is_refused_where_everyone_must_take_part(name):
  """Absent clients' variates would no longer add up to 0, without a word."""
  make, mesh = cases.FIRST[name].make, mesh_lib.cohort_mesh(2)
  size = cases.POPULATION - 1
  args = HP, cases.start(make, mesh), cases.cohort(0, 0, size), KEY
  with pytest.raises(ValueError, match=f'size={size}'):
    jax.eval_shape(rounds.run_round(make, mesh), *args)


def test_who_must_all_take_part_is_what_the_registry_says():
  """The config refuses by the one, Python users are refused by the other."""
  for name, case in cases.FIRST.items():
    entry, private = algorithms.entry(case.name), bool(cases.secret(case.make))
    everyone = entry.full_participation or (entry.equal_weights and private)
    assert everyone == (name in EVERYONE)


@pytest.mark.parametrize(('denominator', 'want'), [(4.0, -6 / 4), (None, -1)])
def test_a_fixed_denominator_is_not_the_realised_cohort(denominator, want):
  state, _ = first_round(1.0, optax.scale(-1.0), denominator)
  np.testing.assert_allclose(state.params['b'], want)  # weights 0, 1, 2, 3
