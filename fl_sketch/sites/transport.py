"""What an engine gives to the server: sites, and one request to each."""

from collections.abc import Callable, Iterator, Mapping
import contextlib
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
  """Sites in this process, each a function from request to reply.

  A site that raises ConnectionError is gone. The others answer one after the
  other, however long they take: each of them uses all cores.
  """

  def __init__(self, sites: Mapping[str, Callable[[bytes], bytes]]):
    self._sites = dict(sites)

  def sites(self) -> list[str]:
    """Return the names of all sites."""
    return list(self._sites)

  def ask(
    self, requests: Mapping[str, bytes], timeout: float
  ) -> Iterator[tuple[str, bytes]]:
    """Ask as `Transport` does, but wait for every site."""
    del timeout
    for name, request in requests.items():
      with contextlib.suppress(ConnectionError):
        yield name, self._sites[name](request)
