"""Flower: SuperNodes as sites, and an app that needs no JAX on their side.

Flower starts a process for every message at a site, so its client application
only hands the message to the site's resident worker (`relay`). The server runs
in Flower's ServerApp process. `deploy` writes the app, `start` submits it.
"""

from collections.abc import Iterator, Mapping
import json
import os
import pathlib
import subprocess
import time
from typing import Any

from fl_sketch.engines import relay
from fl_sketch.utils import extras

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
_CLIENT = """\
from fl_sketch.engines import flower

app = flower.client_app()
"""
_SERVER = """\
from fl_sketch.engines import flower

app = flower.server_app(__file__)
"""


class SuperNodes:
  """The connected SuperNodes as sites; a `transport.Transport`.

  A site that has cost a whole timeout is asked again, but the others' replies
  are waited for at most twice as long as they take: Flower says only after a
  minute that a SuperNode is gone.

  Args:
    grid: Flower's, of the ServerApp.
    first: seconds before replies are looked for again, at first; they grow.
    most: the longest.
  """

  def __init__(self, grid: Any, first: float = 0.05, most: float = 0.5):
    self._grid, self._first, self._most = grid, first, most
    self._silent: set[str] = set()

  def sites(self) -> list[str]:
    """The connected nodes' ids, as text."""
    return sorted(map(str, self._grid.get_node_ids()))

  def ask(
    self, requests: Mapping[str, bytes], timeout: float
  ) -> Iterator[tuple[str, bytes]]:
    """Send each site its request; yield (site, reply) as they come."""
    from flwr.app import Message, MessageType

    start, pause = time.monotonic(), self._first
    end = start + timeout
    sent = [
      # After its time to live neither the request nor its reply is delivered.
      Message(_content(body), int(site), MessageType.TRAIN, ttl=timeout)
      for site, body in requests.items()
    ]
    ids = self._grid.push_messages(sent) if sent else []
    # A node that has just gone has no id.
    waiting = {id_: site for id_, site in zip(ids, requests, strict=True) if id_}
    while waiting:
      for reply in self._grid.pull_messages(list(waiting)):
        site = waiting.pop(reply.metadata.reply_to_message_id, None)
        if site is not None and not reply.has_error():
          self._silent.discard(site)
          yield site, _body(reply)
      now = time.monotonic()
      if self._silent.issuperset(waiting.values()) and len(requests) > len(waiting):
        end = min(end, 2 * now - start)
      if now >= end:
        break
      time.sleep(min(pause, end - now))
      pause = min(1.5 * pause, self._most)
    self._silent.update(waiting.values())


def client_app() -> Any:
  """Return the `ClientApp` that relays messages to the site's worker.

  A worker that does not answer is an error reply: the site is absent.
  """
  from flwr.app import Message
  from flwr.clientapp import ClientApp

  app = ClientApp()

  @app.train()
  def train(message, context):
    del context
    reply = relay.ask(_body(message), timeout=message.metadata.ttl)
    return Message(_content(reply), reply_to=message)

  return app


def server_app(module: str) -> Any:
  """Return the `ServerApp` that trains the config.json beside a module.

  Its run config has workdir, data_dir and timeout; see `deploy`.
  """
  from flwr.serverapp import ServerApp

  app = ServerApp()

  @app.main()
  def main(grid, context):
    from fl_sketch.engines import server

    options = dict(context.run_config)
    config = pathlib.Path(module).with_name('config.json')
    fields = json.loads(config.read_text(encoding='utf-8'))
    folder = options.pop('workdir')
    server.run(fields, SuperNodes(grid), folder, **options)

  return app


def deploy(
  config: Mapping[str, Any],
  folder: str | os.PathLike,
  workdir: str | os.PathLike,
  **options: str | float,
) -> pathlib.Path:
  """Write the Flower app of a config.

  Args:
    config: fields, as JSON has them.
    folder: of the app.
    workdir: of the run, on the SuperLink's machine.
    **options: further arguments of `server.run`.

  Returns:
    The folder, for `flwr run FOLDER` or `start`.
  """
  app, here = pathlib.Path(folder), pathlib.Path(workdir).absolute()
  package = app / 'fl_sketch_run'
  package.mkdir(parents=True, exist_ok=True)
  values = {'workdir': str(here)} | options
  # The strings and numbers of JSON are those of TOML.
  lines = '\n'.join(f'{k} = {json.dumps(v)}' for k, v in values.items())
  files = {
    app / 'pyproject.toml': _PYPROJECT.format(options=lines),
    package / '__init__.py': '',
    package / 'client.py': _CLIENT,
    package / 'server.py': _SERVER,
    package / 'config.json': json.dumps(dict(config), indent=2),
  }
  for path, text in files.items():
    path.write_text(text, encoding='utf-8')
  return app


def _content(body: bytes) -> Any:
  from flwr.app import Array, ArrayRecord, RecordDict

  array = Array('uint8', (len(body),), _KIND, body)
  return RecordDict({'message': ArrayRecord({'message': array})})


def _body(message: Any) -> bytes:
  return message.content['message']['message'].data
