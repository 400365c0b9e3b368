"""Flower: SuperNodes as sites, and an app that needs no JAX on their side.

Flower starts a process for every message at a site, which `relay`s it to the
site's worker. The server runs in Flower's ServerApp process. `deploy` writes
the app, `start` submits it.
"""

from collections.abc import Iterator, Mapping
import importlib
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
from typing import Any

from fl_sketch.sites import relay

_KIND = 'fl_sketch.wire'  # of the one array of a message
# For every process of Flower: nothing is sent to its makers, and a SuperNode
# looks for a new message's task at once. It sleeps 3 s between messages anyway.
ENVIRONMENT = {
  'FLWR_TELEMETRY_ENABLED': '0',
  'FLWR_DISABLE_UPDATE_CHECK': '1',
  'FLWR_SUPEREXEC_TASK_POLL_INTERVAL': '0.05',
}
_PYPROJECT = """\
[project]
name = "fl-sketch-run"
version = "1.0.0"
description = "Rounds of fl_sketch"
license = {{ text = "Apache-2.0" }}
dependencies = ["fl_sketch[flower]"]

[tool.flwr.app]
publisher = "fl-sketch"

[tool.flwr.app.components]
serverapp = "fl_sketch_run.server:app"
clientapp = "fl_sketch_run.client:app"

[tool.flwr.app.config]
{options}
"""
_MODULE = """\
from fl_sketch.sites import flower

app = flower.{}
"""
_FIRST, _MOST = 0.05, 0.5  # seconds between looks for replies: they grow
# The command `flwr` of this Python's environment, activated or not.
_FLWR = sys.executable, '-c', 'from flwr.cli.app import app; app()'


class SuperNodes:
  """The SuperNodes of a ServerApp's grid as sites, a `transport.Transport`."""

  def __init__(self, grid: Any):
    self._grid = grid
    # By site (request, Flower's id of it, when its time is over), not answered.
    self._open: dict[str, tuple[bytes, str, float]] = {}

  def sites(self) -> list[str]:
    """Return the connected nodes' ids, as text."""
    return sorted(map(str, self._grid.get_node_ids()))

  def ask(
    self, requests: Mapping[str, bytes], timeout: float
  ) -> Iterator[tuple[str, bytes]]:
    """Send each site its request; yield (site, reply) as they come.

    A request that the caller has left, and that is still on its way, is not
    sent twice: a SuperNode that comes back would answer each of them.
    """
    end, pause = time.monotonic() + timeout, _FIRST
    waiting = self._send(requests, timeout, end)
    while waiting:
      for reply in self._grid.pull_messages(list(waiting)):
        site = waiting.pop(reply.metadata.reply_to_message_id, None)
        if site is not None:
          del self._open[site]
          if not reply.has_error():
            yield site, _body(reply)
      left = end - time.monotonic()
      if not waiting or left <= 0:
        return
      time.sleep(min(pause, left))
      pause = min(1.5 * pause, _MOST)

  def _send(self, requests, timeout, end) -> dict[str, str]:
    """Send what is not on its way already; return {id: site} of all."""
    app = importlib.import_module('flwr.app')
    nothing, now = (b'', '', 0.0), time.monotonic()
    new = []
    for site, request in requests.items():
      body, _, until = self._open.get(site, nothing)
      if body != request or until <= now:
        self._open.pop(site, None)
        new.append(site)
    messages = [
      # After its time to live neither the request nor its reply is delivered.
      app.Message(_content(requests[x]), int(x), 'train', ttl=timeout)
      for x in new
    ]
    ids = self._grid.push_messages(messages) if messages else []
    # None is sent if it is too large; a node that has just gone gets no id.
    sent = zip(new, ids, strict=False)
    self._open |= {x: (requests[x], id_, end) for x, id_ in sent if id_}
    return {self._open[x][1]: x for x in requests if x in self._open}


def client_app() -> Any:
  """Return the `ClientApp` that relays messages to the site's worker.

  A worker that does not answer is an error reply: the site is absent.
  """
  make = importlib.import_module('flwr.app').Message
  app = importlib.import_module('flwr.clientapp').ClientApp()

  @app.train()
  def train(message, context):
    del context
    reply = relay.ask(_body(message), timeout=message.metadata.ttl)
    return make(_content(reply), reply_to=message)

  return app


