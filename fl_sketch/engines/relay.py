"""Hands a message over to the resident worker of a site.

Imports the standard library alone: an engine starts a process for it.
"""

import os
import socket
import struct

VARIABLE = 'FL_SKETCH_SITE'  # path of the socket of the site's worker
LARGEST = 2**32  # bytes of a message
_SIZE = struct.Struct('<Q')


def ask(
  request: bytes, socket_path: str | None = None, timeout: float = 3600.0
) -> bytes:
  """Sends a request to the worker of this site; returns its reply.

  A worker takes one request after the other, so that a reply may wait for
  others, and for a worker that is being started again.

  Args:
    request: a message of the server.
    socket_path: socket of the worker; None is the value of FL_SKETCH_SITE.
    timeout: seconds until a reply begins.

  Raises:
    ConnectionError: no worker answers, or it ended before it had answered.
  """
  path = socket_path or os.environ.get(VARIABLE)
  if not path:
    raise ConnectionError(
      f'{VARIABLE} is not set; start the client of the engine by '
      '`fl-sketch site ... -- COMMAND`.'
    )
  try:
    with socket.socket(socket.AF_UNIX) as connection:
      connection.settimeout(timeout)
      connection.connect(path)
      write(connection, request)
      return read(connection)
  except OSError as e:
    raise ConnectionError(f'No reply of the worker at {path}: {e}.') from e


def write(connection: socket.socket, message: bytes):
  """Sends a message: its size in bytes, a little-endian u64, and its bytes."""
  connection.sendall(_SIZE.pack(len(message)))
  connection.sendall(message)


def read(connection: socket.socket) -> bytes:
  """Reads one message.

  >>> ours, theirs = socket.socketpair()
  >>> write(ours, b'table')
  >>> read(theirs)
  b'table'

  Raises:
    ConnectionError: it is cut off, or larger than 4 GiB.
  """
  with connection.makefile('rb') as file:
    head = file.read(_SIZE.size)
    size = _SIZE.unpack(head)[0] if len(head) == _SIZE.size else 0
    if size > LARGEST:
      raise ConnectionError(f'a message of {size} bytes exceeds {LARGEST}')
    body = file.read(size)
  if len(head) < _SIZE.size or len(body) < size:
    raise ConnectionError(f'the connection ended at byte {len(body)} of {size}')
  return body
