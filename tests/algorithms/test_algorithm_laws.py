"""Invariants of each algorithm's state, and its limits."""

import cases
from cases import full_participation
import chex
from fl_sketch import codecs, rounds, sketches
from fl_sketch.algorithms import fedsketchgate, topology
from fl_sketch.rounds import client_step, keys
import jax
import jax.numpy as jnp
import numpy as np
from operators import vector
import optax
import pytest
import quadratics
from quadratics import away, client_3, gossip, linear, moved, rows, trail

N, D = cases.POPULATION, cases.DIMENSION
COUNT, MEAN, HP = cases.COUNT, cases.MEAN, cases.HP
CYCLIC_8 = sketches.block_cyclic(8)


@pytest.mark.representatives('scaffold')
@pytest.mark.covers('S2-Alg6')
@pytest.mark.parametrize('name', quadratics.TRACKING)
def test_tracking_reaches_the_optimum_of_unlike_clients(name):
  gap, variates = quadratics.tracked(name)
  assert gap[-1] < 1e-6
  assert np.abs(variates).max() > 1
  np.testing.assert_allclose(variates.sum(0), 0, atol=1e-5)


def test_gate_reads_tables_by_the_operator_that_it_is_given():
  """Catches a Count Sketch that GATE builds in place of its argument.

  Its hashes need not be those of the given one, and its table, if larger than
  the model, was refused.
  """
  op = sketches.count_sketch(5, 8, allow_larger=True)
  mean = sketches.count_sketch(5, 8, combine='mean', allow_larger=True)
  table = op.sketch(cases.KEY, cases.PARAMS)
  read = lambda op: op.desketch(cases.KEY, table, cases.PARAMS)
  reader = fedsketchgate.linear_reader(op)
  chex.assert_trees_all_equal(read(reader), read(mean))
  gate = lambda op: linear('fedsketchgate', sketch=op, local_steps=1)
  gate(op._replace(linear_reader=MEAN))(HP)
  with pytest.raises(ValueError, match="'count_sketch' is not linear"):
    gate(op._replace(linear_reader=None))(HP)


@pytest.mark.representatives('fedavg-options0')
@pytest.mark.parametrize(
  ('name', 'options'),
  [
    ('fedavg', {}),
    ('fedsketch_privix', {'sketch': quadratics.COUNT}),
    ('fedcom', {'codec': codecs.rand_k(8)}),
  ],
)
def test_without_tracking_it_stalls(name, options):
  options |= {'local_steps': quadratics.STEPS}
  _, gap = quadratics.play(name, quadratics.heterogeneous(), 200, **options)
  assert (gap[100:] > 1e-2).all()


@pytest.mark.nightly
@pytest.mark.covers('S2-Alg6')
def test_a_median_in_the_variates_lets_their_sum_drift():
  gap, variates = quadratics.tracked('privix', printed=True)
  assert np.abs(variates.sum(0)).max() > 0.05
  assert gap[-1] > 1e-2


@pytest.mark.representatives('sign-full_participation')
@pytest.mark.parametrize('clients', [full_participation, client_3])
@pytest.mark.parametrize(
  'codec', [codecs.top_k(3), codecs.sign()], ids=['top_k', 'sign']
)
def test_what_was_sent_and_what_is_left_add_up(codec, clients):
  """The server has moved by all decoded payloads, hence the rest by hand."""
  codec_make = linear('fedcom', codec=codec, error_feedback=True)
  states, _ = trail(codec_make, clients)
  whole = moved(trail(linear('fedavg'), clients)[0]).sum(0)
  left = rows(states[-1].encode)[clients(0).ids].mean(0)
  assert np.abs(left).max() > 1e-3
  sent = moved(states).sum(0)
  want = whole - HP.server_lr * left
  np.testing.assert_allclose(sent, want, atol=1e-7)


def test_cocktail_sgd_keeps_what_neither_side_has_sent():
  options = {'codec': codecs.quantized_top_k(4, 4, 2), 'mask_ratio': 0.6}
  states, _ = trail(linear('cocktail_sgd', **options))
  whole = moved(trail(linear('fedavg'))[0]).sum(0)
  links = rounds.state_of(states[-1], 'Residuals')
  left = rows(links.client.value).mean(0), vector(links.server)
  assert min(np.abs(x).max() for x in left) > 1e-4
  want = whole - HP.server_lr * sum(left)
  np.testing.assert_allclose(moved(states).sum(0), want, atol=1e-7)


