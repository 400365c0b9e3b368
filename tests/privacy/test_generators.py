"""Generators of secrets: their roots, and rounds whose noise they draw."""

import cases
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf import hkdf
from fl_sketch.privacy.mechanisms import generators
from fl_sketch.rounds import keys as keys_lib
import jax
import jax.numpy as jnp
import numpy as np
import pytest

SECRETS = [bytes([i]) * 32 for i in range(5)]


def words(key):
  return np.asarray(jax.random.key_data(key)).tolist()


def test_roots_are_expanded_under_labels():
  """Catches noise and sampling that share a key, or another derivation."""
  for secret in SECRETS:
    noise, sampling = generators.roots(secret)
    found = np.array(words(noise), '<u4').tobytes(), sampling
    for root, label in zip(found, (b'noise', b'sampling'), strict=True):
      info = b'fl_sketch ' + label
      expand = hkdf.HKDFExpand(hashes.SHA256(), length=32, info=info)
      assert root == expand.derive(secret)


def test_reproducible_roots_are_what_they_were():
  """Catches results with a noise_seed that an upgrade would change."""
  digest = bytes(range(32))
  noise, sampling = generators.reproducible_roots(digest)
  assert words(noise) == np.frombuffer(digest[:8], np.uint32).tolist()
  assert sampling == int.from_bytes(digest[8:16], 'big')


def test_other_lengths_are_refused():
  """Catches a secret of fewer bits."""
  for length in 0, 31, 33:
    with pytest.raises(ValueError, match='secret'):
      generators.roots(bytes(length))


def test_keys_of_rounds_and_clients_differ():
  """Catches a fold that forgets what was folded in before."""

  @cases.jit
  def keys_of(root, r):
    k = keys_lib.noise_keys(root, r)
    clients = [keys_lib.for_client(k, i) for i in jnp.arange(2)]
    own = [keys_lib.local_key(one) for one in clients]
    own += [one.client for one in clients]
    return k.server, k.client, keys_lib.metrics_key(k), *own

  roots = [generators.roots(secret).noise_key for secret in SECRETS[:2]]
  keys = [key for root in roots for r in range(3) for key in keys_of(root, r)]
  assert len({tuple(words(key)) for key in keys}) == len(keys) == 42
