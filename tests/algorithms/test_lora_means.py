"""Means of factors: each is its twin, and which of them are exact."""

import cases
import chex
from fl_sketch import algorithms, rounds
from fl_sketch.models import lora
from fl_sketch.rounds import comms, mesh as mesh_lib
from fl_sketch.runs import config, problem
from fl_sketch.sites import programs
import jax
import jax.numpy as jnp
import messaging_clients
import numpy as np
import pytest
import reference
import twins_base
import twins_lora

KERNEL = np.random.default_rng(5).standard_normal((4, 2), dtype=np.float32)
NAMES = {'naive': 'fedavg', 'ffa': 'fedavg', 'flora': 'flora', 'fedex': 'fedex'}
MESH = mesh_lib.cohort_mesh(2)
each_kind = pytest.mark.parametrize('kind', NAMES)


class Run:
  """Rounds of a problem whose kernel is adapted as a config says."""

  def __init__(self, kind, **rates):
    options = {'kind': kind, 'rank': 1, 'alpha': cases.SCALE}
    options |= {'targets': ('w',), 'trainable': ('b',)}
    c = config.Config(algorithm=NAMES[kind], lora=options)
    whole = problem.Problem(
      data={}, test={}, params={'w': jnp.asarray(KERNEL), 'b': jnp.zeros(2)},
      loss_fn=cases.loss_fn, metrics_fn=cases.loss_fn, labels=None, scale={},
    )  # fmt: skip
    task = problem.adapted(c, whole)
    exact = NAMES[kind] == kind
    scale = {'lora_scale': cases.SCALE} if exact else {}
    self.make = algorithms.make(NAMES[kind], task.loss_fn, **scale)
    numbers = {k: jnp.float32(v) for k, v in rates.items()}
    self.hp = cases.HP._replace(frozen=task.frozen, **numbers)
    self.start = task.params
    self.round_fn = cases.jit(rounds.run_round(self.make, MESH))

  def joined(self, params):
    """The tree with all adapters, in float64."""
    tree = lora.join(self.hp.frozen, params)
    return jax.tree.map(np.float64, jax.device_get(tree))

  def play(self, cohorts, start=None):
    """The state after rounds of these cohorts, on two shards."""
    start = self.start if start is None else start
    state = rounds.init(self.make(self.hp), start, cases.POPULATION)
    state = mesh_lib.place(MESH, state)
    for cohort in cohorts:
      state, _ = self.round_fn(self.hp, state, cohort, cases.KEY)
    return state


@pytest.mark.representatives('flora', 'fedex')
@each_kind
def test_each_is_its_numpy_twin(kind):
  """Catches another mean, residual or scale, and clients without the kernel."""
  run, cohorts = Run(kind), [cases.one_absent(r) for r in range(4)]
  settings = twins_base.Settings(0.05, 0.1, np.inf, 0.0, cases.POPULATION)
  trained = jax.tree.map(lambda x: jnp.where(x == 0, 0.3, x), run.start)
  for first in (run.start, trained):
    end = run.joined(run.play(cohorts, first).params)
    start = reference.flat(run.joined(first))
    want = getattr(twins_lora, kind)(
      settings,
      start,
      twins_base.rounds_of(cohorts, cases.KEY),
      lora_scale=cases.SCALE,
    )
    np.testing.assert_allclose(reference.flat(end), want, atol=2e-5)
    assert np.abs(want - start).max() > 1e-2


def alone(cohort, lane):
  """The cohort in which one client takes part."""
  weight = np.where(np.arange(len(cohort.weight)) == lane, 1, 0)
  return cohort._replace(weight=weight.astype(np.float32))


@pytest.mark.parametrize(('kind', 'exact'), [
  ('naive', False), ('ffa', True), ('flora', True), ('fedex', True),
])  # fmt: skip
def test_the_mean_of_models_is_kept_but_by_the_naive_mean(kind, exact):
  """Catches an exact mean that is not; the naive error is 10,000 times more."""
  run = Run(kind, server_lr=1.0)
  first = cases.cohort(0, 0)
  merged = lambda state: lora.merge(run.joined(state.params), cases.SCALE)['w']
  ends = [merged(run.play([alone(first, i)])) for i in range(4)]
  want = np.average(ends, axis=0, weights=first.weight)
  error = np.abs(merged(run.play([first])) - want).max()
  assert np.ptp(ends, axis=0).max() > 0.1  # clients disagree
  assert (error < 1e-6) == exact
  if not exact:
    assert error > 0.01


def test_a_bound_on_payloads_is_of_how_far_clients_move():
  """Catches a norm of the factors themselves, which grow with training."""
  run = Run('fedex', client_lr=1e-8)
  large = jax.tree.map(lambda x: jnp.full_like(x, 10), run.start)
  mesh = mesh_lib.cohort_mesh(1)
  round_fn = cases.jit(rounds.run_round(run.make, mesh, max_payload_norm=1.0))
  state = rounds.init(run.make(run.hp), large, cases.POPULATION)
  _, metrics = round_fn(run.hp, state, cases.cohort(0, 0), cases.KEY)
  assert metrics['participants'] > 0 == metrics['rejected_clients']


@pytest.mark.representatives('ffa')
@pytest.mark.parametrize('kind', ['naive', 'ffa'])
def test_clients_send_messages_of_what_is_trained(kind):
  """Catches a payload with frozen arrays, or a client without them."""
  run, cohort = Run(kind), cases.full_participation(0)
  made = programs.Programs(run.make, run.hp, run.start, cases.KEY)
  over_messages = messaging_clients.Run(made, run.start, lambda r: cohort)
  want = comms.drop_per_client(run.play([cohort]))
  chex.assert_trees_all_close(over_messages.play(), want, rtol=0, atol=1e-6)
  row = over_messages.closed[0].metrics
  assert row['participants'] == len(cohort.ids)
  assert row['uplink_bytes'] == 4 * (2 + 2 + 4 * (kind == 'naive'))


@pytest.mark.parametrize('kind', ['flora', 'fedex'])
def test_parameters_without_adapters_are_refused(kind):
  """Catches a plain mean under the name of an exact one."""
  make = algorithms.make(kind, cases.loss_fn)
  with pytest.raises(ValueError, match='adapters'):
    rounds.init(make(cases.HP), cases.PARAMS, 1)
