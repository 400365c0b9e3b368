"""EDEN both ways beside one-bit tables both ways, and FetchSGD's rows again."""

from typing import Any

from ..chen.studies.settings import ADAM
from ..common import registration, results, study as studies
from ..common.workspace import Workspace
from . import federations, study, workers
from .methods import Method
from .own import BENCHMARKS


def _both_ways(task, share):
  codec = federations.eden(task, share)
  return ADAM | workers.in_bits(codec)(task, share)


_NAME, _AGAIN, _SHARES = 'EDEN both ways', 'FetchSGD', (0.01, 0.001)
_METHODS = {
  _NAME: Method(_both_ways, 'quantised', _SHARES),
  _AGAIN: federations.METHODS[_AGAIN]._replace(shares=_SHARES),
}


def downlink(ws: Workspace) -> studies.Report:
  """Run the rivals by the protocol of each federation, beside stored rows."""
  values: dict[str, Any] = {}
  seeds: dict[str, Any] = {}
  tables = []
  for benchmark in (BENCHMARKS['clothes'], BENCHMARKS['digits']):
    of, task = benchmark.study, benchmark.task(ws)
    r = study.registered(ws, of)
    stored = results.read(results.STORED, of)
    assert stored is not None  # it is a part of the archive
    found: study.Records = {}
    for name, method in _METHODS.items():
      for share in method.shares:
        row = study.play(ws, task, r, method, name, share)
        found[name, share] = row
        seeds[f'{of}, {study.title((name, share))}'] = row._asdict()
    for share in _SHARES:
      error = task.errors(found[_NAME, share].final)
      title = study.title((federations.BOTH_WAYS, share))
      theirs = task.errors(stored['seeds'][title]['final'][: len(error)])
      values[f'{of}, {share:g}'] = 100 * (theirs / error - 1)
    table = study.table(task, found)
    beside = [
      cells for cells in stored['tables'][0]['rows']
      if cells[0] in (federations.FEDADAM, federations.BOTH_WAYS)
    ]  # fmt: skip
    if ws.scale != 'quick':  # rows of other data
      table = table._replace(rows=[*table.rows, *beside])
    tables.append(table)
  study.keep_first(ws)
  own = registration.read('Federated-Downlink')
  claims = registration.claims(own, values)
  return studies.Report(claims, seeds, tables, notes=[_NOTE])


_NOTE = (
  'EDEN sends one bit of a part of the rotated numbers, each client under a '
  'hash of its own, and the server sends the mean likewise. Its rate is tuned '
  'and its seeds are as of the stored rows, which stand beside it; their way '
  'back has the EDEN of that time, which rotated the whole vector. FetchSGD '
  'runs again as lower rates were not tried for it where all first ones '
  'diverged.'
)
