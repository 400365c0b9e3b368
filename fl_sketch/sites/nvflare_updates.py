"""Compressed updates in an NVFlare job of any framework.

``compress(recipe, 'eden(bits=2)')`` adds the filter of this module to a recipe,
for both directions on both sides. A job's JSON names it in `task_data_filters`
and `task_result_filters` of server and clients, with the same options.
"""

from collections.abc import Sequence
import copy
import importlib
import importlib.util
import threading
from typing import Any
import zlib

from fl_sketch.sites import traffic
from fl_sketch.sites.numpy_following import (
  Follower,
  Publisher,
  difference,
  moved,
  nbytes,
)
from fl_sketch.sites.sealed import PayloadError
from fl_sketch.utils import extras
import numpy as np

_Filter: Any = object  # this module is read where NVFlare is not, too
if importlib.util.find_spec('nvflare') is not None:
  _Filter = importlib.import_module('nvflare.apis.dxo_filter').DXOFilter
_END, _VERSION = 'fl_sketch.end', 'fl_sketch.version'  # in NVFlare's contexts
_OURS, _NOISE, _TORCH = 'fl_sketch.messages', 'noise', 'torch'  # of a DXO
_LOCK = threading.Lock()  # a server has a thread for each client


def compress(
  recipe: Any, compressor: str, *, tasks: Sequence[str] = ('train',),
  **options: Any,
):  # fmt: skip
  """Compress the models of a recipe's tasks, as `ModelCompressor` does.

  All sites have fl_sketch installed: the job does not bring it.
  """
  job = recipe._job
  job.set_app_packages([*job.job.app_packages, 'fl_sketch'])
  for add in (
    recipe.add_server_output_filter, recipe.add_client_input_filter,
    recipe.add_client_output_filter, recipe.add_server_input_filter,
  ):  # fmt: skip
    add(ModelCompressor(compressor, **options), tasks=[*tasks])


class ModelCompressor(_Filter):
  """Compresses models that leave a process, and restores those that come.

  Models of kind WEIGHTS are sent as differences: the server's to what a client
  has, a client's to what it got. WEIGHT_DIFF of clients are compressed as they
  are. Values are arrays of NumPy or tensors of PyTorch.

  Args:
    compressor, down, seed: as of `numpy_following.Publisher`.
    report: as of `traffic.Traffic`, written by the server.
  """

  def __init__(
    self, compressor: str, down: str | None = None, seed: int = 0,
    report: str | None = None,
  ):  # fmt: skip
    with extras.needed('nvflare'):
      dxo = importlib.import_module('nvflare.apis.dxo')
      constant = importlib.import_module('nvflare.apis.fl_constant')
      event = importlib.import_module('nvflare.apis.event_type')
      filters = importlib.import_module('nvflare.apis.filter')
    kinds = [dxo.DataKind.WEIGHTS, dxo.DataKind.WEIGHT_DIFF]
    super().__init__(supported_data_kinds=kinds, data_kinds_to_filter=kinds)
    self._dxo, self._constant, self._filters = dxo, constant, filters
    self._end_run = event.EventType.END_RUN
    self.compressor, self.down, self.seed = compressor, down, seed
    self.report = report
    self._made(Publisher)  # raises what is wrong

  def process(self, shareable: Any, fl_ctx: Any) -> Any:
    """Filter a message, as of `Filter`; it stays as it is for other clients."""
    return super().process(copy.copy(shareable), fl_ctx)

  def process_dxo(self, dxo: Any, shareable: Any, fl_ctx: Any) -> Any:
    """Compress or restore a model, as of `DXOFilter`.

    PayloadError: it is damaged, of another compressor, was not compressed, or
    is one of several in a message.
    """
    collection = self._dxo.DataKind.COLLECTION
    if self._dxo.from_shareable(shareable).data_kind == collection:
      raise PayloadError('A collection of models cannot be compressed.')
    direction = fl_ctx.get_prop(self._constant.FLContextKey.FILTER_DIRECTION)
    is_sent = direction == self._constant.FilterKey.OUT
    if not is_sent and _OURS not in dxo.data:
      raise PayloadError(
        f'{_peer(fl_ctx)} sent a model that is not compressed: its job needs '
        'the filter ModelCompressor, too.'
      )
    with _LOCK:
      end = self._end(is_sent, fl_ctx)
      try:
        if isinstance(end, _Server):
          data = (end.send if is_sent else end.read)(dxo, fl_ctx)
        else:
          data = (_reply if is_sent else _receive)(end, dxo, fl_ctx)
      except PayloadError as e:
        raise PayloadError(f'A message of {_peer(fl_ctx)}: {e}') from e
    # NVFlare adds the history of the old DXO to that of the new one, and
    # clients of a broadcast share the metadata.
    history = self._dxo.MetaKey.FILTER_HISTORY
    meta = {k: x for k, x in dxo.meta.items() if k != history}
    return self._dxo.DXO(dxo.data_kind, data, meta)

  def _end(self, is_sent, fl_ctx):
    """Return what all filters of a side share, made by its first message."""
    options = self.compressor, self.down, self.seed
    of, end = fl_ctx.get_prop(_END, (options, None))
    if of != options:
      raise PayloadError(
        f'The filters of one side must have the same options: {of}, {options}.'
      )
    if end is None:
      chain = self.get_prop(self._filters.FilterContextKey.CHAIN_TYPE)
      tasks = self._filters.FilterChainType.TASK_DATA_CHAIN
      if is_sent == (chain == tasks):
        end = _Server(self._made(Publisher), self.report)
      elif not is_sent:
        end = self._made(Follower)
      else:
        raise PayloadError('The server has sent no model, to which to compare.')
      fl_ctx.set_prop(_END, (options, end), private=True, sticky=True)
    return end

  def handle_event(self, event_type: str, fl_ctx: Any):
    """Tell of the last round when the job ends, as of `FLComponent`."""
    _, end = fl_ctx.get_prop(_END, (None, None))
    if event_type == self._end_run and isinstance(end, _Server):
      end.traffic.close()

  def _made(self, end):
    return end(self.compressor, down=self.down, seed=self.seed)


