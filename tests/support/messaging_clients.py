"""Messages of the clients of a run, and of those who forge them."""

import cases
from fl_sketch.messaging import wire

CASE = cases.ALGORITHMS['safl_adam']
RUN = wire.fingerprint({'seed': 1})
ALIEN = wire.fingerprint({'seed': 2})


def forged(payload, r, client_id, run=RUN):
  return wire.encode(payload, run=run, round_index=r, client_id=client_id)


def flipped(message):
  return message[:-3] + bytes([message[-3] ^ 4]) + message[-2:]
