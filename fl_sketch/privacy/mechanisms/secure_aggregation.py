r"""Simulates secure aggregation: masked integers and their sum.

Client i of a round adds to its integers :math:`x_i` a mask of its own
and one for each neighbour j in a graph that the server draws:

.. math:: y_i = x_i + \mathrm{PRG}(s_{ii})
  + \sum_{j > i} \mathrm{PRG}(s_{ij})
  - \sum_{j < i} \mathrm{PRG}(s_{ij}) \pmod{2^{32}}

In :math:`\sum_i y_i` the pairs cancel. Survivors reveal the seeds that they
share with neighbours who dropped out, and shares of each other's own seeds,
and the server subtracts exactly these masks. What is simulated is the
arithmetic, the messages and their bytes: one secret key, which stands for all
Diffie-Hellman agreements, Shamir shares and private coins, draws every seed.
The server is honest but curious.

Source: Bonawitz et al. (CCS 2017, ePrint 2017/281), Figure 4, complete graph;
Bell et al. (CCS 2020, ePrint 2020/704), Algorithm 2, few neighbours.
"""

import math
from typing import Any

from fl_sketch.privacy.mechanisms import generators
from fl_sketch.rounds import client_loop, comms
import jax
import jax.numpy as jnp
import numpy as np

Tree = Any
_KEY = 32  # bytes of an X25519 public key
_SHARE = 32  # bytes of a Shamir share of a secret of 256 bits
_SEAL = 28  # nonce and tag that AES-GCM adds to what it encrypts


