"""Wrong protocols are refused at trace time; right ones of every shape run."""

import cases
import chex
from fl_sketch import local, rounds, sketches
from fl_sketch.privacy.mechanisms.private_mean import CentralRelease
from fl_sketch.rounds import (
  aggregation,
  chain,
  client_loop,
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
from refusals import refused

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
  return chain.exchange(
    optax.init_empty_state, lambda u, s, p=None, **_: (fn(u), s)
  )


CLIP = optax.clip_by_global_norm(0.5)
KEEP = stateless(lambda u: u)
LEAK = chain.exchange(
  lambda params: optax.tree.zeros_like(params),
  lambda u, state, p=None, **_: (u, jax.tree.map(lambda x: x[0], u)),
)
# An uplink that is none, the mean of one shard's lanes, and one client's value
# that is kept as server state.
WRONG = KEEP, stateless(lambda u: jax.tree.map(lambda x: x.mean(0), u)), LEAK


def looping(params, batches, key, correction):
  """Local work that loops from zeros, which the check is not shown."""
  del key, correction
  zeros = optax.tree.zeros_like(params)
  add = lambda total, x: (jax.tree.map(lambda t: t + x.sum(), total), None)
  return jax.lax.scan(add, zeros, batches[0])[0], {}


test_an_uplink_whose_result_is_not_shared_is_refused = refused(
  lambda links: trace(algorithm(links[0], t.broadcast(), local_fn=links[1])),
  *(((link, looping), 'replicat') for link in WRONG),
)
test_a_chain_in_the_wrong_order_is_refused = refused(
  lambda links: federated(None, *links),
  ((t.broadcast(), NEGATE), 'before a mean'),
  ((MEAN, t.sketch(sketches.block_cyclic(4))), 'uplink'),
  ((MEAN, NEGATE), 'broadcast'),
  ((MEAN, optax.chain(t.broadcast(), NEGATE)), 'broadcast'),
)


# Before the uplink they ran on a shard's stacked clients: results depended on
# the devices.
test_an_unmarked_link_before_the_uplink_is_refused = refused(
  lambda links: federated(None, *links, MEAN, t.broadcast()),
  *((links, 'per_client') for links in (
    [t.per_client(CLIP), CLIP], [t.stateless(lambda u, *_, **__: u)])),
)  # fmt: skip


def test_a_link_inside_a_combinator_is_refused():
  """Catches hashes of optax's own counter, which no client has."""
  op = t.desketch(sketches.block_cyclic(4))
  make = algorithm(MEAN, t.broadcast(), optax.chain(op, NEGATE))
  with pytest.raises(ValueError, match='optax'):
    make(cases.HP).server.init(cases.PARAMS)


PRIVATE = CentralRelease(4.0).with_hyper(cases.HP)


def sends(count):
  """An exchange of two private means that takes the first `count` times."""

  def update(payloads, state, params=None, *, means, **extra):
    del params
    results = [means[0](payloads, **extra) for _ in range(count)]
    results.append(means[1](payloads, **extra))
    return results[-1][0], comms.total_bill([bill for _, bill in results])

  means = aggregation.cohort_means(2, privacy=PRIVATE)
  init = lambda params: comms.bill()
  return chain.exchange(init, update, means=means, broadcasts=True)


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
  with pytest.raises(ValueError, match='means'):
    jax.eval_shape(step, *args)


def test_hashes_are_fresh_every_round_unless_of_the_run():
  op = sketches.block_cyclic(4)
  k = [keys.round_keys(cases.KEY, r) for r in range(2)]
  u = jax.tree.map(jnp.ones_like, cases.PARAMS)
  link = lambda rounds: t.sketch(op, hash_rounds=rounds)
  table = lambda key, rounds: link(rounds).update_fn(u, (), keys=key)[0]
  assert (table(k[0], None) != table(k[1], None)).any()
  chex.assert_trees_all_equal(table(k[0], 0), table(k[1], 0))


LANES = jax.P(comms.SHARD)
X = np.random.default_rng(0).standard_normal((6, 4, 3), dtype=np.float32)


def recurrent(w, x):
  """A loss whose state starts from zeros."""
  step = lambda h, row: (jnp.tanh(h + row * w), None)
  return jnp.sum(jax.lax.scan(step, jnp.zeros(3), x)[0] ** 2)


def gradients(w, x):
  one = lambda lane: jax.grad(recurrent)(w, lane)
  return client_loop.map_clients(one, x, 1)


@pytest.mark.parametrize('transform', [jax.grad, jax.jacfwd])
def test_a_derivative_is_refused(transform):
  """With respect to a shared value it would lack the other shards."""
  mesh, specs = mesh_lib.cohort_mesh(2), (jax.P(), LANES)
  fn = jax.shard_map(gradients, mesh=mesh, in_specs=specs, out_specs=LANES)
  total = lambda w: fn(w, X).sum()
  with pytest.raises(NotImplementedError):
    transform(total)(jnp.ones(3))
