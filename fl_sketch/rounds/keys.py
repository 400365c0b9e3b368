"""Derives the keys of all random numbers of a round from counters.

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
HashKey = str | int  # 'round', 'run', or for how many rounds a hash is kept


class RoundKeys(NamedTuple):
  """The typed keys that a round hands to every transformation, by keyword."""

  run: jax.Array  # key[], the same in every round; of hashes that outlive one
  round: jax.Array  # key[], new in every round and the same on all clients
  # New in every round: key[], the root (server step) or one client's
  # (`for_client`, client links); or key[lanes] (`for_lanes`, protocol).
  client: jax.Array
  index: jax.Array | int  # int32[], of the round; no key


class NoiseKeys(NamedTuple):
  """The secret typed keys of a private round's noise.

  With them noise can be subtracted: no state, checkpoint or program has them.
  """

  server: jax.Array  # key[], of noise on the sum
  client: jax.Array  # of the clients' noise, by stage as `RoundKeys.client`
  run: jax.Array  # key[], the same in every round; the root of `server_key`


def round_keys(run_key: jax.Array, round_index: jax.Array) -> RoundKeys:
  """The keys of round `round_index` (int32[]) of the run with root `run_key`.

  >>> keys = round_keys(jax.random.key(0), 3)
  >>> bool(keys.run == round_keys(jax.random.key(0), 4).run)
  True
  >>> bool(keys.round == round_keys(jax.random.key(0), 4).round)
  False
  """
  root = lambda tag: jax.random.fold_in(run_key, tag)
  return RoundKeys(
    run=root(_RUN), index=round_index,
    round=jax.random.fold_in(root(_ROUND), round_index),
    client=jax.random.fold_in(root(_CLIENT), round_index),
  )  # fmt: skip


def hash_key(keys: RoundKeys, which: HashKey) -> jax.Array:
  """The key of the hash functions of a round.

  >>> keys = [round_keys(jax.random.key(0), r) for r in range(3)]
  >>> first, second, third = (hash_key(k, 2) for k in keys)
  >>> bool(first == second), bool(second == third)
  (True, False)

  'round' draws a new hash every round; 'run' keeps one; a number E keeps one
  for the rounds 0 to E - 1, another for the next E, and so on.
  """
  if isinstance(which, str):
    return {'run': keys.run, 'round': keys.round}[which]
  epochs = jax.random.fold_in(keys.run, _EPOCH)
  return jax.random.fold_in(epochs, keys.index // which)


def noise_keys(noise_key: jax.Array, round_index: jax.Array) -> NoiseKeys:
  """The secret keys of round `round_index` (int32[]) under the secret root."""
  root = lambda tag: jax.random.fold_in(noise_key, tag)
  return NoiseKeys(
    run=root(_ROUND), server=jax.random.fold_in(root(_ROUND), round_index),
    client=jax.random.fold_in(root(_CLIENT), round_index),
  )  # fmt: skip


def server_key(noise: NoiseKeys, round_index: jax.Array) -> jax.Array:
  """The key `server` of another round (int32[]) of the same run.

  >>> root = jax.random.key(0)
  >>> now, then = noise_keys(root, 5), noise_keys(root, 3)
  >>> bool(server_key(now, 3) == then.server)
  True
  """
  return jax.random.fold_in(noise.run, round_index)


def for_client(keys: Keys, client_id: jax.Array) -> Keys:
  """Derives a client's keys from those of a round; its id is int32[]."""
  return keys._replace(client=jax.random.fold_in(keys.client, client_id))


def for_lanes(keys: Keys, client_ids: jax.Array) -> Keys:
  """Derives the keys of lanes from those of a round; ids are int32[lanes]."""
  fold = jax.vmap(jax.random.fold_in, (None, 0))
  return keys._replace(client=fold(keys.client, client_ids))


def local_key(keys: RoundKeys | NoiseKeys) -> jax.Array:
  """Key of a client's local work; secret if `keys` are."""
  return jax.random.fold_in(keys.client, _LOCAL)


def step_key(key: jax.Array, step: jax.Array | int) -> jax.Array:
  """Key of what a loss draws, such as dropout, in a step of local work."""
  return jax.random.fold_in(jax.random.fold_in(key, _DRAW), step)


def noise_key(keys: RoundKeys) -> jax.Array:
  """Key of noise without privacy: it follows from the public seed of a run."""
  return jax.random.fold_in(keys.client, _NOISE)


def metrics_key(keys: NoiseKeys) -> jax.Array:
  """Secret key of noise on the metrics of a round."""
  return jax.random.fold_in(keys.server, _METRICS)


def attack_key(keys: RoundKeys) -> jax.Array:
  """Key of the noise that a byzantine client sends."""
  return jax.random.fold_in(keys.client, _ATTACK)


def group(key: jax.Array, groups: int) -> jax.Array:
  """The random group, int32[] in [0, groups), of the client with this key."""
  return jax.random.randint(jax.random.fold_in(key, _GROUP), (), 0, groups)


def codec_key(key: jax.Array) -> jax.Array:
  """Key of a codec's draws on the side, client or server, that has `key`."""
  return jax.random.fold_in(key, _CODEC)


def coin(keys: RoundKeys, probability: float) -> jax.Array:
  """Bernoulli draw, bool[], the same on all clients of a round."""
  key = jax.random.fold_in(keys.round, _COIN)
  return jax.random.bernoulli(key, probability)


def factors_key(key: jax.Array) -> jax.Array:
  """Key of the factors that a client draws, from that of its local work."""
  return jax.random.fold_in(key, _FACTORS)


def subset_key(keys: RoundKeys) -> jax.Array:
  """Key of a random subset of coordinates that all clients of a round share."""
  return jax.random.fold_in(keys.round, _SUBSET)
