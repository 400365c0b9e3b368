"""Catch the signals that stop a run, so that it saves before it ends."""

from collections.abc import Iterator
import contextlib
import signal
import threading


@contextlib.contextmanager
def caught() -> Iterator[list[int]]:
  """Collect SIGINT and SIGTERM; a second signal ends the process at once.

  Python catches signals in the main thread only.
  """
  numbers: list[int] = []
  if threading.current_thread() is not threading.main_thread():
    yield numbers
    return

  restore = lambda: [signal.signal(*item) for item in before.items()]

  def note(number, frame):
    numbers.append(number)
    restore()

  before = {s: signal.signal(s, note) for s in (signal.SIGINT, signal.SIGTERM)}
  try:
    yield numbers
  finally:
    restore()
