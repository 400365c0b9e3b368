"""The roots of a private run's randomness: of a secret, or of public seeds.

A secret gives ChaCha20 keys of 256 bits, one for noise and one for samples. A
run with a noise_seed has no secret and draws by threefry2x32 and Philox4x64.
"""

import hmac
from typing import NamedTuple

from fl_sketch.privacy.mechanisms import chacha20_prng
from fl_sketch.utils import seeding
from fl_sketch.utils.types import Key
import jax
import jax.numpy as jnp
import numpy as np

ROOT_BYTES = 32
SENTENCE = 'Noise and samples are drawn by ChaCha20 with keys of 256 bits.'


class Roots(NamedTuple):
  """The keys that all randomness of a private run is drawn from."""

  noise_key: Key  # root of `keys.NoiseKeys`
  sampling_seed: seeding.Root  # of cohorts and batches: 32 bytes, or int < 2^64


def roots(secret: bytes) -> Roots:
  """Derive ChaCha20 keys by HKDF-Expand with SHA-256, under two labels.

  The secret has 32 uniform bytes, or ValueError is raised.

  Source: RFC 5869, section 2.3.
  """
  if len(secret) != ROOT_BYTES:
    raise ValueError(f'{len(secret)=} must be {ROOT_BYTES}.')
  expand = lambda label: hmac.digest(secret, label + b'\x01', 'sha256')
  noise = chacha20_prng.of_bytes(expand(b'fl_sketch noise'))
  return Roots(noise, expand(b'fl_sketch sampling'))


def reproducible_roots(digest: bytes) -> Roots:
  """Return the roots of a run without a secret, from 32 bytes of a hash."""
  words = jnp.asarray(np.frombuffer(digest[:8], np.uint32))
  noise = jax.random.wrap_key_data(words, impl='threefry2x32')
  return Roots(noise, int.from_bytes(digest[8:16], 'big'))


def known_roots(noise_seed: int | None) -> Roots:
  """Return public roots of a run's types, to trace and to time programs."""
  make = roots if noise_seed is None else reproducible_roots
  return make(bytes(ROOT_BYTES))
