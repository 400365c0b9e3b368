"""The clients of three rounds, some of whom fail; the server is on loopback.

python tests/support/messaging_clients.py PORT

A connection carries one message and its answer. An empty message ends a round;
the answer is the parameters of the next.
"""

import socket
import subprocess
import sys

import cases
from fl_sketch.messaging import client as client_lib, wire
import jax
import jax.numpy as jnp
import numpy as np

CASE = cases.ALGORITHMS['safl_adam']
RUN = wire.fingerprint({'seed': 1})
ALIEN = wire.fingerprint({'seed': 2})
# Sends half of its input, then kills itself.
DIES = """
import os, signal, socket, sys
message = sys.stdin.buffer.read()
peer = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
peer.sendall(message[:len(message) // 2])
os.kill(os.getpid(), signal.SIGKILL)
"""


def exchange(port, message):
  with socket.create_connection(('127.0.0.1', port), 60) as peer:
    peer.sendall(message)
    peer.shutdown(socket.SHUT_WR)
    return peer.makefile('rb').read()


def die_sending(port, message):
  command = [sys.executable, '-S', '-c', DIES, str(port)]
  dead = subprocess.run(command, input=message, check=False)
  assert dead.returncode == -9, dead


def forged(payload, r, client_id, run=RUN):
  return wire.encode(payload, run=run, round_index=r, client_id=client_id)


def flipped(message):
  return message[:-3] + bytes([message[-3] ^ 4]) + message[-2:]


if __name__ == '__main__':
  port = int(sys.argv[1])
  send = lambda message: exchange(port, message)
  work = client_lib.build(CASE.make, run=RUN)
  like = jax.eval_shape(lambda: cases.PARAMS)

  def messages(r):
    """Those of an honest cohort, by client."""
    params = wire.decode(send(b''), like)
    cohort = cases.full_participation(r)
    payloads = {}
    for n, i in enumerate(cohort.ids):
      batches = jax.tree.map(lambda x, n=n: x[n], cohort.batches)
      payloads[int(i)] = work(cases.HP, params, r, int(i), batches, cases.KEY)
    return payloads

  table = np.ones(4, np.float32)
  first = messages(0)
  die_sending(port, first.pop(0))
  late = first.pop(1)
  for message in first.values():
    send(message)
  send(first[2])

  second = messages(1)
  second[3] = forged(np.full(4, np.nan, np.float32), 1, 3)
  second[4] = forged(table * 1e12, 1, 4)
  second[5] = forged(table.reshape(2, 2), 1, 5)
  send(late)
  send(late)
  for message in second.values():
    send(message)

  third = messages(2)
  third[6] = flipped(third[6])
  third[7] = forged(jnp.int32(table), 2, 7)
  send(forged(table, 2, 99))
  send(forged(table, 2, 0, ALIEN))
  send(forged(table, 3, 0))
  for message in third.values():
    send(message)
  send(b'')
