"""A TCP proxy on loopback that counts the bytes of both directions."""

import contextlib
import socket
import struct
import threading


class Proxy:
  """Forwards connections to a `port`; counts bytes `up` to it and `down`."""

  def __init__(self, target: int):
    self._target, self._lock = ('127.0.0.1', target), threading.Lock()
    self.up = self.down = 0
    self._listener = socket.create_server(('127.0.0.1', 0))
    self.port = self._listener.getsockname()[1]
    threading.Thread(target=self._accept, daemon=True).start()

  def __enter__(self):
    return self

  def __exit__(self, *_):
    self._listener.shutdown(socket.SHUT_RDWR)  # ends `accept`

  def _accept(self):
    with self._listener, contextlib.suppress(OSError):
      while True:
        inner = self._listener.accept()[0]
        threading.Thread(target=self._serve, args=(inner,), daemon=True).start()

  def _serve(self, inner):
    with inner:
      try:
        outer = socket.create_connection(self._target)
      except OSError:
        # A reset, which is no failed handshake of TLS: clients try again.
        reset = struct.pack('ii', 1, 0)
        inner.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        return
      with outer:
        ends = 'up', inner, outer
        up = threading.Thread(target=self._forward, args=ends, daemon=True)
        up.start()
        self._forward('down', outer, inner)
        up.join()

  def _forward(self, way, source, sink):
    with contextlib.suppress(OSError):  # of an end that has gone
      while data := source.recv(1 << 16):
        with self._lock:
          setattr(self, way, getattr(self, way) + len(data))
        sink.sendall(data)
    for end in (source, sink):
      with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
