"""Table 1 of Chen et al., arXiv:2411.06770."""

from fl_sketch import algorithms
from fl_sketch.utils import markdown

from ...common import study, verdicts
from ...common.workspace import Workspace
from ..statements import corollaries as chen_corollaries


def table_1(ws: Workspace) -> study.Report:
  """Bits, rates and convergence as printed, beside bytes that are counted."""
  dimension, size = 42_000_000, 400_000
  text = chen_corollaries.comparison(dimension, size, rounds=600, clients=5)
  head, *rows = markdown.cells(text)
  # Of one client, in the round that differs from the first if any.
  counted = {
    name: float(algorithms.measure(kind).up[-1])
    for name, kind in _COUNTED.items()
  }
  ws.configs['chen/bytes'] = {'d': 1000, **_COUNTED}
  claims = [
    verdicts.exact(
      'bytes that a SAFL client sends in a round over 4 b',
      counted['SAFL'] / 400, '<=', 1.0,
    ),
    verdicts.exact(
      'bytes of 1-bit Adam after its warm-up over d bits',
      counted['1-bit Adam'] / 125, '<=', 1.05,
    ),
  ]  # fmt: skip
  caption = f'd = {dimension:,}, b = {size:,}, T = 600, C = 5; constants are 1'
  of_bytes = (
    'Bytes up of a client in its last round, counted from what is sent: '
    'd = 1,000, options as algorithms.describe has them'
  )
  measured = [[name, f'{number:,.0f}'] for name, number in counted.items()]
  tables = [
    study.Table(caption, head, rows),
    study.Table(of_bytes, ('method', 'bytes'), measured),
  ]
  note = (
    'Rates are those that the papers state, with their logarithms and '
    'constants at 1: they order methods and predict nothing.'
  )
  return study.Report(claims, counted, tables, notes=[note])


_COUNTED = {
  'FetchSGD': 'fetchsgd', 'CocktailSGD': 'cocktail_sgd', 'CD-Adam': 'cd_adam',
  '1-bit Adam': 'onebit_adam', 'MARINA': 'marina', 'SAFL': 'safl',
}  # fmt: skip
