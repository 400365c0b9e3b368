import chex
from fl_sketch.rounds import keys
import jax
import numpy as np

ROOT = jax.random.key(0)


def words(key):
  return tuple(np.asarray(jax.random.key_data(key)).tolist())


def test_every_stream_round_and_client_has_its_own_key():
  bits = [words(keys.round_keys(ROOT, 0).run)]
  for r in range(20):
    k = keys.round_keys(ROOT, r)
    assert words(k.run) == bits[0]
    bits += [words(k.round), words(k.client)]
    bits += [words(keys.for_client(k, i).client) for i in range(20)]
  assert len(set(bits)) == len(bits)


def test_a_client_sees_the_shared_hash_keys():
  k = keys.round_keys(ROOT, 3)
  keys_7 = keys.for_client(k, 7)
  chex.assert_trees_all_equal((keys_7.run, keys_7.round), (k.run, k.round))


def test_keys_are_those_of_the_round_however_it_is_reached():
  """Counters, not a chain of splits: any round can be drawn at once."""
  many = jax.vmap(lambda r: keys.round_keys(ROOT, r))(np.arange(5))
  one = keys.round_keys(ROOT, 4)
  assert words(many.round[4]) == words(one.round)
  assert words(many.client[4]) == words(one.client)
