"""EDEN both ways beside one-bit tables both ways, on both federations."""

from collections.abc import Callable
from typing import Any

from ..chen.studies.settings import ADAM
from ..common import registration, results, study as studies
from ..common.workspace import Workspace
from . import federations, study, tasks
from .methods import Method
from .tasks import Task

_TASKS: dict[str, Callable[[Workspace], Task]] = {
  'Federated-Clothes': tasks.clothes,
  'Federated-Digits': tasks.digits,
}


def _both_ways(task, share):
  codec = federations.eden(task, share)
  return {
    'algorithm': 'safl', **ADAM, 'sketch': {'kind': 'identity'},
    'codec': codec, 'downlink_codec': codec,
  }  # fmt: skip


_NAME = 'EDEN both ways'
_METHOD = Method(_both_ways, 'quantised', (0.01, 0.001))


def downlink(ws: Workspace) -> studies.Report:
  """Run the rival by the protocol of each federation, beside stored rows."""
  values: dict[str, Any] = {}
  seeds: dict[str, Any] = {}
  tables = []
  for of, make in _TASKS.items():
    task, r = make(ws), study.registered(ws, of)
    stored = results.read(results.STORED, of)
    assert stored is not None  # it is a part of the archive
    found: study.Records = {}
    for share in _METHOD.shares:
      row = found[_NAME, share] = study.play(ws, task, r, _METHOD, _NAME, share)
      title = f'{federations.BOTH_WAYS}, {share:g}'
      theirs = task.errors(stored['seeds'][title]['final'][: len(row.final)])
      above = 100 * (theirs / task.errors(row.final) - 1)
      values[f'{of}, {share:g}'] = above
      seeds[f'{of}, {share:g}'] = row._asdict()
    table = study.table(task, found)
    beside = [
      cells for cells in stored['tables'][0]['rows']
      if cells[0] in (federations.FEDADAM, federations.BOTH_WAYS)
    ]  # fmt: skip
    tables.append(table._replace(rows=[*table.rows, *beside]))
  study.keep_first(ws)
  own = registration.read('Federated-Downlink')
  claims = registration.claims(own, values)
  return studies.Report(claims, seeds, tables, notes=[_NOTE])


_NOTE = (
  'EDEN sends one bit of a part of the rotated numbers, each client under a '
  'hash of its own, and the server sends the mean likewise. Its rate is tuned '
  'and its seeds are as of the stored rows, which stand beside it.'
)
