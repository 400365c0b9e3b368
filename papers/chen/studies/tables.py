"""Table 1 of Chen et al., arXiv:2411.06770."""

from fl_sketch import algorithms, codecs, sketches
from fl_sketch.utils import markdown
import jax
import jax.numpy as jnp
import numpy as np

from ...common import programs, study, verdicts
from ...common.workspace import Workspace
from ..statements import corollaries as chen_corollaries


def table_1(ws: Workspace) -> study.Report:
  """Bits, rates and convergence as printed, beside bytes that are counted."""
  dimension, size = 42_000_000, 400_000
  text = chen_corollaries.comparison(dimension, size, rounds=600, clients=5)
  head, *rows = markdown.cells(text)
  counted = {name: _fewest_bytes(kind) for name, kind in _COUNTED.items()}
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
    'd = 1,000, options as in the reference of algorithms'
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


def _fewest_bytes(kind: str) -> float:
  """Returns a client's least uplink, in bytes, of 16 rounds of 8 clients."""
  loss_fn = lambda w, batch: jnp.sum((w[None] - batch) ** 2)
  make = algorithms.make(kind, loss_fn, **_OPTIONS[kind])
  rate = jnp.float32(0.1)
  hp = algorithms.Hyper(rate, rate)
  batches = np.random.default_rng(0).standard_normal((8, 1, 1, 1000))
  begin = programs.everybody(make, 8)
  state, step = begin(hp, jax.random.key(0), jnp.zeros(1000))
  step, sizes = jax.jit(step), []
  for _ in range(16):
    state, metrics = step(state, batches.astype(np.float32))
    sizes.append(float(metrics['uplink_bytes']))
  return min(sizes)


_COUNTED = {
  'FetchSGD': 'fetchsgd', 'CocktailSGD': 'cocktail_sgd', 'CD-Adam': 'cd_adam',
  '1-bit Adam': 'onebit_adam', 'MARINA': 'marina', 'SAFL': 'safl',
}  # fmt: skip
_OPTIONS = {
  'fetchsgd': {'sketch': sketches.count_sketch(5, 20), 'k': 10},
  'cocktail_sgd': {'codec': codecs.quantized_top_k(10, 4, 10),
    'mask_ratio': 0.1},
  'cd_adam': {'codec': codecs.top_k(10), 'population': 8},
  'onebit_adam': {'warmup': 2},
  'marina': {'codec': codecs.rand_k(10), 'sync_probability': 0.1},
  'safl': {'sketch': sketches.block_cyclic(100)},
}  # fmt: skip
