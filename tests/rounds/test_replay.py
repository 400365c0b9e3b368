"""Clients redo the server's step from broadcasts, and find its state."""

import cases
from cases import HP, KEY
import chex
from fl_sketch import rounds
from fl_sketch.rounds import comms, mesh as mesh_lib
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

REPLICATED = *cases.ONE_EACH, 'safl_amsgrad', 'safl_yogi'


@pytest.mark.covers('S0-w0', 'S4-Alg1')
@cases.law(REPLICATED, fast=['cd_adam'])
def test_a_client_that_hears_the_broadcasts_has_the_servers_state(case):
  """Bit for bit through the same compiled server step; 1e-6 through its own."""
  mesh = mesh_lib.cohort_mesh(2)
  cohort_fn = cases.jit(rounds.cohort_step(case.make, mesh))
  server_fn = cases.jit(rounds.server_step(case.make))
  own_fn = cases.jit(rounds.server_step(case.make))
  server = cases.start(case.make, mesh)
  client, alone = server, jax.device_get(server)
  rest = KEY, *cases.secret(case.make)
  for r in range(5):
    cohort = cases.cohorts_of(case.make)(r)
    table, server, _ = cohort_fn(HP, server, cohort, *rest)
    server = server_fn(HP, table, server, KEY)
    client = server_fn(HP, table, client, KEY)
    alone = own_fn(HP, jax.device_get(table), alone, KEY)
  replicated = lambda state: jax.device_get((state.params, state.server))
  chex.assert_trees_all_equal(replicated(client), replicated(server))
  chex.assert_trees_all_close(replicated(alone), replicated(server), atol=1e-6)
  fused, _ = cases.play(case.make)
  chex.assert_trees_all_close(alone.params, fused.params, atol=1e-6)
  if case.name in ('safl', 'cd_adam', 'onebit_adam'):
    assert optax.tree.norm(server.server) > 1e-3  # there are moments


# Broadcasts that are codes, or of which clients make directions again.
CODED = [
  k
  for k, case in cases.ALGORITHMS.items()
  if 'downlink_codec' in case.options
  or case.name in ('decomfl', 'fedkseed', 'ferret')
]


@cases.law(CODED, fast=['fedkseed'])
def test_a_client_that_was_away_replays_what_it_missed(case):
  """Bit for bit, after 1, 5 and 50 rounds; catches a mean that is not coded."""
  mesh = mesh_lib.cohort_mesh(2)
  cohort_fn = cases.jit(rounds.cohort_step(case.make, mesh))
  server_fn = cases.jit(rounds.server_step(case.make))
  server, heard, states = cases.start(case.make, mesh), [], []
  for r in range(51):
    states.append(server)
    sent, server, metrics = cohort_fn(HP, server, cases.one_absent(r), KEY)
    server_sent = sent
    if metrics['downlink_bytes'] < comms.nbytes(sent):  # factors are not due
      lost = jax.tree.map(lambda x: jnp.full_like(x, np.nan), sent['factors'])
      sent = sent | {'factors': lost}
      assert metrics['downlink_bytes'] == comms.nbytes(sent['table'])
    heard.append(sent)
    server = server_fn(HP, server_sent, server, KEY)
  for missed in (1, 5, 50):
    client = states[-missed]
    for sent in heard[-missed:]:
      client = server_fn(HP, sent, client, KEY)
    replicated = lambda state: jax.device_get((state.params, state.server))
    chex.assert_trees_all_equal(replicated(client), replicated(server))
