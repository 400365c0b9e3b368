"""What an engine gives to the server: sites, and one request to each."""

from collections.abc import Callable, Iterator, Mapping
import concurrent.futures
import time
from typing import Protocol


class Transport(Protocol):
  """A carrier of requests to sites, and of their replies."""

  def sites(self) -> list[str]:
    """Return the names of the sites that are connected now."""
    ...

  def ask(
    self, requests: Mapping[str, bytes], timeout: float
  ) -> Iterator[tuple[str, bytes]]:
    """Send each site its request; yield (site, reply) as replies come.

    It ends when all have come, or after `timeout` seconds; the caller may leave
    it earlier. A site that fails or is gone yields nothing.
    """
    ...


class LocalSites:
  """Sites in this process, each a function from request to reply."""

  def __init__(self, sites: Mapping[str, Callable[[bytes], bytes]]):
    self._sites = dict(sites)
    # One thread: XLA uses all cores for one site at a time.
    self._pool = concurrent.futures.ThreadPoolExecutor(1)

  def sites(self) -> list[str]:
    """Return the names of all sites."""
    return list(self._sites)

  def ask(
    self, requests: Mapping[str, bytes], timeout: float
  ) -> Iterator[tuple[str, bytes]]:
    """Ask as `Transport` does; a site that raises ConnectionError is gone."""
    end = time.monotonic() + timeout
    submit = lambda name, x: self._pool.submit(self._sites[name], x)
    names = {submit(name, x): name for name, x in requests.items()}
    left = max(0, end - time.monotonic())
    try:
      for done in concurrent.futures.as_completed(names, left):
        if not isinstance(done.exception(), ConnectionError):
          yield names[done], done.result()
    except TimeoutError:
      return
