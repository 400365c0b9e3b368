"""Simulate secure aggregation: the sum that the server sees, and its bytes.

Clients agree on pairwise masks that cancel in the sum of all; survivors open
the masks of those who drop out. So the server sees the sum modulo 2^32 of the
survivors' integers, and that sum is computed here without masks.

Source: Bonawitz et al. (CCS 2017, ePrint 2017/281), Figure 4, complete graph;
Bell et al. (CCS 2020, ePrint 2020/704), Algorithm 2, few neighbours.
"""

import math

from fl_sketch.rounds import comms
from fl_sketch.utils.types import Tree
import jax

_KEY = 32  # bytes of an X25519 public key
_SHARE = 32  # bytes of a Shamir share of a secret of 256 bits
_SEAL = 28  # nonce and tag that AES-GCM adds to what it encrypts


def secure_sum(
  integers: Tree, present: jax.Array, comm: comms.Comm,
  neighbours: int | None = None,
) -> tuple[Tree, comms.Bill]:  # fmt: skip
  """Sum the survivors' integers modulo 2^32, and bill each of them.

  The integers have leaves uint32[lanes, ...], those of dropouts where
  bool[lanes] is false; each client shares masks with an even number of
  neighbours, None: with all others. Runs inside `shard_map`.

  Raises ValueError over messages, where the server would see each client's
  integers, or if no graph of clients has so many neighbours.
  """
  if not comm.simulated:
    raise ValueError(
      "trust='secure_aggregation' is simulated, not run over messages; use "
      "'central' or 'local'."
    )
  clients = comm.slots(len(present))[1]
  if neighbours is None:
    neighbours = clients - 1
  elif neighbours % 2 or not 2 <= neighbours < clients:
    raise ValueError(
      f'{neighbours=} must be even and in 2 ... {clients - 1}, or None.'
    )
  total = comm.sum_lanes(comms.where_present(integers, present))
  return total, comms.bill(*traffic(comms.nbytes(total), neighbours))


def traffic(table_bytes: int, neighbours: int) -> tuple[int, int]:
  """Return the bytes (up, down) of a surviving client, without its broadcast.

  Up: the masked table, 2 public keys and, for each neighbour, two encrypted
  shares and one that is revealed. Down: for each neighbour 2 public keys, two
  encrypted shares and a bit: whether it dropped out.
  """
  shares = 2 * _SHARE + _SEAL
  up = table_bytes + 2 * _KEY + neighbours * (shares + _SHARE)
  down = neighbours * (2 * _KEY + shares) + math.ceil(neighbours / 8)
  return up, down
