"""Experiments of the project itself: accuracy against bytes, narrow tables."""

from typing import Any

from fl_sketch.reporting import figures

from ..common import lab as lab_lib, study, summaries

Fields = dict[str, Any]
_SEEDS = range(5)
_TUNED_ON = 100  # a seed that is not reported
_ADAM = {'server_optimizer': 'adam', 'b2': 0.99, 'final_server_lr': 1e-5}
_ADAM_RATES = {'server_lr': (0.003, 0.01, 0.03)}
_RATES = {'server_lr': (0.3, 1.0, 3.0)}


def _cyclic(floats: int) -> Fields:
  return {'sketch': {'kind': 'block_cyclic', 'size': floats}}


# Method -> family, config fields and rates that are tuned.
METHODS: dict[str, tuple[str, Fields, Fields]] = {
  'FedAvg': ('dense', {'algorithm': 'fedavg'}, _RATES),
  'FedAdam': ('dense', {'algorithm': 'fedavg', **_ADAM}, _ADAM_RATES),
  'SAFL, d / 12': (
    'safl', {'algorithm': 'safl', **_cyclic(5142), **_ADAM}, _ADAM_RATES,
  ),
  'SAFL, d / 100': (
    'safl', {'algorithm': 'safl', **_cyclic(617), **_ADAM}, _ADAM_RATES,
  ),
  'FedSKETCH-PRIVIX, d / 12': (
    'fedsketch',
    {
      'algorithm': 'fedsketch_privix',
      'sketch': {'kind': 'count_sketch', 'rows': 50, 'cols': 100},
    },
    _RATES,
  ),
}  # fmt: skip
MNIST = {
  'dataset': 'mnist', 'model': 'lenet5', 'population': 50, 'cohort': 25,
  'rounds': 300, 'local_steps': 5, 'batch_size': 32, 'client_lr': 0.05,
  'eval_every': 20, 'checkpoint_every': 300,
}  # fmt: skip
_DIGITS = {
  'dataset': 'digits', 'model_options': {'widths': (64,)}, 'population': 40,
  'cohort': 20, 'local_steps': 5, 'batch_size': 16,
}  # fmt: skip
_QUICK = _DIGITS | {
  'model_options': {'widths': (128,)},
  'rounds': 4,
  'eval_every': 2,
}


def bytes_to_accuracy(lab: lab_lib.Lab) -> study.Report:
  """Measures test accuracy against bytes, of LeNet-5 on MNIST."""
  lines, rows, seeds = [], [], {}
  for i, (name, (family, *method)) in enumerate(METHODS.items()):
    runs, rate = _raced(lab, f'project/bytes/{i}', *method)
    accuracy = [100 * run.final() for run in runs]
    look = {'family': family, 'variant': i % 2}
    cell = lab_lib.shown(accuracy, digits=2)
    lines += summaries.against_bytes(name, runs, accuracy, digits=2, **look)
    spent = float(lines[-1].x[-1])
    _, low, high = summaries.interval(accuracy)
    sent = {way: runs[0].row[f'{way}link_bytes'] for way in ('up', 'down')}
    rows.append([
      name, cell, f'{low:.2f} to {high:.2f}',
      *(f'{size:,.0f}' for size in sent.values()), f'{spent:,.1f}',
      f'{rate:g}',
    ])  # fmt: skip
    seeds[name] = {'%': accuracy, 'MB': spent, 'server_lr': rate, **sent}
  labels = figures.MEGABYTES, 'test accuracy, %'
  limits = lab.pick(None, (90.0, 99.5))
  panel = figures.Panel(*labels, lines, x_scale='log', y_limits=limits)
  table = study.Table(_CAPTION, _HEAD, rows)
  picture = study.Picture(_PICTURE, [panel])
  return study.Report([], seeds, [table], [picture], [_SETTING])


def _raced(
  lab: lab_lib.Lab, folder: str, fields: Fields, grid: Fields
) -> tuple[list[lab_lib.Run], float]:
  """Tunes the server rate; returns runs over seeds at the best, and it."""
  fields = lab.pick(_QUICK, MNIST) | fields
  rates = {k: v[1] for k, v in grid.items()}
  if lab.scale != 'quick':
    tuning = {'seed': _TUNED_ON, 'eval_every': fields['rounds']}
    rates = lab.tune(
      f'{folder}/tune', fields | tuning, grid, lab_lib.training_score
    )
  seeds = lab.pick((0,), tuple(_SEEDS))
  runs = lab.sweep(
    f'{folder}/race', fields | rates | {'sweep': {'seed': seeds}}
  )
  return runs, rates['server_lr']


_HEAD = (
  'method', 'test accuracy, %', '95 % interval', 'bytes up', 'bytes down',
  'MB in all', 'server rate',
)  # fmt: skip
_CAPTION = (
  'Bytes of one client in one round, and of all clients in all rounds, up and '
  'down; means over seeds ± standard errors.'
)
_PICTURE = (
  'Test accuracy against the bytes of all clients, up and down; means over '
  'seeds with intervals of 95 %.'
)
_SETTING = (
  'LeNet-5 with 61,706 parameters, 50 clients with equal iid shares, 25 a '
  'round, 300 rounds of 5 local steps of batch 32 at the client rate 0.05. '
  'Every method has three server rates, half a decade apart, and further ones '
  'while the best is at an edge; that with the least training loss on seed 100 '
  'runs on seeds 0 to 4. FedAdam and SAFL have a cosine to 1e-5, the others '
  'constant rates. The whole test set is evaluated.'
)


PRECISIONS: dict[str, Fields] = {
  'float32': {},
  'bfloat16': {'codec': {'kind': 'bfloat16'}},
  'int8, a scale for 256': {'codec': {'kind': 'int8'}},
  'int4, two a byte, a scale for 64': {'codec': {'kind': 'int4'}},
  'float32, compute_dtype bfloat16': {'compute_dtype': 'bfloat16'},
}
QUICKSTART = _DIGITS | {
  'rounds': 300, 'client_lr': 0.3, 'algorithm': 'safl', **_cyclic(301),
  'server_lr': 0.02, **_ADAM, 'rounds_per_dispatch': 10,
}  # fmt: skip


def precisions(lab: lab_lib.Lab) -> study.Report:
  """Measures test accuracy with tables of fewer bits, on the digits."""
  rounds = lab.pick({'rounds': 20}, {})
  rows, seeds = [], {}
  for i, (name, fields) in enumerate(PRECISIONS.items()):
    sweep = {'sweep': {'seed': lab.pick((0,), tuple(_SEEDS))}}
    fields = QUICKSTART | fields | rounds | sweep
    runs = lab.sweep(f'project/precision/{i}', fields)
    seeds[name] = [100 * run.final() for run in runs]
    up = runs[0].row['uplink_bytes']
    rows.append([name, f'{up:,.0f}', lab_lib.shown(seeds[name], digits=2)])
  head = 'tables', 'bytes up', 'test accuracy, %'
  caption = 'Bytes of one client in one round; seeds 0 to 4 ± standard errors.'
  note = 'The setting of configs/quickstart.py: SAFL, tables of 301 numbers.'
  return study.Report(
    [], seeds, [study.Table(caption, head, rows)], notes=[note]
  )
