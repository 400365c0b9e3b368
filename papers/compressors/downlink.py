"""EDEN both ways beside one-bit tables both ways, on both federations."""

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


_NAME = 'EDEN both ways'
_METHOD = Method(_both_ways, 'quantised', (0.01, 0.001))


def downlink(ws: Workspace) -> studies.Report:
  """Run the rival by the protocol of each federation, beside stored rows."""
  values: dict[str, Any] = {}
  seeds: dict[str, Any] = {}
  tables = []
  for benchmark in (BENCHMARKS['clothes'], BENCHMARKS['digits']):
    of, task = benchmark.study, benchmark.task(ws)
    r = study.registered(ws, of)
    stored = results.read(results.STORED, of)
    assert stored is not None  # it is a part of the archive
    found: study.Records = {}
    for share in _METHOD.shares:
      row = found[_NAME, share] = study.play(ws, task, r, _METHOD, _NAME, share)
      title = study.title((federations.BOTH_WAYS, share))
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
