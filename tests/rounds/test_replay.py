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

# Broadcasts that are codes, or of which clients make directions again.
CODED = [
  name
  for name, case in cases.ALGORITHMS.items()
  if 'downlink_codec' in case.options
  or case.name in ('decomfl', 'fedkseed', 'ferret')
]
NAMES = dict.fromkeys([*cases.ONE_EACH, 'safl_amsgrad', 'safl_yogi', *CODED])


@pytest.mark.covers('S0-w0', 'S4-Alg1')
@cases.law(NAMES, fast=['fedkseed'])
def test_a_client_that_was_away_replays_what_it_missed(case):
  """Bit for bit through the server's program; within 1e-6 of whole rounds."""
  mesh = mesh_lib.cohort_mesh(2)
  cohort_fn = cases.jit(rounds.cohort_step(case.make, mesh))
  server_fn = cases.jit(rounds.server_step(case.make))
  server, heard, states = cases.start(case.make, mesh), [], []
  rest = KEY, *cases.secret(case.make)
  for r in range(51):
    states.append(server)
    cohort = cases.cohorts_of(case.make)(r)
    sent, server, metrics = cohort_fn(HP, server, cohort, *rest)
    server = server_fn(HP, sent, server, KEY)
    if isinstance(sent, dict) and 'factors' in sent:
      if metrics['downlink_bytes'] < comms.nbytes(sent):  # they are not due
        lost = lambda x: jnp.full_like(x, np.nan)
        sent = sent | {'factors': jax.tree.map(lost, sent['factors'])}
        assert metrics['downlink_bytes'] == comms.nbytes(sent['table'])
    heard.append(sent)
  replicated = lambda state: jax.device_get((state.params, state.server))
  for missed in (1, 5, 50):
    client = states[-missed]
    for sent in heard[-missed:]:
      client = server_fn(HP, sent, client, KEY)
    chex.assert_trees_all_equal(replicated(client), replicated(server))
  fused, _ = cases.play(case.make)
  chex.assert_trees_all_close(states[5].params, fused.params, atol=1e-6)
  if case.name in ('safl', 'cd_adam', 'onebit_adam'):
    assert optax.tree.norm(server.server) > 1e-3  # there are moments
