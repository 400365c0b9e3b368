"""A TCP proxy on loopback that counts the bytes of both directions."""

import socket
import struct
import threading


class Proxy:
  """Forwards connections to a port; TLS passes through.

  Attributes:
    port: where it listens.
    up: bytes from those who connect to the target; `down`, the other way.
  """

  def __init__(self, target: int, host: str = '127.0.0.1'):
    self._target, self._lock = (host, target), threading.Lock()
    self.up = self.down = 0
    self._listener = socket.create_server((host, 0))
    self.port = self._listener.getsockname()[1]
    threading.Thread(target=self._accept, daemon=True).start()

  def __enter__(self):
    return self

  def __exit__(self, *_):
    self._listener.close()

  def _accept(self):
    while True:
      try:
        inner, _ = self._listener.accept()
      except OSError:
        return  # closed
      try:
        outer = socket.create_connection(self._target)
      except OSError:
        # A reset, which is no failed handshake of TLS: a client tries again.
        inner.setsockopt(
          socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)
        )
        inner.close()
        continue
      for way, *ends in (('up', inner, outer), ('down', outer, inner)):
        threading.Thread(
          target=self._forward, args=(way, *ends), daemon=True
        ).start()

  def _forward(self, way, source, sink):
    try:
      while data := source.recv(1 << 16):
        with self._lock:
          setattr(self, way, getattr(self, way) + len(data))
        sink.sendall(data)
    except OSError:
      pass  # an end is gone; the other hears of it below
    for end in (source, sink):
      try:
        end.shutdown(socket.SHUT_RDWR)
      except OSError:
        pass
