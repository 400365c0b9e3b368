"""Compressed updates in a Flower job of any framework.

In the ServerApp ``strategy.start(grid=CompressedGrid(grid, 'eden(bits=2)'),
...)``, in the ClientApp ``ClientApp(mods=[compressed('eden(bits=2)')])``. A
strategy and a client see models as before, with the noise of the compressor.
"""

from collections.abc import Callable, Iterable
import importlib
import pathlib
import secrets
from typing import Any

from fl_sketch.sites import traffic
from fl_sketch.sites.numpy_following import (
  Follower,
  Publisher,
  difference,
  moved,
  nbytes,
)
from fl_sketch.sites.sealed import PayloadError
from fl_sketch.utils import extras, progress
import numpy as np

_OURS = 'fl_sketch.updates'  # the record with our messages
# A client's records, for each publisher.
_KEPT = 'fl_sketch.version', 'fl_sketch.model', 'fl_sketch.memory'


def _read(record: Any) -> dict[str, np.ndarray]:
  return {name: array.numpy() for name, array in record.items()}


class CompressedGrid:
  """A `flwr.serverapp.Grid` whose messages travel compressed, both ways.

  A message has a model in the record `arrays`; other records travel as they
  are, and so do models that differ from the first of their exchange. A client
  that lacks the last model gets it whole.

  Args:
    grid: of the ServerApp.
    compressor, down, seed: as of `numpy_following.Publisher`.
    arrays: the name of the record.
    report: as of `traffic.Traffic`.
  """

  def __init__(
    self, grid: Any, compressor: str, *, down: str | None = None, seed: int = 0,
    arrays: str = 'arrays', report: pathlib.Path | str | None = None,
  ):  # fmt: skip
    with extras.needed('flower'):
      app = importlib.import_module('flwr.app')
    self._app, self._grid, self._arrays = app, grid, arrays
    self._publisher = Publisher(compressor, down=down, seed=seed)
    self._name = secrets.token_hex(8)  # an app may have several
    self._known: dict[int, int] = {}  # versions by client
    self._traffic = traffic.Traffic(report)

  def __getattr__(self, name: str) -> Any:
    return getattr(self._grid, name)

  def send_and_receive(
    self, messages: Iterable[Any], *, timeout: float | None = None
  ) -> list[Any]:
    """Send messages, return replies, as of `Grid`.

    A reply that is damaged or not compressed becomes an error of its client.
    """
    messages, sent, first = [*messages], [], None
    for message in messages:
      model = message.content.array_records.get(self._arrays)
      if model is None:
        continue
      if first is None:
        first = model
        self._publisher.publish(_read(model))
      if model == first:  # often the same record
        self._compress(message)
        sent.append(message)
    replies = [*self._grid.send_and_receive(messages, timeout=timeout)]
    sent = {x.metadata.message_id: x for x in sent}  # which the grid has set
    for i, reply in enumerate(replies):
      if message := sent.get(reply.metadata.reply_to_message_id):
        node = message.metadata.dst_node_id
        try:
          self._decompress(reply, node)
        except PayloadError as e:
          progress.note(f'The reply of client {node} is refused. {e}')
          error = self._app.Error(0, str(e))
          replies[i] = self._app.Message(error, reply_to=message)
    self._traffic.close()
    return replies

  def _compress(self, message):
    """Replace the model of a message by the messages that its client lacks."""
    content, publisher = message.content, self._publisher
    node = message.metadata.dst_node_id
    parts = publisher.messages(self._known.get(node, -1))
    whole, size = nbytes(publisher.arrays), sum(map(len, parts))
    self._traffic.add('down', whole, size, publisher.noise)
    # What is sent to others stays as it is: messages may share records.
    others = {k: x for k, x in content.items() if k != self._arrays}
    ours = self._app.ConfigRecord({
      'messages': parts, 'arrays': self._arrays, 'version': publisher.version,
      'publisher': self._name,
    })  # fmt: skip
    message.content = self._app.RecordDict(others | {_OURS: ours})

  def _decompress(self, reply, node):
    if reply.has_error():  # it may have lost its model
      self._known.pop(node, None)
      return
    if (ours := reply.content.pop(_OURS, None)) is None:
      raise PayloadError('Its ClientApp needs the mod `compressed`.')
    publisher = self._publisher
    messages, noise = ours.get('messages'), ours.get('noise')
    is_list = isinstance(messages, list)
    are_bytes = is_list and all(isinstance(x, bytes) for x in messages)
    if not (are_bytes and isinstance(noise, float)):
      raise PayloadError('Its record of messages is malformed.')
    for message in messages:
      arrays = moved(publisher.model, publisher.read(message))
      self._traffic.add('up', nbytes(arrays), len(message), noise)
      arrays = {k: self._app.Array(x) for k, x in arrays.items()}
      reply.content[self._arrays] = self._app.ArrayRecord(arrays)
    self._known[node] = publisher.version


def compressed(
  compressor: str, *, down: str | None = None, seed: int = 0
) -> Callable[..., Any]:
  """Build the mod of a ClientApp whose ServerApp has a `CompressedGrid`.

  The arguments are those of the grid. What a client follows, and has not sent,
  is in its context. An update that does not fit is an error reply; then the
  model comes whole.
  """
  with extras.needed('flower'):
    app = importlib.import_module('flwr.app')
  record = lambda arrays: app.ArrayRecord(
    {k: app.Array(x) for k, x in arrays.items()}
  )

  def mod(message, context, call_next):
    if (ours := message.content.pop(_OURS, None)) is None:
      return call_next(message, context)
    follower = Follower(compressor, down=down, seed=seed)
    state, name = context.state, ours['arrays']
    version, kept, memory = (f'{x}.{ours["publisher"]}' for x in _KEPT)
    if kept in state:
      follower.arrays = _read(state[kept])
      follower.version = state[version]['version']
    if memory in state:
      follower.up.memory = _read(state[memory])
    model = follower.receive(ours['messages'], ours['version'])
    state[kept] = record(model)
    state[version] = app.ConfigRecord({'version': follower.version})
    message.content[name] = record(model)
    reply = call_next(message, context)
    if reply.has_error():
      return reply
    messages = []
    if (trained := reply.content.pop(name, None)) is not None:
      sender = context.node_id & 0xFFFFFFFF
      by = difference(_read(trained), model)
      messages.append(follower.reply(by, sender=sender))
      if follower.up.memory:
        state[memory] = record(follower.up.memory)
    fields = {'messages': messages, 'noise': follower.noise}
    reply.content[_OURS] = app.ConfigRecord(fields)
    return reply

  return mod
