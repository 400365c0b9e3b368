"""Derive the keys of all random numbers of a round from counters.

All keys are counters folded into a root, never split in a loop on the host, so
results do not depend on the device count, on how lanes (client slots of a
shard) are chunked, or on where a run was resumed. The hash keys `run` and
`round` are public: server and clients draw the same hash functions from them.
Noise for privacy has a secret root, an argument of the round: `NoiseKeys`.
"""

from typing import NamedTuple, TypeVar

import jax

Keys = TypeVar('Keys', 'RoundKeys', 'NoiseKeys')
_RUN, _ROUND, _CLIENT = range(3)
# Folded into the key of a round or of a client. Far from the small numbers that
# sketches fold in and that `jax.random.split` may be equal to.
_LOCAL, _CODEC, _NOISE, _COIN, _SUBSET, _ATTACK = range(0x10CA1, 0x10CA7)
_GROUP, _DRAW, _EPOCH, _METRICS, _FACTORS = range(0x10CA7, 0x10CAC)


class RoundKeys(NamedTuple):
  """The typed keys that every link of a chain gets as ``keys``."""

  run: jax.Array  # key[], the same in every round; of hashes that outlive one
  round: jax.Array  # key[], new in every round and the same on all clients
  # New in every round. In client links key[], that client's (`for_client`); in
  # protocols key[lanes] (`for_lanes`); in the server step key[], their root.
  client: jax.Array
  round_index: jax.Array | int  # int32[]; no key


class NoiseKeys(NamedTuple):
  """The secret typed keys of a private round's noise.

  Whoever has them can subtract the noise: no state or checkpoint holds them.
  """

  server: jax.Array  # key[], of noise on the sum
  client: jax.Array  # of the clients' noise, by stage as `RoundKeys.client`
  run: jax.Array  # key[], the same in every round; the root of `server_key`


def round_keys(run_key: jax.Array, round_index: jax.Array) -> RoundKeys:
  """Derive the keys of round `round_index` (int32[]) from the run's root."""
  root = lambda tag: jax.random.fold_in(run_key, tag)
  return RoundKeys(
    run=root(_RUN), round_index=round_index,
    round=jax.random.fold_in(root(_ROUND), round_index),
    client=jax.random.fold_in(root(_CLIENT), round_index),
  )  # fmt: skip


def hash_key(keys: RoundKeys, hash_rounds: int | None) -> jax.Array:
  """Return the key of the hash functions of a round.

  None: a new hash every round; 0: one for all rounds; a number E: one for
  rounds 0 to E - 1, another for the next E, and so on.
  """
  if hash_rounds is None:
    return keys.round
  if hash_rounds == 0:
    return keys.run
  epochs = jax.random.fold_in(keys.run, _EPOCH)
  return jax.random.fold_in(epochs, keys.round_index // hash_rounds)


def noise_keys(noise_key: jax.Array, round_index: jax.Array) -> NoiseKeys:
  """Derive the secret keys of round `round_index` (int32[])."""
  root = lambda tag: jax.random.fold_in(noise_key, tag)
  return NoiseKeys(
    run=root(_ROUND), server=jax.random.fold_in(root(_ROUND), round_index),
    client=jax.random.fold_in(root(_CLIENT), round_index),
  )  # fmt: skip


def server_key(noise: NoiseKeys, round_index: jax.Array) -> jax.Array:
  """Derive the key `server` of another round (int32[]) of the same run."""
  return jax.random.fold_in(noise.run, round_index)


def for_client(keys: Keys, client_id: jax.Array) -> Keys:
  """Derive a client's keys from those of a round; its id is int32[]."""
  return keys._replace(client=jax.random.fold_in(keys.client, client_id))


def for_lanes(keys: Keys, client_ids: jax.Array) -> Keys:
  """Derive the keys of lanes from those of a round; ids are int32[lanes]."""
  fold = jax.vmap(jax.random.fold_in, (None, 0))
  return keys._replace(client=fold(keys.client, client_ids))


def local_key(keys: RoundKeys | NoiseKeys) -> jax.Array:
  """Derive the key of a client's local work; secret if `keys` are."""
  return jax.random.fold_in(keys.client, _LOCAL)


def step_key(key: jax.Array, step: jax.Array | int) -> jax.Array:
  """Derive the key of a loss's draws, as for dropout, in a local step."""
  return jax.random.fold_in(jax.random.fold_in(key, _DRAW), step)


def noise_key(keys: RoundKeys) -> jax.Array:
  """Derive a public key of noise: it gives no privacy."""
  return jax.random.fold_in(keys.client, _NOISE)


def metrics_key(keys: NoiseKeys) -> jax.Array:
  """Derive the secret key of noise on the metrics of a round."""
  return jax.random.fold_in(keys.server, _METRICS)


def attack_key(keys: RoundKeys) -> jax.Array:
  """Derive the key of the noise that a byzantine client sends."""
  return jax.random.fold_in(keys.client, _ATTACK)


def group(key: jax.Array, groups: int) -> jax.Array:
  """Draw the group, int32[] in [0, groups), of the client with this key."""
  return jax.random.randint(jax.random.fold_in(key, _GROUP), (), 0, groups)


def codec_key(key: jax.Array) -> jax.Array:
  """Derive the key of a codec's draws from the key of client or server."""
  return jax.random.fold_in(key, _CODEC)


def coin(keys: RoundKeys, probability: float) -> jax.Array:
  """Draw bool[], the same on all clients of a round."""
  key = jax.random.fold_in(keys.round, _COIN)
  return jax.random.bernoulli(key, probability)


def factors_key(key: jax.Array) -> jax.Array:
  """Derive the key of a client's random factors from its local key."""
  return jax.random.fold_in(key, _FACTORS)


def subset_key(keys: RoundKeys) -> jax.Array:
  """Derive the key of the coordinates that all clients of a round share."""
  return jax.random.fold_in(keys.round, _SUBSET)
