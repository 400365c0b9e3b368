"""NVFlare jobs: written, submitted, and supervised.

A job is a config and one module of ten lines, the same for server and sites;
what trains is the fl_sketch that each of them has installed.

NVFlare cannot go on with a job whose server's or client's process ended, nor
take in a site that comes later. `supervise` submits the job again, and its
server goes on from the last checkpoint.
"""

from collections.abc import Callable, Mapping
import contextlib
import importlib
import json
import os
import pathlib
import sys
import time
from typing import Any
import zlib

from fl_sketch.utils import extras

_MODULE = '''\
"""Both sides of a job of fl_sketch."""

from fl_sketch.sites import nvflare
from nvflare.collab import collab


@collab.publish
def ask(request: bytes, timeout: float) -> bytes:
  return nvflare.answer(collab.site_name, request, timeout)


@collab.main
def main():
  nvflare.serve({config!r}, {workdir!r}, {options!r})
'''
_API = 'nvflare.fuel.flare_api'
_LOST = 'The server lost the job'


class JobFailedError(ConnectionError):
  """A job ended before its run did, and is not submitted again."""


def deploy(
  config: Mapping[str, Any],
  folder: str | os.PathLike,
  workdir: str | os.PathLike,
  **options: str | float,
) -> pathlib.Path:
  """Write the job of a config's fields, for `supervise`, into a folder.

  The workdir is on the server; options are further arguments of
  `federation.run`. Returns the job's folder, which NVFlare's own commands take
  as well.
  """
  with extras.needed('nvflare'):
    collab = importlib.import_module('nvflare.collab')
  text = _MODULE.format(
    config=json.dumps(config), workdir=os.path.abspath(workdir), options=options
  )
  # Named by its contents: Python keeps what it has loaded under a name.
  name = f'fl_sketch_{zlib.crc32(text.encode()):08x}'
  folder = pathlib.Path(folder).resolve()
  folder.mkdir(parents=True, exist_ok=True)
  (folder / f'{name}.py').write_text(text)
  sys.path.insert(0, str(folder))
  try:
    importlib.invalidate_caches()
    module = importlib.import_module(name)
  finally:
    sys.path.remove(str(folder))
  collab.CollabRecipe(name, server=module, client=module).export(str(folder))
  return folder / name


