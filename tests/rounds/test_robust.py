"""Robust aggregation of tables under byzantine clients, up to its breakdown."""

import functools

import algorithm_list
import cases
import chex
from fl_sketch import runs
from fl_sketch.data import availability
from fl_sketch.privacy.mechanisms.private_mean import CentralRelease
from fl_sketch.rounds import aggregation, keys, robust, transforms as t
from fl_sketch.rounds.algorithm import federated
import jax
import jax.numpy as jnp
import numpy as np
from operators import vector
import optax
import pytest

G, D = 9, 40
ALL = jnp.ones(G, bool)
RULES = {kind: jax.jit(fn) for kind, fn in robust.KINDS.items()}
of_kind = pytest.mark.parametrize('kind', RULES)


def points(seed=0, count=G):
  return np.random.default_rng(seed).standard_normal((count, D), np.float32)


def geometric_median(x, steps=20_000):
  """Weiszfeld's steps from the mean until they no longer move."""
  x = np.float64(x)
  center = x.mean(0)
  for _ in range(steps):
    weight = 1 / np.linalg.norm(x - center[None], axis=1).clip(1e-12)
    center, old = weight @ x / weight.sum(), center
    if np.abs(center - old).max() < 1e-12:
      return center
  raise AssertionError('Expected the steps to end.')


TWINS = {
  'geometric_median': geometric_median,
  'median': lambda x: np.median(np.float64(x), axis=0),
}


@of_kind
@pytest.mark.parametrize(
  ('missing', 'scale'), [(0, 1e-12), (4, 1e12), (8, 1.0)]
)
def test_a_rule_is_its_twin_of_the_points_that_are_there(kind, missing, scale):
  """Catches a point that is absent and counts, and a rule with a unit."""
  x, present = points(), np.arange(G) >= missing
  scaled = np.float32(scale * x)
  tree = {'a': scaled[:, :12].reshape(G, 3, 4), 'b': scaled[:, 12:]}
  result = vector(RULES[kind](tree, present)) / scale
  np.testing.assert_allclose(result, TWINS[kind](x[missing:]), atol=1e-5)


@of_kind
def test_nobody_is_zero(kind):
  """Catches 0 / 0; one point alone is a case of the twins."""
  assert not RULES[kind](jnp.asarray(points()), ~ALL).any()


@of_kind
@pytest.mark.parametrize('byzantine', [4, 5])
@pytest.mark.parametrize('scale', [1e6, 1e30])
def test_less_than_half_of_the_points_move_it_no_further_than_the_bound(
  kind, byzantine, scale
):
  """All byzantine points in one place; from one half on they win."""
  x = points(1)
  honest, x[:byzantine] = x[byzantine:], scale
  result = np.float64(RULES[kind](jnp.asarray(x), ALL))
  center, share = honest.mean(0), byzantine / G
  radius = np.linalg.norm(honest - center[None], axis=1).max()
  if byzantine > G / 2:
    assert np.linalg.norm(result) > 0.9 * scale
    return
  if kind == 'geometric_median':
    bound = radius * (1 - share) / (1 - 2 * share) ** 0.5
    assert np.linalg.norm(result - center) <= bound
  else:
    assert (result >= honest.min(0)).all()
    assert (result <= honest.max(0)).all()


def group_of(cohort, round, groups):
  """The group of each client, by hand."""
  public = keys.round_keys(cases.KEY, round)
  one = lambda i: int(keys.group(keys.for_client(public, i).client, groups))
  return [one(i) for i in cohort.ids]


@functools.cache
def case(groups, kind='median'):
  rule = groups and robust.Rule(kind, groups)
  return algorithm_list.case('fedavg', cases.DENSE, robust=rule)


@pytest.mark.nightly
def test_the_means_of_groups_by_hand():
  """The update of one client of FedAvg, from a round with it alone."""
  size, groups = cases.POPULATION, 7
  cohort = cases.cohort(1, 0, size)
  take = lambda i: cohort.weight * (np.arange(size) == i)
  one = lambda make, c: vector(cases.PARAMS) - vector(play_one(make, c))
  plain = case(groups=None).make
  moved = [one(plain, cohort._replace(weight=take(i))) for i in range(size)]
  group = group_of(cohort, 0, groups)
  there = {*group[1:]}
  assert 3 <= len(there) < min(groups, size - 1)  # some shared, some empty
  means = [
    np.average(moved, 0, cohort.weight * (np.array(group) == g)) for g in there
  ]
  for kind in RULES:
    result = one(case(groups=groups, kind=kind).make, cohort)
    np.testing.assert_allclose(result, TWINS[kind](means), atol=1e-6)


def play_one(make, cohort):
  round_fn, state = cases.program(make, 1, clients_per_step=None)
  return round_fn(cases.HP, state, cohort, cases.KEY)[0].params


@pytest.mark.representatives('median')
@of_kind
def test_one_group_is_the_mean_to_the_last_bit(kind):
  want, bill = cases.play(case(groups=None).make, 2)
  result, metrics = cases.play(case(groups=1, kind=kind).make, 2)
  chex.assert_trees_all_equal(result.params, want.params)
  assert np.abs(vector(want.params)).max() > 1e-3
  for name in ('uplink_bytes', 'downlink_bytes'):
    assert metrics[name] == bill[name]


def test_a_sum_that_overflows_is_left_out():
  """The payloads are finite, their sum in one of the groups is not."""
  cohort = cases.full_participation(0)
  group = np.array(group_of(cohort, 0, 2))
  assert {*group} == {0, 1}
  update = jnp.where(group == group[0], 3e38, 1.0)
  assert not jnp.isfinite(update[group == group[0]].sum())
  fill = lambda params, x: jax.tree.map(lambda p: jnp.full_like(p, x), params)
  rule = robust.Rule('geometric_median', 2)
  make = lambda hp: federated(
    lambda params, x, *_: (fill(params, x), {}),
    aggregation.mean_over_cohort(robust=rule),
    t.broadcast(),
    optax.scale(-1.0),
  )
  params = play_one(make, cohort._replace(batches=update))
  np.testing.assert_allclose(vector(params), -1, rtol=1e-6)


def test_a_config_names_the_rule_and_the_attack():
  fields = dict(dataset='quadratics', population=20, cohort=20, batch_size=1)
  fields |= dict(byzantine=0.2, attack='scale', max_payload_norm=3.0)
  exp = runs.build(fields | dict(robust='median', groups=7))
  options = runs.algorithm_options(exp.config)
  assert options['robust'] == robust.Rule('median', 7)
  assert (exp.attack, exp.max_payload_norm) == (availability.scale, 3.0)


def test_robustness_has_no_account_and_bounds_are_of_decoded_payloads():
  """Catches an epsilon of a median, and a bound that rejects nobody."""
  rule, release = (
    robust.Rule('median', 3),
    CentralRelease(4.0).with_hyper(cases.HP),
  )
  with pytest.raises(ValueError, match='robust'):
    aggregation.mean_over_cohort(robust=rule, privacy=release)
  with pytest.raises(ValueError, match='max_payload_norm'):
    cases.play(cases.FIRST['fedcomgate'].make, 1, max_payload_norm=1.0)
