"""Hand a message over to the resident worker of a site.

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
  """Send a request to the worker of this site; return its reply.

  The default of `socket_path` is FL_SKETCH_SITE; `timeout` is the seconds until
  a reply begins. ConnectionError: no worker answers, or it ends too early.
  """
  path = socket_path or os.environ.get(VARIABLE)
  if not path:
    text = 'start the client of the engine by `fl-sketch site ... -- COMMAND`'
    raise ConnectionError(f'{VARIABLE} is not set; {text}.')
  try:
    with socket.socket(socket.AF_UNIX) as connection:
      connection.settimeout(timeout)
      connection.connect(path)
      write(connection, request)
      return read(connection)
  except OSError as e:
    raise ConnectionError(f'No reply of the worker at {path}: {e}.') from e


def write(connection: socket.socket, message: bytes):
  """Send the size of a message, a little-endian u64, and the message."""
  connection.sendall(_SIZE.pack(len(message)))
  if message:  # who reads an empty one may have hung up by now
    connection.sendall(message)


def read(connection: socket.socket) -> bytes:
  """Return the next message that `write` has sent; waits for all of it.

  >>> ours, theirs = socket.socketpair()
  >>> with ours, theirs:
  ...   write(ours, b'table')
  ...   read(theirs)
  b'table'

  ConnectionError: the other end closed too early, or the message exceeds 4 GiB.
  """
  with connection.makefile('rb') as file:
    head = file.read(_SIZE.size)
    (size,) = _SIZE.unpack(head) if len(head) == _SIZE.size else (-1,)
    body = file.read(size) if 0 <= size <= LARGEST else b''
  if len(body) != size:
    raise ConnectionError(f'{len(body)} bytes of a message of {size}')
  return body