def neighbour_slots(
  key: jax.Array, slots: jax.Array, clients: int, neighbours: int | None = None
) -> jax.Array:
  """Draws the graph of clients that share masks: a randomised Harary graph.

  Clients stand on a circle; each is next to the k / 2 on either side. Any k - 1
  dropouts leave the others connected. Returns int32[lanes, k], the neighbours
  of each slot of the cohort; None is all others. A k that is odd, or is not in
  2 <= k < clients, raises ValueError.

  >>> neighbour_slots(jax.random.key(0), jnp.arange(9), 9, 4).shape
  (9, 4)

  Source: Bell et al. (CCS 2020, ePrint 2020/704), Algorithm 1.
  """
  if neighbours is None:
    offsets = np.arange(1, clients)
  elif neighbours % 2 or not 2 <= neighbours < clients:
    raise ValueError(
      f'{neighbours=} of {clients=} make no graph; use an even number in 2 ... '
      'clients - 1, or None.'
    )
  else:
    half = np.arange(1, neighbours // 2 + 1)
    offsets = np.concatenate([half, -half])
  # Seeds are folded from slots, all of which are less than `clients`.
  circle = jax.random.permutation(jax.random.fold_in(key, clients), clients)
  place = jnp.argsort(circle)[slots]
  return circle[(place[:, None] + offsets[None]) % clients]


def traffic(table_bytes: int, neighbours: int) -> tuple[int, int]:
  """Returns the bytes (up, down) of a surviving client, without its broadcast.

  Up: the masked table; 2 public keys of 32; for each of k neighbours two
  encrypted shares, of the client's secret key and of its own seed, 2 x 32 + 28;
  and for each one share that it reveals, 32. Down: for each neighbour its 2
  public keys, its two encrypted shares, and a bit, whether it dropped out.
  Signatures and ids are not counted.

  >>> traffic(table_bytes=4000, neighbours=8)
  (5056, 1249)
  """
  shares = 2 * _SHARE + _SEAL
  up = table_bytes + 2 * _KEY + neighbours * (shares + _SHARE)
  down = neighbours * (2 * _KEY + shares) + math.ceil(neighbours / 8)
  return up, down


def masked(
  key: jax.Array,
  integers: Tree,
  neighbours: int | None = None,
  clients_per_step: int | None = 0,
) -> Tree:
  """Masks each client's integers: the message, which may arrive too late.

  Leaves uint32[lanes, ...], local. Memory is that of the integers, however many
  neighbours there are. Arguments and errors as of `secure_sum`.

  Guarantees:
    A message by itself is uniform, whatever the integers are.
    It stays so when all seeds that its client shares are revealed, which is
    what happens to a client that was taken for a dropout.
  """
  slots, peers, _ = _peers(integers, key, neighbours)
  every = jnp.ones_like(peers, bool)
  return _add_masks(clients_per_step, key, slots, peers, integers, every, 1)


def secure_sum(
  key: jax.Array,
  integers: Tree,
  weight: jax.Array,
  neighbours: int | None = None,
  clients_per_step: int | None = 0,
) -> tuple[Tree, int, int]:
  """Sums the survivors' integers modulo 2^32, and bills each of them.

  Runs inside `shard_map`. Slots of weight 0 drop out after masks are agreed on.
  Returns the sum, uint32[...], shared, and bytes up and down, as in `traffic`.

  Guarantees:
    The sum has the same bits as without masks, for any shards and lanes.
    Beside the sum the server learns nothing while the survivors are connected,
    as after fewer than `neighbours` dropouts; else the sum over each part.

  It does not abort: Bonawitz et al. do when fewer than a threshold survive, and
  must, since the sum over one survivor is its own. So count the survivors.

  >>> from fl_sketch.rounds import mesh as mesh_lib
  >>> mesh, lanes = mesh_lib.cohort_mesh(1), jax.P(comms.SHARD)
  >>> fn = lambda x, w: secure_sum(jax.random.key(0), x, w)[0]
  >>> fn = jax.shard_map(fn, mesh=mesh, in_specs=lanes, out_specs=jax.P())
  >>> jax.jit(fn)(jnp.array([1, 2, 4], jnp.uint32), jnp.array([1.0, 1.0, 0.0]))
  Array(3, dtype=uint32)

  Args:
    key: key[], secret and new in every round. Two messages under one key
      differ by their integers.
    integers: leaves uint32[lanes, ...], local; two's complement, as of
      `grid.encode`.
    weight: f32[lanes]; above 0 is present.
    neighbours: even k, each client's number of masks; None is all others.
    clients_per_step: that a shard masks at once, as of `rounds.cohort_step`.

  Raises:
    ValueError: neighbours is out of range, or the key of no kind in
      `generators`: others may draw other bits under vmap, and masks would stay.

  Source: Bonawitz et al., ePrint 2017/281; Bell et al., ePrint 2020/704.
  """
  sent = masked(key, integers, neighbours, clients_per_step)
  slots, peers, clients = _peers(integers, key, neighbours)
  taken = (weight > 0).astype(jnp.float32)
  present, _ = comms.gather_tables(taken, taken, slots, clients)
  revealed = (peers == slots[:, None]) | (present[peers] == 0)
  revealed &= (weight > 0)[:, None]  # no work on what does not arrive
  opened = _add_masks(clients_per_step, key, slots, peers, sent, revealed, -1)
  arrived = lambda x: jax.vmap(jnp.multiply)(x, taken.astype(jnp.uint32))
  total = comms.sum_exactly(jax.tree.map(arrived, opened))
  return total, *traffic(comms.nbytes(total), peers.shape[1] - 1)


def _peers(tables, key, neighbours):
  """Returns this shard's slots, each one's neighbours (itself first), and C."""
  if not generators.is_known(key):
    kind = str(jax.random.key_impl(key))
    raise ValueError(
      f"The masks of a key of {kind=} may not cancel; use 'threefry2x32' or "
      "'chacha20'."
    )
  slots, clients = comms.slots(jax.tree.leaves(tables)[0].shape[0])
  others = neighbour_slots(key, slots, clients, neighbours)
  return slots, jnp.concatenate([slots[:, None], others], 1), clients


def _add_masks(clients_per_step, key, slots, peers, tables, chosen, sign):
  """Adds `sign` x the `chosen` masks of every slot, one at a time."""
  signs = sign * jnp.where(peers < slots[:, None], -1, 1)
  signs = jnp.where(chosen, signs, 0).astype(jnp.uint32)  # modulo 2^32
  fold = jax.random.fold_in

  def one_client(lane):
    table, slot, peers, signs = lane
    leaves, treedef = jax.tree.flatten(table)

    def add(leaves, peer, sign):
      seed = fold(fold(key, jnp.minimum(slot, peer)), jnp.maximum(slot, peer))
      draw = lambda i, x: jax.random.bits(fold(seed, i), x.shape, jnp.uint32)
      return [x + sign * draw(i, x) for i, x in enumerate(leaves)]

    def step(leaves, pair):
      keep = lambda leaves, *_: leaves
      return jax.lax.cond(pair[1] != 0, add, keep, leaves, *pair), None

    leaves, _ = jax.lax.scan(step, leaves, (peers, signs))
    return jax.tree.unflatten(treedef, leaves)

  lanes = tables, slots, peers, signs
  return client_loop.map_clients(one_client, lanes, clients_per_step)
