"""Wrong protocols are refused at trace time; right ones of every shape run."""

import cases
import chex
from fl_sketch import algorithms, local, rounds, sketches
from fl_sketch.privacy.aggregation import Release
from fl_sketch.rounds import (
  aggregation,
  chain,
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

NEGATE = optax.scale(-0.1)
MEAN = aggregation.mean_over_cohort()


def algorithm(*links, local_fn=None):
  return lambda hp: federated(
    local_fn or local.sgd(cases.loss_fn, hp.client_lr), *links
  )


def trace(make):
  mesh = mesh_lib.cohort_mesh(2)
  state = rounds.init(make(cases.HP), cases.PARAMS, cases.POPULATION)
  round_fn = rounds.run_round(make, mesh)
  return jax.eval_shape(round_fn, cases.HP, state, cases.cohort(), cases.KEY)


def stateless(fn):
  return chain.Exchange(
    optax.init_empty_state, lambda u, s, p=None, **_: (fn(u), s)
  )


def test_a_chain_without_a_mean_over_the_cohort_is_refused():
  with pytest.raises(ValueError, match='got Broadcast'):
    trace(algorithm(t.broadcast(), NEGATE))
  identity = stateless(lambda u: u)
  with pytest.raises(ValueError, match='replicat'):
    trace(algorithm(identity, t.broadcast(), NEGATE))


def test_one_clients_value_kept_as_server_state_is_refused():
  leak = chain.Exchange(
    lambda params: optax.tree.zeros_like(params),
    lambda u, state, p=None, **_: (u, jax.tree.map(lambda x: x[0], u)),
  )
  with pytest.raises(ValueError, match='replicat'):
    trace(algorithm(leak, t.broadcast(), NEGATE))


def test_a_second_mean_is_refused():
  with pytest.raises(ValueError, match='Expected one mean_over_cohort'):
    chain.federated_chain(stateless(lambda u: u), MEAN, t.broadcast())


def test_averaging_the_lanes_of_one_shard_is_refused():
  lanes_only = stateless(lambda u: jax.tree.map(lambda x: x.mean(0), u))
  with pytest.raises(ValueError, match='replicat'):
    trace(algorithm(lanes_only, t.broadcast(), NEGATE))


def test_a_client_link_after_the_uplink_is_refused():
  op = sketches.block_cyclic(4)
  with pytest.raises(ValueError, match='before the uplink'):
    chain.federated_chain(aggregation.mean_over_cohort(), t.sketch(op))


def test_an_uplink_without_a_broadcast_is_refused():
  with pytest.raises(ValueError, match=r'Expected a broadcast\(\)'):
    chain.federated_chain(aggregation.mean_over_cohort(), NEGATE)


CLIP = optax.clip_by_global_norm(0.5)
LEADING = {
  'clip': [CLIP],
  'trace': [optax.trace(0.9)],
  'adam': [optax.scale_by_adam()],
  'chain': [optax.chain(CLIP, optax.scale(2.0))],
  'after a client link': [t.per_client(CLIP), CLIP],
  'shared link': [t.stateless(lambda u, *_, **__: u)],
}


@pytest.mark.parametrize('links', LEADING.values(), ids=LEADING)
def test_an_unmarked_link_before_the_uplink_is_refused(links):
  """It ran on a shard's stacked clients: results depended on the devices."""
  with pytest.raises(ValueError, match='wrap an optax transformation'):
    chain.federated_chain(*links, MEAN, t.broadcast())


@pytest.mark.parametrize('shards', [1, 2])
@pytest.mark.parametrize(
  'links',
  [
    [t.per_client(CLIP)._replace(init=CLIP.init), MEAN, t.broadcast()],
    [optax.chain(t.per_client(CLIP)), MEAN, t.broadcast()],
    [optax.chain(t.per_client(CLIP), MEAN), t.broadcast()],
    [optax.masked(t.per_client(CLIP), True), MEAN, t.broadcast()],
    [t.per_client(CLIP), MEAN._replace(init=MEAN.init), t.broadcast()],
    [t.per_client(CLIP), optax.chain(MEAN, t.broadcast(), NEGATE)],
    [t.per_client(CLIP), MEAN, optax.masked(t.broadcast(), True)],
  ],
  ids=lambda links: None,
)
def test_links_survive_the_combinators_of_optax(links, shards):
  """A lost mark changed the protocol, or failed without a word."""
  if len(links) == 2 and 'chain' in links[1].update.__qualname__:
    plain = algorithm(t.per_client(CLIP), MEAN, t.broadcast(), NEGATE)
  else:
    plain = algorithm(t.per_client(CLIP), MEAN, t.broadcast())
  make = algorithm(*links)
  assert make(cases.HP).decode is not None
  result, want = (cases.play(x, shards, count=2) for x in (make, plain))
  chex.assert_trees_all_equal(result[0].params, want[0].params)
  assert result[1]['down'] == want[1]['down'] > 0


def test_a_masked_mean_is_refused():
  with pytest.raises(ValueError, match='outside of optax combinators'):
    chain.federated_chain(optax.masked(MEAN, True), t.broadcast())


PRIVATE = Release(4.0).at(cases.HP)


def sends(count):
  """An exchange of two private means that takes the first `count` times."""

  def update(payloads, state, params=None, *, means, **extra):
    del params
    results = [means[0](payloads, **extra) for _ in range(count)]
    results.append(means[1](payloads, **extra))
    return results[-1][0], comms.total_bill([bill for _, bill in results])

  means = aggregation.cohort_means(2, privacy=PRIVATE)
  init = lambda params: comms.bill()
  return chain.Exchange(init, update, means=means, broadcasts=True)


def test_releases_of_links_add_up():
  """An algorithm that forgot to count one under-stated its epsilon."""
  mean = aggregation.mean_over_cohort(privacy=PRIVATE)
  one = algorithm(mean, t.broadcast())(cases.HP)
  two = algorithm(sends(1), NEGATE)(cases.HP)
  assert (one.releases, two.releases) == (1, 2)
  assert one.sensitivity == (cases.HP.clip_norm,)
  assert two.sensitivity == 2 * one.sensitivity
  assert algorithm(MEAN, t.broadcast())(cases.HP).releases == 0


@pytest.mark.parametrize('count', [0, 2])
def test_a_mean_of_an_exchange_is_taken_once(count):
  """Taken twice it would release two sums under the same noise."""
  make = algorithm(sends(count), NEGATE)
  state = rounds.init(make(cases.HP), cases.PARAMS, cases.POPULATION)
  step = rounds.run_round(make, mesh_lib.cohort_mesh(2))
  args = cases.HP, state, cases.cohort(), cases.KEY, None, cases.SECRET
  with pytest.raises(ValueError, match='Expected every mean to be taken once'):
    jax.eval_shape(step, *args)


def test_an_unknown_hash_key_is_refused():
  with pytest.raises(ValueError, match="hash_key='client'"):
    t.sketch(sketches.block_cyclic(4), hash_key='client')


@pytest.mark.covers('S0-Thm4.2')
def test_hashes_are_fresh_every_round_unless_of_the_run():
  op = sketches.block_cyclic(4)
  k = [keys.round_keys(cases.KEY, r) for r in range(2)]
  u = jax.tree.map(jnp.ones_like, cases.PARAMS)
  table = lambda key, name: t.sketch(op, hash_key=name).update(u, (), keys=key)[
    0
  ]
  assert (table(k[0], 'round') != table(k[1], 'round')).any()
  chex.assert_trees_all_equal(table(k[0], 'run'), table(k[1], 'run'))


@pytest.mark.covers('S0-Alg1')
def test_a_mismatched_sketch_index_fails_to_descend():
  """Song's printed line 9, which decodes with the next round's operator."""
  op = sketches.block_cyclic(4)

  def late(table, params, *, keys, **_):
    return op.desketch(jax.random.fold_in(keys.round, 1), table, params)

  links = t.sketch(op), aggregation.mean_over_cohort(), t.broadcast()
  wrong = algorithm(*links, t.stateless(late), NEGATE)
  right = algorithm(*links, t.desketch(op), NEGATE)
  same = lambda r: cases.cohort(1, 0)
  first = cases.play(right, count=1, cohort_of=same)[1]['train_loss']
  assert cases.play(right, count=60, cohort_of=same)[1]['train_loss'] < first
  assert cases.play(wrong, count=60, cohort_of=same)[1]['train_loss'] > first


def mean_then_spread():
  """Two uplinks of one payload, so the payloads themselves must be kept."""

  def update(updates, _, params=None, *, weight, **__):
    del params
    mean, first = comms.uplink_stacked(updates, weight)
    away = jax.tree.map(lambda u, m: u - m[None], updates, mean)
    rest, second = comms.uplink_stacked(away, weight)
    return jax.tree.map(jnp.add, mean, rest), comms.bill(first + second)

  return chain.Exchange(lambda params: comms.bill(), update)


def test_a_protocol_with_two_uplinks_keeps_the_payloads():
  twice = algorithm(mean_then_spread(), t.broadcast(), NEGATE)
  once = algorithm(aggregation.mean_over_cohort(), t.broadcast(), NEGATE)
  assert twice(cases.HP).decode is None
  assert once(cases.HP).decode is not None
  state, metrics = cases.play(twice)
  want, _ = cases.play(once)
  chex.assert_trees_all_close(state.params, want.params, atol=1e-6)
  assert metrics['up'] == 2 * 4 * cases.DIMENSION


def signs_with_feedback():
  """Packed signs of the mean magnitude, and each client's residual."""

  def update(updates, residual, params=None, **_):
    del params
    flat, _ = jax.flatten_util.ravel_pytree(updates)
    target = flat + residual
    scale = jnp.abs(target).mean()
    signs = target > 0
    sent = jnp.where(signs, scale, -scale)
    return (jnp.packbits(signs), scale), target - sent

  init = lambda params: jnp.zeros(cases.DIMENSION)
  return t.per_client(optax.GradientTransformationExtraArgs(init, update))


def unpack(keys, payload, like):
  del keys, like
  bits, scale = payload
  signs = 2 * jnp.unpackbits(bits, count=cases.DIMENSION).astype('f4') - 1
  _, unravel = jax.flatten_util.ravel_pytree(cases.PARAMS)
  return unravel(scale * signs)


feedback_make = algorithm(
  signs_with_feedback(),
  aggregation.mean_over_cohort(decode=unpack),
  t.broadcast(),
  NEGATE,
)


@pytest.mark.parametrize('shards', [1, 2])
def test_client_state_and_a_non_linear_payload(shards):
  make = feedback_make
  state, metrics = cases.play(make, shards)
  assert metrics['up'] == 2 + 4  # ten signs in two bytes, and a scale
  (rows,) = state.encode.value
  assert rows.shape == (cases.POPULATION, cases.DIMENSION)
  present = {
    int(i)
    for r in range(5)
    for i, w in zip(*cases.cohort(1, r)[:2], strict=True)
    if w > 0
  }
  assert set(np.nonzero(np.abs(rows).sum(1))[0]) == present
  chex.assert_trees_all_close(
    cases.play(make, 1), cases.play(make, 2), atol=1e-5
  )


def test_algorithms_by_name():
  assert set(algorithms.names()) >= {'fedavg', 'safl'}


@pytest.mark.parametrize(
  ('name', 'options', 'message'),
  [
    ('fedavgg', {}, "Expected algorithm='fedavgg' in"),
    ('fedavg', {'sketch': None}, 'Expected options of fedavg'),
    ('safl', {}, r"Expected options \['sketch'\] for safl"),
    ('fedavg', {'local': lambda hp: None}, 'either loss_fn or local'),
  ],
)
def test_wrong_options_are_refused(name, options, message):
  with pytest.raises(ValueError, match=message):
    algorithms.make(name, cases.loss_fn, **options)


def test_an_unknown_server_optimizer_is_refused():
  with pytest.raises(ValueError, match="server_optimizer='sophia'"):
    algorithms.make_server_optimizer('sophia')
