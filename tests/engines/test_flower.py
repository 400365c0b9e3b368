"""Flower's app relays bytes; rounds over a SuperLink equal simulated ones."""

import json
import subprocess
import sys
import threading
import tomllib

from fl_sketch.engines import flower, worker
import pytest

CONFIG = {'algorithm': 'safl', 'rounds': 5}


@pytest.fixture
def flwr():
  return pytest.importorskip('flwr', reason='needs Flower: extra `flower`')


def test_the_app_folder_is_written_whole(tmp_path):
  """Catches TOML that no parser reads, and a workdir beside the SuperLink's."""
  options = {'data_dir': None, 'timeout': 9.5, 'note': 'a "b" \\ é 😀'}
  app = flower.deploy(CONFIG, tmp_path / 'app', 'runs/x', **options)
  read = tomllib.loads((app / 'pyproject.toml').read_text())
  values = read['tool']['flwr']['app']['config']
  assert values.pop('workdir').startswith('/')
  assert values == {k: v for k, v in options.items() if v is not None}
  package = app / 'fl_sketch_run'
  assert json.loads((package / 'config.json').read_text()) == CONFIG
  for side, module in read['tool']['flwr']['app']['components'].items():
    name, _, made = module.partition(':')
    source = (app / f'{name.replace(".", "/")}.py').read_text()
    assert f'{made} = flower.{side.replace("app", "_app")}(' in source


class Grid:
  """Flower's grid in one process; sites in `dead` never answer."""

  def __init__(self, client_app, nodes):
    self.client_app, self.nodes, self.dead = client_app, nodes, set()
    self.replies, self.sent = {}, []

  def get_node_ids(self):
    return list(self.nodes)

  def push_messages(self, messages):
    from flwr.app import Error, Message

    ids = []
    for message in messages:
      node = message.metadata.dst_node_id
      message.metadata.__dict__['_message_id'] = f'{len(self.replies)}:{node}'
      ids.append(message.metadata.message_id)
      self.sent.append(node)
      try:
        reply = self.client_app(message, None)
      except ConnectionError as e:  # as in Flower's process
        reply = Message(Error(2, str(e)), reply_to=message)
      self.replies[ids[-1]] = reply
    return ids

  def pull_messages(self, ids):
    found = (self.replies[id_] for id_ in ids)
    return [x for x in found if x.metadata.src_node_id not in self.dead]


class Clock:
  """Time that passes by sleeping."""

  now = 0.0

  def monotonic(self):
    return self.now

  def sleep(self, seconds):
    self.now += seconds


@pytest.fixture
def grid(flwr, monkeypatch):
  from flwr.supercore.task_identity import TaskIdentity

  for name in ('_task_id', '_run_id', '_node_id'):
    monkeypatch.setattr(TaskIdentity, name, 1)
  monkeypatch.setattr(flower, 'time', clock := Clock())
  grid = Grid(flower.client_app(), [7, 30])
  grid.clock = clock
  return grid


def test_bytes_are_relayed_and_a_dead_worker_is_absent(
  grid, tmp_path, monkeypatch
):
  """Catches bytes changed on the way, and a death that ends the round."""
  monkeypatch.setenv('FL_SKETCH_SITE', f'{tmp_path}/s/socket')
  nodes = flower.SuperNodes(grid)
  assert nodes.sites() == ['30', '7']
  requests = {'7': b'\0\xff' * 9, '30': b'x'}
  assert dict(nodes.ask(requests, 5)) == {}
  assert grid.clock.now < 5  # an error is no silence
  with worker.listening(f'{tmp_path}/s/socket') as listener:
    answer = lambda request: b'<' + request
    serve = lambda: worker.serve(answer, listener)
    threading.Thread(target=serve, daemon=True).start()
    replies = dict(nodes.ask(requests, 5))
  assert replies == {'7': b'<' + b'\0\xff' * 9, '30': b'<x'}
  assert not list(nodes.ask({}, 5))


def test_a_request_on_its_way_is_not_sent_twice(grid, monkeypatch):
  """Catches a node that comes back to a queue of the rounds that it missed."""
  monkeypatch.setattr(flower.relay, 'ask', lambda request, timeout: request)
  nodes, requests = flower.SuperNodes(grid), {'7': b'a', '30': b'b'}
  grid.dead = {7}
  for _ in range(3):
    for site, reply in nodes.ask(requests, 60):
      assert (site, reply) == ('30', b'b')
      break  # nobody waits for the other
  assert grid.sent == [7, 30, 30, 30]
  grid.dead = set()
  assert dict(nodes.ask(requests, 60)) == requests
  assert grid.sent == [7, 30, 30, 30, 30]
  grid.dead = {7}
  before = grid.clock.now
  assert dict(nodes.ask({'7': b'a'}, 60)) == {}
  assert grid.clock.now == before + 60
  assert not list(nodes.ask({'7': b'a'}, 60))
  assert grid.sent[5:] == [7, 7]  # the time of the first one is over


def test_messages_that_are_not_of_the_app_are_empty(grid):
  """Catches a reply of another app that ends the run."""
  from flwr.app import ConfigRecord, Message, RecordDict

  for content in ({}, {'message': ConfigRecord({'message': 'x'})}):
    message = Message(RecordDict(content), 7, 'train')
    assert flower._body(message) == b''


def test_the_client_app_needs_no_jax(flwr, tmp_path):
  """Catches an import that every message of a site would wait for."""
  app = flower.deploy(CONFIG, tmp_path, 'runs/x')
  code = (
    'import sys, fl_sketch_run.client\n'
    'assert not {"jax", "fl_sketch.messaging", "tqdm"} & set(sys.modules)'
  )
  path = [str(app), *sys.path]
  command = [sys.executable, '-c', f'import sys; sys.path[:] = {path}\n{code}']
  subprocess.run(command, check=True)


@pytest.fixture
def federation(flwr, tmp_path):
  from flower_federation import Federation

  with Federation(tmp_path) as federation:
    federation.superlink()
    yield federation


@pytest.mark.long
def test_a_supernode_needs_a_registered_key_and_the_authority(federation):
  """Catches a SuperLink that lets in whoever reaches it."""
  from flower_federation import certificates, until

  f = federation
  f.make_key('stranger')
  f.register('known')
  f.supernode('known', authority=certificates(f.folder / 'other')[0])
  f.supernode('stranger')
  f.supernode('without a key')
  for name in list(f.processes)[1:]:
    until(lambda name=name: f.processes[name].poll() is not None)
    assert 'SuperNode ID' not in f.log(name)
  assert f.online() == 0
  f.supernode('known')
  until(lambda: f.online() == 1)