def server_app(module: str) -> Any:
  """Return the `ServerApp` that trains the config.json beside a module.

  Its run config has workdir, data_dir and timeout; see `deploy`.
  """
  app = importlib.import_module('flwr.serverapp').ServerApp()

  @app.main()
  def main(grid, context):
    from fl_sketch.sites import federation

    threading.Thread(target=end_with_parent, daemon=True).start()
    options = dict(context.run_config)
    config = pathlib.Path(module).with_name('config.json')
    fields = json.loads(config.read_text(encoding='utf-8'))
    federation.run(fields, SuperNodes(grid), options.pop('workdir'), **options)

  return app


def end_with_parent(grace: float = 10.0) -> None:
  """End this process some seconds after the one that has started it.

  Flower sends it SIGINT when the SuperLink has gone, at which a run ends after
  its round; but calls to a SuperLink that has gone do not return.
  """
  parent = os.getppid()
  while os.getppid() == parent:
    time.sleep(_MOST)
  time.sleep(grace)
  os._exit(1)


def deploy(
  config: Mapping[str, Any],
  folder: str | os.PathLike,
  workdir: str | os.PathLike,
  **options: str | float | None,
) -> pathlib.Path:
  """Write the Flower app of a config's fields, for `flwr run` or `start`.

  The workdir is on the SuperLink's machine; options are further arguments of
  `federation.run`. Returns the folder.
  """
  app = pathlib.Path(folder)
  package = app / 'fl_sketch_run'
  package.mkdir(parents=True, exist_ok=True)
  values = {'workdir': os.path.abspath(workdir)} | options
  # The strings and numbers of JSON are those of TOML, which has no null.
  lines = '\n'.join(
    f'{k} = {json.dumps(v, ensure_ascii=False)}'
    for k, v in values.items() if v is not None
  )  # fmt: skip
  files = {
    app / 'pyproject.toml': _PYPROJECT.format(options=lines),
    package / '__init__.py': '',
    package / 'client.py': _MODULE.format('client_app()'),
    package / 'server.py': _MODULE.format('server_app(__file__)'),
    package / 'config.json': json.dumps(dict(config), indent=2),
  }
  for path, text in files.items():
    path.write_text(text, encoding='utf-8')
  return app


def start(folder: str | os.PathLike, superlink: str, *options: str) -> None:
  """Run the app of a folder on a SuperLink and show its log, until it ends.

  The run does not end with this process; started again it resumes. `superlink`
  is the name of a connection in the config.toml of FLWR_HOME; options are those
  of `flwr run`. ConnectionError: it is not known, not reached, or the run
  failed.
  """
  from fl_sketch.utils import extras  # not in a process for one message

  with extras.needed('flower'):
    importlib.import_module('flwr')
  run = _flwr_json('run', os.fspath(folder), superlink, *options)['run-id']
  _flwr('log', run, superlink)
  (ended,) = _flwr_json('list', superlink, '--run-id', run)['runs']
  if ended['status'] != 'finished:completed':
    raise ConnectionError(
      f'Run {run} on {superlink} is {ended["status"]}: '
      f'{ended["status-details"]}. Its log is above; start it again.'
    )


def _flwr(*command: str, **options: Any) -> Any:
  environment = os.environ | ENVIRONMENT
  return subprocess.run([*_FLWR, *command], env=environment, **options)


def _flwr_json(*command: str) -> Any:
  done = _flwr(*command, '--format', 'json', stdout=subprocess.PIPE, check=True)
  answer = json.loads(done.stdout)
  if not answer['success']:
    message = ' '.join(answer['error-message'].split())
    raise ConnectionError(f'Flower: {message}')
  return answer


def _content(body: bytes) -> Any:
  app = importlib.import_module('flwr.app')
  array = app.Array('uint8', (len(body),), _KIND, body)
  return app.RecordDict({'message': app.ArrayRecord({'message': array})})


def _body(message: Any) -> bytes:
  return message.content.array_records['message']['message'].data
