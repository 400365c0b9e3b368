"""A method of your own beside the stored ones, by the same protocol."""

from collections.abc import Callable, Mapping, Sequence
import hashlib
import pathlib
from typing import Any, NamedTuple

from fl_sketch import codecs, runs, sketches
from fl_sketch.rounds import comms, mesh
from fl_sketch.runs import plan
from fl_sketch.sites.programs import Programs
from fl_sketch.utils import plugins
import jax
import numpy as np

from ..chen.studies.settings import ADAM
from ..common import comparison, results, study as studies, verdicts
from ..common.workspace import Fields, Workspace
from . import federations, study, tasks, workers
from .methods import Method
from .tasks import Task

OWN = 'own'


class Benchmark(NamedTuple):
  """A study whose stored table a method enters."""

  study: str
  task: Callable[[Workspace], Task]
  methods: Mapping[str, Method]
  sending: Callable[[Fields], Method]  # from what is sent


def _adaptive(sent: Fields) -> Method:
  return Method(lambda *_: ADAM | sent, OWN)


def _muloco(sent: Fields) -> Method:
  fields = workers.muloco(lambda *_: sent)
  return Method(fields, OWN, rates='muon', tuned='client_lr')


BENCHMARKS = {
  'clothes': Benchmark(
    'Federated-Clothes', tasks.clothes, federations.METHODS, _adaptive
  ),
  'digits': Benchmark(
    'Federated-Digits', tasks.digits, federations.ON_DIGITS, _adaptive
  ),
  'characters': Benchmark(
    'Workers-Characters', tasks.characters, workers.METHODS, _muloco
  ),
}


def load(text: str, of: Benchmark) -> tuple[Method, float, Sequence[float]]:
  """Make a method of a stored row's name, a compressor or a Python file.

  Returns it with its share of a dense update's bytes, and the rates that its
  file names. SAFL sends tables of a sketch, and updates go through a codec: in
  federations with Adam on the server, between workers in MuLoCo. A file may
  register parts of its own; its function `fields` returns fields of a config
  from the number of parameters. It may name the rate that is tuned, TUNED, and
  the RATES that are tried first.

  Raises ValueError if the text names nothing, or the file lacks `fields`.

  >>> method, share, _ = load('eden(bits=2)', BENCHMARKS['clothes'])
  >>> method.fields(None, share)['algorithm'], method.rates
  ('fedcom', 'adaptive')
  """
  rows = {
    study.title((n, x)): (m, x, ())
    for n, m in of.methods.items()
    for x in m.shares
  }
  if text in rows:
    return rows[text]
  if text.endswith('.py'):
    return _of_file(text, of)
  kind = text.partition('(')[0]
  if kind in sketches.names():
    return of.sending({'algorithm': 'safl', 'sketch': text}), 1.0, ()
  if kind in codecs.REGISTRY.names():
    return of.sending({'algorithm': 'fedcom', 'codec': text}), 1.0, ()
  known = ', '.join([*sketches.names(), *codecs.REGISTRY.names()])
  raise ValueError(
    f'{text!r} is neither FILE.py, nor a row of {of.study}, nor one of {known}.'
  )


def _of_file(text: str, of: Benchmark) -> tuple[Method, float, Sequence[float]]:
  module, named = plugins.load(text), str(pathlib.Path(text).resolve())
  if not callable(getattr(module, 'fields', None)):
    raise ValueError(f'{text} has no function fields(dimension).')
  plain = of.sending({})
  made = plain._replace(
    fields=lambda task, _: (
      module.fields(task.dimension) | {'plugins': (named,)}
    ),
    tuned=getattr(module, 'TUNED', plain.tuned),
  )
  rates = getattr(module, 'RATES', ())
  are_rates = isinstance(rates, list | tuple) and all(
    isinstance(x, int | float) and x > 0 for x in rates
  )
  if not are_rates:
    raise ValueError(f'{text}: {rates=} must be a list of positive numbers.')
  return made, 1.0, rates


def page_of(name: str, text: str) -> str:
  """Return the name of the page of a method on a task.

  >>> page_of('digits', 'runs/mine.py'), page_of('digits', 'EDEN, 0.01')
  ('digits-mine', 'digits-eden__0_01')
  """
  path = pathlib.Path(text)
  method = path.stem if path.suffix == '.py' else comparison.slug(text)
  return f'{name}-{method}'


def report(
  ws: Workspace, text: str, name: str, repetitions: int
) -> studies.Report:
  """Tunes and runs a method like the stored ones of a task, and compares it.

  The table has its row beside theirs. Claims: its error above that of the best
  dense method, and above those of stored methods with at most 1.1 times its
  bytes, paired by seed.
  """
  of = BENCHMARKS[name]
  (method, share, rates), task = load(text, of), of.task(ws)
  r = study.registered(ws, of.study)
  if rates:
    r[method.rates] = list(rates)
  r['repetitions'] = min(repetitions, r['repetitions'])
  # Another version of a file must not go on with the runs of an older one.
  code = pathlib.Path(text).read_bytes() if text.endswith('.py') else b''
  version = hashlib.sha256(code).hexdigest()[:8]
  made = study.play(ws, task, r, method, f'own/{text}-{version}', share)
  share = float(f'{made.up / task.dense_bytes:.2g}')
  table, seeds = study.table(task, {(text, share): made}), made._asdict()
  stored = results.read(results.STORED, of.study)
  if stored is None or ws.scale == 'quick':
    return studies.Report([], {text: seeds}, [table])
  beside = stored['tables'][0]['rows']
  fewer = table.head.index('times fewer')
  by_bytes = lambda cells: -float(cells[fewer].replace(',', ''))
  table = table._replace(rows=sorted([*table.rows, *beside], key=by_bytes))
  dense = [cells[0] for cells in beside if cells[1] == '1']
  claims = _claims(task, text, made, stored['seeds'], dense)
  return studies.Report(claims, {text: seeds}, [table])


def check(ws: Workspace, text: str, name: str) -> None:
  """Refuse a method that cannot be built on a task, or bills too little.

  ValueError, or what its file raises.
  """
  of = BENCHMARKS[name]
  (method, share, _), task = load(text, of), of.task(ws)
  rate = {method.tuned: 0.01}
  fields = task.fields | method.fields(task, share) | rate
  check_bill(runs.build(fields, ws.data_dir))


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
    if stored[name]['up'] + stored[name]['down'] <= most and name != text
  }  # fmt: skip
  what = f'error of {text} above that of'
  of_dense = f'{what} the best dense method, per cent'
  of_rivals = f'{what} stored methods with as few bytes, per cent'
  return [
    verdicts.of_seeds(of_dense, above(best), '<=', study.MARGIN),
    verdicts.of_seeds(of_rivals, rivals, '<=', 0.0),
  ]
