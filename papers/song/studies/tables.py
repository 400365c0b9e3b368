"""Table 1 of Song et al., arXiv:2210.08371, measured."""

import functools

from fl_sketch import sketches

from ...common import pages, study, verdicts
from ...common.workspace import Fields, Workspace
from ..statements import lemmas
from . import runs


def table_1(ws: Workspace) -> study.Report:
  """The constants of every operator: printed, exact, measured."""
  dimension = ws.pick(64, 1024)
  sizes = ws.pick((16,), (16, 64, 256))
  draws = ws.pick(200, 2000, 10_000)
  rows, faults, refuted = [], 0, 0
  for name in _OPERATORS:
    for size in sizes:
      own = _operator(name, size)
      fields = {'operator': own, 'd': dimension, 'draws': draws}
      op = sketches.make(**own)
      compute = functools.partial(runs.verified, op, dimension, draws)
      report = ws.cached(f'song/table_1/{name}-{size}', fields, compute)
      moment = max(report['moments'], key=lambda row: row['measured'])
      printed = _printed(name, dimension, size)
      shown = printed, moment['exact'], moment['measured']
      interval = f'{moment["low"]:.3g} to {moment["high"]:.3g}'
      cells = map(pages.number, shown)
      rows.append([name, str(size), *cells, interval])
      faults += not report['ok']
      refuted += printed is not None and moment['low'] > printed
  claims = [
    verdicts.exact(
      'operators and sizes of which a promise of ours is refuted (false alarms '
      'below 1e-6 each)', faults, '<=', 0.0,
    ),
    verdicts.exact(
      'operators and sizes of which the printed constant is refuted (the same)',
      refuted, '<=', 0.0,
    ),
  ]  # fmt: skip
  head = 'operator', 'b', 'printed alpha', 'exact', 'measured', 'interval'
  caption = f'Second moments less one at d = {dimension:,}, {draws:,} draws'
  counts = {'ours refuted': faults, 'printed refuted': refuted}
  return study.Report(claims, counts, [study.Table(caption, head, rows)])


def _printed(name: str, dimension: int, size: int) -> float | None:
  """Returns the alpha of Table 1, which has no row for some operators."""
  family = name.removesuffix('_1').removesuffix('_2')
  if family not in lemmas.OPERATORS:
    return None
  return lemmas.alpha(family, dimension, size, form='printed')


# Those of Table 1, a Count Sketch being one table; and ours.
_OPERATORS = {
  'gaussian': {}, 'srht': {}, 'ams': {},
  'count_sketch': {'rows': 1, 'combine': 'mean'},
  'sparse_embedding_1': {'sparsity': 2}, 'sparse_embedding_2': {'sparsity': 2},
  'uniform_sampling': {}, 'block_cyclic': {},
}  # fmt: skip


def _operator(kind: str, size: int) -> Fields:
  name = 'cols' if kind == 'count_sketch' else 'size'
  return {'kind': kind, name: size, **_OPERATORS[kind]}