class Watch:
  """A job that is submitted again wherever NVFlare cannot go on with it.

  Args:
    job: its folder, from `deploy`.
    min_sites: connected sites to wait for; later for `settle` seconds at most.
    attempts: jobs that may fail in a row, each within a minute.
    settle: seconds after which what is wrong is not about to mend.
    say: gets a line for each job that is submitted, and why one was ended.
  """

  def __init__(
    self, job: pathlib.Path, *, min_sites: int = 1, attempts: int = 3,
    settle: float = 8.0, say: Callable[[str], Any] = print,
  ):  # fmt: skip
    self._job, self._min_sites, self._say = job, min_sites, say
    self._attempts, self._settle, self._failed = attempts, settle, 0
    self._again = False  # submitted before: without sites that are lost
    self._take('', set())

  def _take(self, job_id: str, sites: set[str]):
    """Watch another job; `there` are the sites that it was submitted for."""
    self._id, self._there, self._taken = job_id, sites, set()
    self._aborted, self._began = False, time.monotonic()
    self._wrong, self._since = '', 0.0

  def look(self, session: Any) -> bool:
    """Look once, in a session of NVFlare, and act; return if the run is over.

    JobFailedError: jobs fail as soon as they start, or somebody else aborted
    one.
    """
    if not self._id:
      self._begin(session)
      return False
    status = session.get_job_meta(self._id)['status']
    if status.startswith('FINISHED'):
      return status == 'FINISHED:COMPLETED' or self._ended(session, status)
    wrong = '' if self._aborted else self._trouble(session, status)
    if wrong != self._wrong:
      self._wrong, self._since = wrong, time.monotonic()
    elif wrong and time.monotonic() - self._since >= self._settle:
      self._say(f'{wrong}: the job is submitted again.')
      if wrong == _LOST:
        self._take('', set())
      else:
        session.abort_job(self._id)
        self._aborted = True
    return False

  def _begin(self, session: Any):
    """Take over a job of this name, or submit one for the sites there are."""
    running = _running(session)
    for each in session.list_jobs(name_prefix=self._job.name):
      # The server that came back calls jobs running that are not.
      alive = each['status'] != 'RUNNING' or each['job_id'] in running
      if alive and not each['status'].startswith('FINISHED'):
        self._say(f'Job {each["job_id"]} goes on.')
        return self._take(each['job_id'], set())
    sites = _replies(_sites(session))
    if sites != self._there:
      self._there, self._since = sites, time.monotonic()
    lost = self._again and time.monotonic() - self._since >= self._settle
    if len(sites) >= self._min_sites or (sites and lost):
      self._take(session.submit_job(str(self._job)), sites)
      self._again = True
      self._say(f'Job {self._id} is submitted for {", ".join(sorted(sites))}.')

  def _ended(self, session: Any, status: str) -> bool:
    """Count failures of a job that is over, but not its run."""
    if not self._aborted:
      if status == 'FINISHED:ABORTED':
        raise JobFailedError(f'Somebody aborted job {self._id}.')
      said = session.get_job_logs(
        self._id, target='server', tail_lines=50, grep_pattern='Error: '
      )
      lines = said['logs'].get('server', '').splitlines() or [status]
      why = f'Job {self._id} failed: {lines[-1]}'
      quick = time.monotonic() - self._began < 60
      self._failed = self._failed + 1 if quick else 1
      if self._failed >= self._attempts:
        raise JobFailedError(why)
      self._say(why)  # the next line says that another one is submitted
    self._take('', set())
    return False

  def _trouble(self, session: Any, status: str) -> str:
    """Return why the job does not go on as it should, or ''."""
    if status != 'RUNNING':
      return ''
    if self._id not in _running(session):
      return _LOST
    sites = _sites(session)
    have = {s['client_name'] for s in sites if s.get('job_id') == self._id}
    self._taken |= have
    # A site that was there and did not take the job would not take the next.
    back = sorted(_replies(sites) - have - (self._there - self._taken))
    return f'{", ".join(back)} came back' if back else ''


def _sites(session: Any) -> list[dict[str, Any]]:
  """Return the connected sites, with the jobs that run there."""
  there = session.get_system_info().client_info
  return session.get_client_job_status() or [] if there else []


def _replies(sites: list[dict[str, Any]]) -> set[str]:
  """Return the sites that answer, of those that the server lists."""
  return {s['client_name'] for s in sites if s['status'] != 'no_reply'}


def _running(session: Any) -> set[str]:
  return {job.job_id for job in session.get_system_info().job_info}


def open_session(kit: str | os.PathLike) -> Any:
  """Open a session of NVFlare's administration, of an admin's startup kit."""
  with extras.needed('nvflare'):
    flare_api = importlib.import_module(f'{_API}.flare_api')
  path = pathlib.Path(kit) / 'startup' / 'fed_admin.json'
  if not path.exists():
    raise ValueError(f'kit={kit} is no kit of an NVFlare admin: no {path}.')
  user = json.loads(path.read_text())['admin']['username']
  return flare_api.new_secure_session(user, str(kit), timeout=10.0)


def supervise(
  kit: str | os.PathLike, watch: Watch, *, poll: float = 2.0
) -> None:
  """Watch a job until its run is over, through restarts of the server.

  `kit` is the folder of an admin's startup kit; `poll` seconds are between two
  looks. JobFailedError: see `Watch.look`.
  """
  with extras.needed('nvflare'):
    spec = importlib.import_module(f'{_API}.api_spec')
  away = (
    spec.NoConnection, spec.SessionClosed, spec.NoReply,
    spec.NoClientsAvailable, spec.InternalError,
  )  # fmt: skip
  session = open_session(kit)  # a wrong address is an error at once

  def close():
    """End the threads of the session, without which Python does not end."""
    if session is not None:
      with contextlib.suppress(*away):
        session.close()

  try:
    while True:
      try:
        session = session or open_session(kit)
        if watch.look(session):
          return
      except away as e:
        if session is not None:
          print(f'NVFlare does not answer, which is tried again: {e}')
          close()
        session = None
      time.sleep(poll)
  finally:
    close()
