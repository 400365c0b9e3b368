"""What changes from round to round: hyperparameters, states and keys."""

from cases import ALGORITHMS, HP, KEY, jit, one_absent, start
import chex
from fl_sketch import rounds
from fl_sketch.rounds import keys, mesh as mesh_lib
import jax
import jax.numpy as jnp
import pytest


def test_a_schedule_sets_what_a_round_is_given():
  make, mesh = ALGORITHMS['fedavg'].make, mesh_lib.cohort_mesh()

  def halved(hp, r):
    return hp._replace(client_lr=hp.client_lr * 0.5**r, server_lr=1.0 / (1 + r))

  scheduled = jit(rounds.run_round(make, mesh, schedule=halved))
  plain = jit(rounds.run_round(make, mesh))
  states = [start(make, mesh) for _ in range(2)]
  for r in range(3):
    cohort = one_absent(r)
    states = [
      scheduled(HP, states[0], cohort, KEY)[0],
      plain(halved(HP, jnp.int32(r)), states[1], cohort, KEY)[0],
    ]
  chex.assert_trees_all_close(states[0].params, states[1].params, rtol=1e-6)


@pytest.mark.parametrize('name', ['scaffold', 'feddyn'])
def test_the_state_of_a_link_is_found_by_its_type_and_by_name(name):
  """Catches what a model's parameters of the same names would mix up."""
  case = ALGORITHMS[name]
  params = {'client': jnp.zeros(9), 'offset': jnp.ones(9)}
  state = rounds.init(case.make(case.hp), params, 8)
  link = state.protocol[0]
  assert rounds.state_of(state, type(link)) is link
  assert rounds.state_of(state, type(link).__name__) is link


def test_every_stream_round_and_client_has_its_own_key():
  words = lambda key: tuple(jax.random.key_data(key).tolist())
  bits = [words(keys.round_keys(KEY, 0).run)]
  for r in range(20):
    k = keys.round_keys(KEY, r)
    assert words(k.run) == bits[0]
    bits += [words(k.round), words(k.client)]
    bits += [words(keys.for_client(k, i).client) for i in range(20)]
  assert len(set(bits)) == len(bits)
