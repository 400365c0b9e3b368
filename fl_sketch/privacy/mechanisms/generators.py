"""The generators of a private run's secret randomness, by name.

'threefry' draws noise by threefry2x32, whose key has 64 bits, and samples by
Philox4x64 with a seed of 64 bits. 'chacha20' draws both by ChaCha20 with keys
of 256 bits, of noise and of samples apart.
"""

import hmac
from typing import NamedTuple

from fl_sketch.privacy.mechanisms import chacha20
from fl_sketch.utils import checks, seeding
import jax
import jax.numpy as jnp
import numpy as np

NAMES = ('threefry', 'chacha20')
DEFAULT = 'threefry'
ROOT_BYTES = 32


class Roots(NamedTuple):
  """What all secret randomness of a run is drawn from.

  Attributes:
    noise: key[], of noise.
    sampling: of cohorts and of batches: an integer below 2^64, or 32 bytes.
  """

  noise: jax.Array
  sampling: seeding.Root


def roots(secret: bytes, name: str | None = None) -> Roots:
  """Derives the roots of a generator from 32 secret bytes.

  Those of ChaCha20 are HKDF-Expand with SHA-256, of labels of their own.

  >>> jax.random.key_data(roots(bytes(32), 'chacha20').noise).shape
  (8,)

  Args:
    secret: uniform; equal ones make equal roots.
    name: of `NAMES`; None is the default.

  Source: RFC 5869, section 2.3.
  """
  if len(secret) != ROOT_BYTES:
    raise ValueError(f'Expected {len(secret)=} == {ROOT_BYTES}.')
  if _checked(name) == 'chacha20':
    expand = lambda label: hmac.digest(secret, label + b'\x01', 'sha256')
    noise = chacha20.of_bytes(expand(b'fl_sketch noise'))
    return Roots(noise, expand(b'fl_sketch sampling'))
  words = jnp.asarray(np.frombuffer(secret[:8], np.uint32))
  noise = jax.random.wrap_key_data(words, impl='threefry2x32')
  return Roots(noise, int.from_bytes(secret[8:16], 'big'))


def public_key(name: str | None = None) -> jax.Array:
  """A typed key of a generator that is no secret, to trace programs with."""
  impl = chacha20.IMPL if _checked(name) == 'chacha20' else 'threefry2x32'
  return jax.random.key(0, impl=impl)


def is_known(key: jax.Array) -> bool:
  """Whether a key is of one of these generators.

  They draw the same bits for a key alone and for one of a vmapped batch; some
  of JAX's others do not.
  """
  impl = jax.random.key_impl(key)
  return impl == chacha20.IMPL or str(impl) == 'threefry2x32'


def sentence(name: str | None = None) -> str:
  """Says in words how strong a generator is, for a statement."""
  if _checked(name) == 'chacha20':
    return 'Noise and samples are drawn by ChaCha20 with keys of 256 bits.'
  return (
    'Noise is drawn by threefry2x32 with a key of 64 bits, samples by '
    "Philox4x64 with a seed of 64 bits; noise_generator='chacha20' has 256."
  )


def _checked(name: str | None) -> str:
  name = name or DEFAULT
  checks.choice('noise_generator', name, NAMES)
  return name
