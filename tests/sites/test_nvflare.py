"""NVFlare: sites as a transport, jobs, their supervisor."""

import importlib.util
import json
import sys
import threading
import time
import types

from fl_sketch.sites import nvflare, nvflare_jobs
import pytest

needs_nvflare = pytest.mark.skipif(
  importlib.util.find_spec('nvflare') is None,
  reason="needs nvflare: pip install 'fl_sketch[nvflare]'",
)


class Client:
  """A proxy of NVFlare for a site that answers by `reply`."""

  def __init__(self, name, reply):
    self.name, self._reply, self.asked, self.timeout = name, reply, [], None

  def __call__(self, timeout):
    self.timeout = timeout
    return types.SimpleNamespace(ask=self._ask)

  def _ask(self, request, timeout):
    assert timeout == self.timeout
    self.asked.append(request)
    return self._reply(request)


class Stuck:
  """A reply that comes when it is let go."""

  def __init__(self):
    self.go = threading.Event()

  def __call__(self, request):
    self.go.wait(20)
    return request


def ask(sites, *names, timeout=30.0):
  """The replies to a request of each name."""
  return dict(sites.ask({name: name.encode() for name in names}, timeout))


def test_each_site_gets_its_own_request_and_replies_come_as_they_are_ready():
  """Catches group calls, which send all requests to all, in order."""
  slow = Stuck()
  clients = [Client('a', slow), Client('b', bytes.upper)]
  sites = nvflare.Sites(clients)
  assert sites.sites() == ['a', 'b']
  replies = sites.ask({'a': b'one', 'b': b'two'}, 30.0)
  assert next(replies) == ('b', b'TWO')
  slow.go.set()
  assert list(replies) == [('a', b'one')]
  assert [client.asked for client in clients] == [[b'one'], [b'two']]


def test_a_site_that_fails_is_absent_and_asked_again(capfd):
  """Catches a failure that ends the round, and one that is waited for."""
  broken = [ConnectionError('no worker'), None]

  def reply(request):
    if error := broken.pop(0):
      raise error
    return request

  sites = nvflare.Sites([Client('a', reply), Client('b', bytes)])
  assert ask(sites, 'a', 'b') == {'b': b'b'}
  assert 'a did not answer. no worker' in capfd.readouterr().err
  assert ask(sites, 'a', 'b') == {'a': b'a', 'b': b'b'}


def test_a_site_that_hangs_costs_its_timeout_alone():
  """Catches a round that never ends, and calls that pile up at a site."""
  stuck = Stuck()
  gone = Client('a', stuck)
  sites = nvflare.Sites([gone, Client('b', bytes)])
  for _ in range(3):
    assert ask(sites, 'a', 'b', timeout=0.2) == {'b': b'b'}
  assert gone.asked == [b'a']
  stuck.go.set()
  for _ in range(2000):  # until its thread has noticed
    if found := ask(sites, 'a'):
      break
    time.sleep(0.005)
  assert found == {'a': b'a'}


def test_an_aborted_job_is_no_round_without_sites():
  """Catches a round that is closed since all calls of a dead job fail."""

  def fail(request):
    raise RuntimeError('aborted')

  sites = nvflare.Sites([Client('a', fail)], lambda: True)
  with pytest.raises(RuntimeError, match='aborted'):
    ask(sites, 'a')


def test_a_request_goes_to_the_worker_of_its_site(monkeypatch):
  """Catches sites of one environment that share a worker."""
  monkeypatch.setenv('FL_SKETCH_SITES', '/run/sites')
  with pytest.raises(ConnectionError, match='/run/sites/site-1/socket'):
    nvflare.answer('site-1', b'', 1.0)


