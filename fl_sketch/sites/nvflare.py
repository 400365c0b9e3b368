"""NVFlare 2.9: what runs in a job, on the server and on sites.

NVFlare's own process on a site loads no JAX: it hands requests to the site's
worker, which outlives jobs. `nvflare_jobs` writes and supervises jobs.
"""

from collections.abc import Callable, Iterator, Mapping
import importlib
import json
import os
import queue
import sys
import threading
import time
from typing import Any

from fl_sketch.sites import relay


class Sites:
  """The sites of a job; a `transport.Transport`.

  `clients` are `collab.clients` of the job's `@collab.main`, `aborted` says if
  NVFlare has aborted the job. A site gets no request while another one is on
  its way: calls to one that is gone do not pile up.
  """

  def __init__(self, clients: Any, aborted: Callable[[], bool] = bool):
    self._clients = {client.name: client for client in clients}
    self._aborted = aborted
    self._busy: set[str] = set()

  def sites(self) -> list[str]:
    """Return the names of the sites of the job, whether or not they answer."""
    return list(self._clients)

  def ask(
    self, requests: Mapping[str, bytes], timeout: float
  ) -> Iterator[tuple[str, bytes]]:
    """Send each site its request; yield (site, reply) as they come.

    RuntimeError: NVFlare aborted the job; then all sites seem absent.
    """
    end, replies = time.monotonic() + timeout, queue.SimpleQueue()
    waiting = {site for site in requests if site not in self._busy}
    self._busy |= waiting
    for site in waiting:
      call = site, requests[site], timeout, replies
      # Not of a pool, whose threads Python waits for at its end.
      threading.Thread(target=self._call, args=call, daemon=True).start()
    while waiting and (left := end - time.monotonic()) > 0:
      try:
        site, reply = replies.get(timeout=min(left, 1.0))
      except queue.Empty:
        self._stop_if_aborted()
        continue
      waiting.discard(site)
      if reply is not None:
        yield site, reply
    self._stop_if_aborted()

  def _call(
    self, site: str, request: bytes, timeout: float, replies: Any
  ) -> None:
    """Ask one site, in a thread of its own; None is no reply."""
    reply = None
    try:
      reply = self._clients[site](timeout=timeout).ask(request, timeout)
    except Exception as e:  # of NVFlare, or what it tells of the site's
      print(f'{site} did not answer. {e}', file=sys.stderr, flush=True)
    self._busy.discard(site)
    replies.put((site, reply))

  def _stop_if_aborted(self):
    if self._aborted():
      raise RuntimeError('NVFlare aborted the job.')


def answer(site: str, request: bytes, timeout: float) -> bytes:
  """Hand a request to the worker of a site, in NVFlare's process there.

  The worker listens on FL_SKETCH_SITE, which `fl-sketch site` sets. Where one
  environment serves several sites, their folders --state are in the folder
  FL_SKETCH_SITES, by their names. ConnectionError: no worker answers.
  """
  folder = os.environ.get('FL_SKETCH_SITES')
  path = os.path.join(folder, site, 'socket') if folder else None
  return relay.ask(request, path, timeout)


def serve(config: str, workdir: str, options: Mapping[str, Any]) -> None:
  """Train in the server's process of a job, over its sites."""
  from fl_sketch.sites import federation

  collab = importlib.import_module('nvflare.collab').collab
  sites = Sites(collab.clients, lambda: collab.is_aborted)
  federation.run(json.loads(config), sites, workdir, **options)