class _Server:
  """A publisher, and what its clients have."""

  def __init__(self, publisher, report):
    self._publisher, self.traffic = publisher, traffic.Traffic(report)
    self._sent: dict[str, int] = {}  # versions by client

  def send(self, dxo, fl_ctx):
    arrays, kinds = _to_numpy(dxo.data)
    publisher, client = self._publisher, _peer(fl_ctx)
    before = publisher.version
    publisher.publish(arrays)
    if -1 < before < publisher.version:
      self.traffic.close()
    # A client that begins again says another version, or none.
    known = fl_ctx.get_peer_context().get_prop(_VERSION, -1)
    known = known if known == self._sent.get(client) else -1
    self._sent[client] = publisher.version
    messages = publisher.messages(known)
    size = sum(map(len, messages))
    self.traffic.add('down', nbytes(dxo.data), size, publisher.noise)
    return {_OURS: messages, _TORCH: kinds}

  def read(self, dxo, fl_ctx):
    (message,) = dxo.data[_OURS]
    arrays = self._publisher.read(message)
    if dxo.data_kind == 'WEIGHTS':
      arrays = moved(self._publisher.model, arrays)
    data, noise = _restored(arrays, dxo.data[_TORCH]), dxo.data[_NOISE]
    self.traffic.add('up', nbytes(data), len(message), noise)
    return data


def _receive(follower, dxo, fl_ctx):
  arrays = follower.receive(dxo.data[_OURS])
  fl_ctx.set_prop(_VERSION, follower.version, private=False, sticky=True)
  return _restored(arrays, dxo.data[_TORCH])


def _reply(follower, dxo, fl_ctx):
  by, kinds = _to_numpy(dxo.data)
  if dxo.data_kind == 'WEIGHTS':
    by = difference(by, follower.arrays)
  sender = zlib.crc32(fl_ctx.get_identity_name().encode())
  message = follower.reply(by, sender=sender)
  return {_OURS: [message], _NOISE: follower.noise, _TORCH: kinds}


def _peer(fl_ctx) -> str:
  return fl_ctx.get_peer_context().get_identity_name()


def _to_numpy(data) -> tuple[dict[str, np.ndarray], dict[str, str]]:
  """Return the arrays of a model, and the dtypes of tensors of PyTorch."""
  data, kinds = dict(data), {}
  for k, x in data.items():
    if hasattr(x, 'detach'):
      kinds[k] = str(x.dtype).removeprefix('torch.')
      x = x.detach().cpu()
      is_half = x.is_floating_point() and x.element_size() < 4
      data[k] = x.float() if is_half else x  # NumPy lacks bfloat16
  return {k: np.asarray(x) for k, x in data.items()}, kinds


def _restored(arrays, kinds):
  arrays = {k: np.array(x) for k, x in arrays.items()}  # trainers write to it
  if kinds:
    torch = importlib.import_module('torch')
    for k, kind in kinds.items():
      arrays[k] = torch.from_numpy(arrays[k]).to(getattr(torch, kind))
  return arrays
