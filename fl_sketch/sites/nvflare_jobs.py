"""Write, submit and supervise jobs of NVFlare.

A job is a config and a module of ten lines, the same for server and sites; what
trains is the fl_sketch that each has installed. NVFlare cannot resume a job
whose server's or client's process ended, nor take in a site that comes later:
`supervise` submits the job again, whose server resumes from its checkpoint.
"""

from collections.abc import Callable, Mapping
import contextlib
import dataclasses
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
_PAUSE = 2.0  # seconds between looks
_LOST = 'The server lost the job'


class JobFailedError(ConnectionError):
  """A job ended before its run did, and is not submitted again."""


def deploy(
  config: Mapping[str, Any],
  folder: str | os.PathLike,
  workdir: str | os.PathLike,
  **options: str | float,
) -> pathlib.Path:
  """Write the job of a config's fields into a folder; return the job's folder.

  The workdir is on the server; options are further arguments of
  `federation.run`. `supervise` and NVFlare's own commands take the job.
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


@dataclasses.dataclass
class Watch:
  """A job that is submitted again wherever NVFlare cannot resume it."""

  job: pathlib.Path  # its folder, from `deploy`
  _: dataclasses.KW_ONLY
  min_sites: int = 1  # sites to wait for; later for `settle` seconds at most
  attempts: int = 3  # jobs that may fail in a row, each within a minute
  settle: float = 8.0  # seconds after which what is wrong does not mend
  # Gets a line for each job that is submitted, and why one was ended.
  say: Callable[[str], Any] = print

  def __post_init__(self):
    self._failed = 0
    # Once a job was submitted, the next one does not wait for lost sites.
    self._was_submitted = False
    self._watch('', set())

  def _watch(self, job_id: str, sites: set[str]):
    """Watch another job, which was submitted for these sites."""
    self._id, self._submitted_for, self._seen_at = job_id, sites, set()
    self._aborted, self._started = False, time.monotonic()
    self._wrong, self._since = '', 0.0

  def look(self, session: Any) -> bool:
    """Look once, in a session of NVFlare, and act; return if the run is over.

    JobFailedError: jobs fail as soon as they start, or somebody else aborted
    one.
    """
    if not self._id:
      self._start(session)
      return False
    status = session.get_job_meta(self._id)['status']
    if status == 'FINISHED:COMPLETED':
      return True
    if status.startswith('FINISHED'):
      self._count_failure(session, status)
      return False
    wrong = '' if self._aborted else self._trouble(session, status)
    if wrong != self._wrong:
      self._wrong, self._since = wrong, time.monotonic()
    elif wrong and time.monotonic() - self._since >= self.settle:
      self.say(f'{wrong}: the job is submitted again.')
      if wrong == _LOST:
        self._watch('', set())
      else:
        session.abort_job(self._id)
        self._aborted = True
    return False

  def _start(self, session: Any):
    """Take over a job of this name, or submit one for the sites there are."""
    running = _running(session)
    for each in session.list_jobs(name_prefix=self.job.name):
      # The server that came back calls jobs running that are not.
      alive = each['status'] != 'RUNNING' or each['job_id'] in running
      if alive and not each['status'].startswith('FINISHED'):
        self.say(f'Job {each["job_id"]} goes on.')
        return self._watch(each['job_id'], set())
    sites = _connected(_sites(session))
    if sites != self._submitted_for:
      self._submitted_for, self._since = sites, time.monotonic()
    lost = self._was_submitted and time.monotonic() - self._since >= self.settle
    if len(sites) >= self.min_sites or (sites and lost):
      self._watch(session.submit_job(str(self.job)), sites)
      self._was_submitted = True
      self.say(f'Job {self._id} is submitted for {", ".join(sorted(sites))}.')

  def _count_failure(self, session: Any, status: str):
    """Count failures of a job that is over, but not its run."""
    if not self._aborted:
      if status == 'FINISHED:ABORTED':
        raise JobFailedError(f'Somebody aborted job {self._id}.')
      said = session.get_job_logs(
        self._id, target='server', tail_lines=50, grep_pattern='Error: '
      )
      lines = said['logs'].get('server', '').splitlines() or [status]
      why = f'Job {self._id} failed: {lines[-1]}'
      quick = time.monotonic() - self._started < 60
      self._failed = self._failed + 1 if quick else 1
      if self._failed >= self.attempts:
        raise JobFailedError(why)
      self.say(why)  # the next line says that another one is submitted
    self._watch('', set())

  def _trouble(self, session: Any, status: str) -> str:
    """Return why the job does not go on as it should, or ''."""
    if status != 'RUNNING':
      return ''
    if self._id not in _running(session):
      return _LOST
    sites = _sites(session)
    have = {s['client_name'] for s in sites if s.get('job_id') == self._id}
    self._seen_at |= have
    # A site that refused this job would refuse the next.
    refusing = self._submitted_for - self._seen_at
    back = sorted(_connected(sites) - have - refusing)
    return f'{", ".join(back)} came back' if back else ''


def _sites(session: Any) -> list[dict[str, Any]]:
  """Return the connected sites, with the jobs that run there."""
  there = session.get_system_info().client_info
  return session.get_client_job_status() or [] if there else []


def _connected(sites: list[dict[str, Any]]) -> set[str]:
  """Return the sites that answer, of those that the server lists."""
  return {s['client_name'] for s in sites if s['status'] != 'no_reply'}


def _running(session: Any) -> set[str]:
  return {job.job_id for job in session.get_system_info().job_info}


def open_session(kit: str | os.PathLike) -> Any:
  """Open a session of NVFlare's administration, of an admin's startup kit."""
  with extras.needed('nvflare'):
    flare_api = importlib.import_module('nvflare.fuel.flare_api.flare_api')
  path = pathlib.Path(kit) / 'startup' / 'fed_admin.json'
  if not path.exists():
    raise ValueError(f'kit={kit} is no kit of an NVFlare admin: no {path}.')
  user = json.loads(path.read_text())['admin']['username']
  return flare_api.new_secure_session(user, str(kit), timeout=10.0)


def supervise(kit: str | os.PathLike, watch: Watch) -> None:
  """Watch a job until its run is over, through restarts of the server.

  `kit` is the folder of an admin's startup kit. Raises as `Watch.look`.
  """
  session = open_session(kit)  # a wrong address is an error at once
  spec = importlib.import_module('nvflare.fuel.flare_api.api_spec')
  away = (
    spec.NoConnection, spec.SessionClosed, spec.NoReply,
    spec.NoClientsAvailable, spec.InternalError,
  )  # fmt: skip
  while session is None or not _is_over(session, watch, away):
    session = None
    time.sleep(_PAUSE)
    with contextlib.suppress(*away):
      session = open_session(kit)


def _is_over(session, watch, away) -> bool:
  """Look until the run is over; False if NVFlare does not answer."""
  try:
    while not watch.look(session):
      time.sleep(_PAUSE)
    return True
  except away as e:
    print(f'NVFlare does not answer, which is tried again: {e}')
    return False
  finally:  # end its threads, without which Python does not end
    with contextlib.suppress(*away):
      session.close()