@pytest.mark.nightly
def test_cocktail_sgd_has_one_subset_for_all_and_a_new_one_every_round():
  """A codec that sends all of the subset leaves zeros there and only there."""
  size = 5
  make = linear('cocktail_sgd', codec=codecs.top_k(size), mask_ratio=size / D)
  states, _ = trail(make)
  subsets = []
  for state, step in zip(states[1:], moved(states), strict=True):
    empty = rows(rounds.state_of(state.protocol, 'client').value) == 0
    assert (empty == (step != 0)[None]).all()
    assert empty.sum() == N * size
    subsets.append(tuple(empty[0]))
  assert len(set(subsets)) > 1


@pytest.mark.nightly
@pytest.mark.covers('S2-Base')
@pytest.mark.parametrize('momentum', [0.0, 0.5])
def test_sketched_sgd_forgets_what_got_through_and_nothing_else(momentum):
  k = 2
  make = linear('sketched_sgd', sketch=COUNT, k=k, momentum=momentum)
  states, _ = trail(make)
  for state, step in zip(states[1:], moved(states), strict=True):
    support = step != 0
    assert support.sum() == k
    links = rounds.state_of(state, 'State')
    for kept in [links.residual, links.momentum][: 2 if momentum else 1]:
      assert ((rows(kept.value) == 0) == support[None]).all()


def test_marina_tosses_one_coin_and_the_bill_follows_it():
  """Equal batches of a linear loss have no change: only heads send news."""
  options = {'codec': codecs.rand_k(3), 'sync_probability': 0.4}
  states, metrics = trail(linear('marina', **options), count=12)
  whole = moved(trail(linear('fedsgd'), count=12)[0])
  steps, tosses = moved(states), []
  for r in range(12):
    round_keys = keys.round_keys(cases.KEY, r)
    tosses.append(r == 0 or bool(keys.coin(round_keys, 0.4)))
    want = whole[r] if tosses[-1] else steps[r - 1]
    np.testing.assert_allclose(steps[r], want, atol=1e-6)
    assert metrics[r]['uplink_bytes'] == (4 * D if tosses[-1] else 4 * 3)
    assert metrics[r]['downlink_bytes'] == 4 * D
  assert 1 < sum(tosses) < 12


def sent_in(make, r, client):
  """The payload of a client for one fixed update."""
  client_keys = keys.for_client(keys.round_keys(cases.KEY, r), client)
  update = jax.tree.map(jnp.ones_like, cases.PARAMS)
  return client_step.encode_once(make(HP), update, cases.PARAMS, client_keys)


@pytest.mark.covers('S4-Rem3.1')
@pytest.mark.parametrize(
  ('name', 'options', 'constant'),
  [
    ('fetchsgd', {'k': 2}, True),
    ('safl', {}, False),
    ('iterative_sketching', {}, False),
    ('fedsketch_privix', {}, False),
    ('fedsketch_heaprix', {'k': 2}, False),
    ('fedsketchgate', {'local_steps': 3}, False),
  ],
)
def test_a_hash_is_constant_only_where_its_tables_outlive_a_round(
  name, options, constant
):
  make = linear(name, sketch=MEAN, **options)
  sent = [vector(sent_in(make, r, client=3)) for r in (0, 1)]
  assert (sent[0] == sent[1]).all() == constant
  np.testing.assert_array_equal(vector(sent_in(make, 1, client=5)), sent[1])


@pytest.mark.representatives('cd_adam')
@pytest.mark.covers('S4-Alg2')
@pytest.mark.parametrize('name', ['safl_amsgrad', 'cd_adam'])
def test_the_largest_second_moment_of_amsgrad_never_falls(name):
  states, _ = trail(cases.ALGORITHMS[name].make, count=8)
  largest = [vector(optax.tree.get(s.server, 'nu_max')) for s in states]
  assert (np.diff(largest, axis=0) >= 0).all()
  assert (np.diff(largest, axis=0) > 0).any()


@pytest.mark.nightly
def test_models_of_a_graph_lie_around_their_mean():
  spread = [away(gossip(2), r) for r in range(1, 6)]
  assert min(np.abs(x).max() for x in spread) > 1e-4
  np.testing.assert_allclose([x.sum(0) for x in spread], 0, atol=1e-6)