class Federation:
  """A session of NVFlare's administration, with the jobs of a server."""

  def __init__(self, *sites):
    self.jobs, self.aborted = [], []
    self.sites = dict.fromkeys(sites)  # site -> the job that runs there
    self.server = set()  # jobs that run on the server

  def submit_job(self, folder):
    self.jobs.append({'job_id': f'{len(self.jobs)}', 'status': 'RUNNING'})
    self.server = {self.jobs[-1]['job_id']}
    for site, job in self.sites.items():
      if job not in ('away', 'refuses'):
        self.sites[site] = self.jobs[-1]['job_id']
    return self.jobs[-1]['job_id']

  def abort_job(self, job):
    self.aborted.append(job)
    self.end('ABORTED')

  def end(self, status):
    self.jobs[-1]['status'] = f'FINISHED:{status}'
    self.server = set()

  def get_job_logs(self, job, target, tail_lines, grep_pattern):
    lines = [f'{grep_pattern}of job {n}' for n in range(int(job) + 1)]
    return {'logs': {target: '\n'.join(lines)}}

  def get_job_meta(self, job):
    return self.jobs[int(job)]

  def list_jobs(self, name_prefix):
    return self.jobs

  def get_system_info(self):
    info = [types.SimpleNamespace(job_id=job) for job in self.server]
    return types.SimpleNamespace(job_info=info, client_info=self.sites)

  def get_client_job_status(self):
    said = {None: 'no_jobs', 'refuses': 'no_jobs', 'away': 'no_reply'}
    status = lambda job: {'status': said.get(job, 'started'), 'job_id': job}
    return [{'client_name': k} | status(v) for k, v in self.sites.items()]


def watch(tmp_path, **options):
  said = []
  given = {'settle': 0.0, 'say': said.append} | options
  return nvflare_jobs.Watch(tmp_path / 'job', **given), said


def looks(watched, session, count=6):
  return [watched.look(session) for _ in range(count)]


def test_a_job_is_submitted_once_its_sites_are_there(tmp_path):
  watched, _ = watch(tmp_path, min_sites=2)
  session = Federation('a', 'b')
  session.sites['b'] = 'away'  # the server calls it connected for minutes
  assert looks(watched, session) == [False] * 6
  assert not session.jobs
  session.sites['b'] = None
  assert looks(watched, session) == [False] * 6
  assert len(session.jobs) == 1
  session.end('COMPLETED')
  assert looks(watched, session, 1) == [True]


@pytest.mark.parametrize(('event', 'again', 'aborts'), [
  (lambda session: session.end('EXECUTION_EXCEPTION'), 1, 0),
  # The server restarts, and goes on calling the job running.
  (lambda session: session.server.clear(), 1, 0),
  (lambda session: session.sites.update(d=None), 1, 1),
  (lambda session: session.sites.update(b=None), 1, 1),  # b comes back
  (lambda session: session.sites.update(b='away'), 0, 0),
])  # fmt: skip
def test_a_job_is_submitted_again_where_it_cannot_go_on(
  tmp_path, event, again, aborts
):
  """Catches a run that stops, and jobs without end for a site that refuses."""
  watched, said = watch(tmp_path)
  session = Federation('a', 'b', 'c')
  session.sites['c'] = 'refuses'
  looks(watched, session)
  event(session)
  looks(watched, session)
  assert len(session.jobs) == 1 + again, said
  assert session.aborted == ['0'] * aborts
  assert session.jobs[-1]['status'] == 'RUNNING'


def test_a_second_supervisor_takes_over(tmp_path):
  """Catches two jobs that write into one folder of a run."""
  session = Federation('a')
  for _ in range(2):
    looks(watch(tmp_path)[0], session)
    assert len(session.jobs) == 1
  session.server = set()  # a job of a server that was restarted
  looks(watch(tmp_path)[0], session)
  assert len(session.jobs) == 2


def test_a_job_that_cannot_run_or_was_aborted_is_given_up(tmp_path):
  watched, _ = watch(tmp_path, attempts=2)
  session = Federation('a')
  looks(watched, session)
  session.end('EXECUTION_EXCEPTION')
  looks(watched, session)
  session.end('EXECUTION_EXCEPTION')
  with pytest.raises(nvflare_jobs.JobFailedError, match='job 1'):
    watched.look(session)
  watched, _ = watch(tmp_path)
  looks(watched, session)
  session.end('ABORTED')
  with pytest.raises(nvflare_jobs.JobFailedError, match='aborted'):
    watched.look(session)


@needs_nvflare
def test_a_job_is_one_module_and_its_config(tmp_path, monkeypatch):
  """Catches a job that carries fl_sketch, and one that Python mixes up."""
  served = []
  monkeypatch.setattr(nvflare, 'serve', lambda *args: served.append(args))
  for seed in (0, 1):
    config = {'name': "it's", 'seed': seed}
    job = nvflare_jobs.deploy(config, tmp_path, '/run/w', timeout=9.0)
    (path,) = (job / 'app' / 'custom').iterdir()
    assert path.stem == job.name
    sys.modules[job.name].main()
    text, *others = served[-1]
    assert json.loads(text) == config
    assert others == ['/run/w', {'timeout': 9.0}]
    assert json.loads((job / 'meta.json').read_text())['name'] == job.name
