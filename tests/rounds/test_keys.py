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