@pytest.mark.nightly
@pytest.mark.parametrize('chebyshev', [False, True])
def test_gossip_steps_shrink_the_disagreement(chebyshev):
  """Per draw a block-cyclic desketch scales all norms by the same factor."""
  op = sketches.block_cyclic(5)
  start = np.linalg.norm(away(gossip(0, op), 1))
  matrix = topology.metropolis(quadratics.RING)
  rate, last = topology.second_eigenvalue(matrix), start
  for q in (2, 6):
    distance = np.linalg.norm(away(gossip(q, op, chebyshev=chebyshev), 1))
    bound = 1 / np.cosh(q * np.arccosh(1 / rate)) if chebyshev else rate**q
    assert distance <= min(last, bound * start * (1 + 1e-4))
    last = distance


@pytest.mark.nightly
def test_resync_brings_all_models_together():
  make = gossip(1, resync_every=2)
  apart = [bool(away(make, r).any()) for r in range(1, 6)]
  assert apart == [True, False, True, False, True]


@pytest.mark.representatives('graph0-options0-14.0')
@pytest.mark.parametrize(
  ('graph', 'options', 'floats'),
  [
    # 14 messages of 8 floats, 8 clients; then two neighbours.
    (quadratics.RING, {}, 2 * 7 * 8 / 8),
    (quadratics.RING, {'gossip_steps': 3}, 2 * 3 * 8),
    (topology.complete(N), {'gossip_steps': 1}, 7 * 8),
    (
      quadratics.RING,
      {'gossip_steps': 3, 'resync_every': 1},
      2 * 3 * 8 + 2 * 7 * D / 8,
    ),
  ],
)
def test_the_bill_of_a_graph_by_hand(graph, options, floats):
  options |= {'graph': graph, 'population': N}
  make = linear('decentralised', sketch=MEAN, **options)
  (metrics,) = trail(make, count=1)[1]
  assert (metrics['uplink_bytes'], metrics['downlink_bytes']) == (
    np.ceil(4 * floats),
    0,
  )


@pytest.mark.nightly
@pytest.mark.covers('S4-Base')
def test_fetchsgd_needs_a_table_that_is_large_enough_for_its_k():
  assert quadratics.heavy_hitters(20, 'subtract')[-1] < 0.01
  small = quadratics.heavy_hitters(4, 'subtract')
  assert not (small < 1e3).all()  # such as NaN
  assert (quadratics.heavy_hitters(4, 'zero') > 0.5).all()


@pytest.mark.nightly
def test_emptied_cells_are_stable_at_a_larger_rate_than_subtracted_ones():
  options = {'sketch': sketches.count_sketch(3, 5), 'k': 2}
  worst = lambda error_update, server_lr: quadratics.fetchsgd_gap(
    quadratics.heterogeneous(),
    error_update=error_update,
    server_lr=server_lr,
    **options,
  ).max()
  assert worst('subtract', 0.02) < 1.5
  assert worst('zero', 0.1) < 1.5
  assert not worst('subtract', 0.1) < 1e3


@pytest.mark.nightly
def test_clipping_survives_heavy_tails_that_stall_safl():
  """The noise has no variance; SGD on the server, lest Adam hides it."""
  turns, seed = 1000, 0
  shape = turns, quadratics.CLIENTS, 1, 1, quadratics.D
  noise = 0.5 * np.random.default_rng(seed).standard_t(1.5, shape)

  def loss_fn(params, batch):
    w = params['w']
    away = ((w - quadratics.BEST) ** 2).sum()
    return 0.5 * away + (batch[0][0] * w).sum()

  one = quadratics.cohort(np.zeros((quadratics.CLIENTS, quadratics.D)))
  many = jax.tree.map(lambda x: np.stack([x] * turns), one)
  cohorts = many._replace(batches=(noise.astype(np.float32),))

  def settled(**options):
    options |= {'sketch': CYCLIC_8, 'server_optimizer': 'sgd'}
    _, gap = quadratics.play('safl', cohorts, loss_fn=loss_fn, **options)
    return gap[turns // 2 :].mean()

  assert settled() > 0.8
  assert settled(clip='client', clip_norm=0.1) < 0.35
