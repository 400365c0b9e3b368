"""Tables in fewer bits, on the digits."""

from ..common import comparison, study
from ..common.workspace import Fields, Workspace

_SEEDS = range(5)
PRECISIONS: dict[str, Fields] = {
  'float32': {},
  'bfloat16': {'codec': {'kind': 'bfloat16'}},
  'int8, a scale for 256': {'codec': {'kind': 'int8'}},
  'int4, two a byte, a scale for 64': {'codec': {'kind': 'int4'}},
  'float32, compute_dtype bfloat16': {'compute_dtype': 'bfloat16'},
}
QUICKSTART = {
  'dataset': 'digits', 'model_options': {'widths': (64,)}, 'population': 40,
  'cohort': 20, 'local_steps': 5, 'batch_size': 16, 'rounds': 300,
  'client_lr': 0.3, 'algorithm': 'safl',
  'sketch': {'kind': 'block_cyclic', 'size': 301}, 'server_lr': 0.02,
  'server_optimizer': 'adam', 'b2': 0.99, 'final_server_lr': 1e-5,
  'rounds_per_dispatch': 10,
}  # fmt: skip


def precisions(ws: Workspace) -> study.Report:
  """Measures test accuracy with tables of fewer bits, on the digits."""
  base = QUICKSTART | ws.pick({'rounds': 20}, {})
  seeds = ws.pick((0,), _SEEDS)
  entries = {
    name: comparison.run(
      ws, f'project/precision/{i}', base | fields, {}, seeds, rates={}
    )
    for i, (name, fields) in enumerate(PRECISIONS.items())
  }
  accuracies = {name: e.final(scale=100) for name, e in entries.items()}
  caption = 'Bytes of one client in one round; seeds 0 to 4 ± standard errors.'
  note = 'The setting of configs/quickstart.py: SAFL, tables of 301 numbers.'
  tables = [comparison.table(caption, entries, _COLUMNS)]
  return study.Report([], accuracies, tables, notes=[note])


_COLUMNS = {
  'tables': lambda name, _: name,
  'bytes up': lambda _, e: f'{e.runs[0].row["uplink_bytes"]:,.0f}',
  'test accuracy, %': comparison.shown(2, lambda e: e.final(scale=100)),
}
