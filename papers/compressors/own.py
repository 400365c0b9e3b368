"""A method of your own beside the stored ones, by the same protocol."""

from collections.abc import Mapping, Sequence
import hashlib
import pathlib
from typing import Any

from fl_sketch import codecs, runs, sketches
from fl_sketch.rounds import comms, mesh
from fl_sketch.runs import plan
from fl_sketch.sites.programs import Programs
from fl_sketch.utils import plugins
import jax
import numpy as np

from ..chen.studies.settings import ADAM
from ..common import results, study as studies, verdicts
from ..common.workspace import Workspace
from . import study
from .methods import Method
from .tasks import TASKS, Task

_RATES = (0.003, 0.01, 0.03)  # of the server
_OWN = 'own'


def load(text: str) -> tuple[Method, tuple[float, ...]]:
  """Make a method, and its first rates, of a compressor or a Python file.

  SAFL sends tables of a sketch; the updates of clients go through a codec. Both
  have Adam on the server. A file may register parts of its own; its function
  `fields` returns fields of a config from the number of parameters. It may name
  the rate that is tuned, TUNED, and the RATES that are tried first.

  Raises ValueError if the text names nothing, or the file lacks `fields`.

  >>> method, rates = load('eden(bits=2)')
  >>> method.fields(None, 1.0)['algorithm'], rates
  ('fedcom', (0.003, 0.01, 0.03))
  """
  if text.endswith('.py'):
    module, named = plugins.load(text), str(pathlib.Path(text).resolve())
    if not callable(getattr(module, 'fields', None)):
      raise ValueError(f'{text} has no function fields(dimension).')
    own = {'plugins': (named,)}
    fields = lambda task, _: module.fields(task.dimension) | own
    tuned = getattr(module, 'TUNED', 'server_lr')
    rates = tuple(getattr(module, 'RATES', _RATES))
    return Method(fields, _OWN, rates=_OWN, tuned=tuned), rates
  kind = text.partition('(')[0]
  if kind in sketches.names():
    sent = {'algorithm': 'safl', 'sketch': text}
  elif kind in codecs.REGISTRY.names():
    sent = {'algorithm': 'fedcom', 'codec': text}
  else:
    known = ', '.join([*sketches.names(), *codecs.REGISTRY.names()])
    raise ValueError(f'{text!r} is neither FILE.py nor one of {known}.')
  return Method(lambda *_: ADAM | sent, _OWN, rates=_OWN), _RATES


def _name_of(task: str) -> str:
  return f'Federated-{task.capitalize()}'


def report(
  ws: Workspace, text: str, name: str, repetitions: int
) -> studies.Report:
  """Tunes and runs a method like the stored ones of a task, and compares it.

  The table has its row beside theirs. Claims: its error above that of the best
  dense method, and above those of stored methods with at most 1.1 times its
  bytes, paired by seed.
  """
  (method, rates), task = load(text), TASKS[name](ws)
  check_bill(runs.build(task.fields | method.fields(task, 1.0), ws.data_dir))
  r = study.registered(ws, _name_of(name)) | {_OWN: rates}
  r['repetitions'] = min(repetitions, r['repetitions'])
  # Another version of a file must not go on with the runs of an older one.
  code = pathlib.Path(text).read_bytes() if text.endswith('.py') else b''
  version = hashlib.sha256(code).hexdigest()[:8]
  made = study.play(ws, task, r, method, f'own/{text}-{version}', 1.0)
  share = float(f'{made.up / task.dense_bytes:.2g}')
  table, seeds = study.table(task, {(text, share): made}), made._asdict()
  stored = results.read(results.STORED, _name_of(name))
  if stored is None or ws.scale == 'quick':
    return studies.Report([], {text: seeds}, [table])
  beside = stored['tables'][0]['rows']
  fewer = table.head.index('times fewer')
  by_bytes = lambda cells: -float(cells[fewer].replace(',', ''))
  table = table._replace(rows=sorted([*table.rows, *beside], key=by_bytes))
  dense = [cells[0] for cells in beside if cells[1] == '1']
  claims = _claims(task, text, made, stored['seeds'], dense)
  return studies.Report(claims, {text: seeds}, [table])


def check_bill(exp: runs.Experiment) -> None:
  """Refuses a method whose messages have more bytes than its bill.

  They are those that real sites and their server would send in the first round.
  ValueError has both numbers.
  """
  key = jax.random.key(0)
  sites = Programs(exp.make, exp.hyper, exp.params, key, exp.schedule)
  facts = sites.facts(sites.first(exp.params))
  exchanges = sites.shapes(facts)
  announced = [facts.without(x) for e in exchanges for x in e.announcements]
  up = sum(comms.nbytes(e.payload) for e in exchanges)
  sent = up, comms.nbytes(announced)
  bills = plan.wire(exp, mesh.cohort_mesh())
  for way, size, (billed, *_) in zip(('up', 'down'), sent, bills, strict=True):
    if size > billed:
      raise ValueError(
        f'The algorithm sends {size:,} bytes {way} in a round, and bills '
        f'{billed:,}; every exchange must return its bill.'
      )


def _claims(
  task: Task,
  text: str,
  made: study.Record,
  stored: Mapping[str, Any],
  dense: Sequence[str],
) -> list[verdicts.Claim]:
  """Errors in per cent above those of stored methods, some of them dense."""
  error = task.errors(made.final)
  theirs = {
    name: task.errors(one['final'][: len(error)])
    for name, one in stored.items()
  }
  above = lambda x: 100 * (error / x - 1)
  best = min((theirs[x] for x in dense), key=np.mean)
  most = 1.1 * made.total
  rivals = {
    name: above(x) for name, x in theirs.items()
    if stored[name]['up'] + stored[name]['down'] <= most
  }  # fmt: skip
  what = f'error of {text} above that of'
  of_dense = f'{what} the best dense method, per cent'
  of_rivals = f'{what} stored methods with as few bytes, per cent'
  return [
    verdicts.of_seeds(of_dense, above(best), '<=', study.MARGIN),
    verdicts.of_seeds(of_rivals, rivals, '<=', 0.0),
  ]
