"""The headline of Chen et al.: dense accuracy with 99 % less uplink."""

import math

import numpy as np

from ...common import comparison, study, verdicts
from ...common.workspace import Workspace
from . import figures, methods, report, settings

_TRIED = (
  'What was tried, one seed: SAFL at d / 100 over four times the rounds; '
  'momentum in place of Adam, dense, the best of five rates from 0.01 to 1. '
  'Test accuracy, %'
)
_TRIED_HEAD = (
  'setting', 'SAFL, 4 x rounds', "its share of FedAdam's bytes",
  'dense momentum', 'FedAdam',
)  # fmt: skip
_POINT = (
  '{}: test accuracy of dense FedAdam above that of SAFL with 99 % less '
  'uplink, points'
)
_CENSORED = (
  'All methods have the same number of rounds, and SAFL does not get there in '
  'them. It needs more than it has sent by then, which is less than what the '
  'others need.'
)


def headline(ws: Workspace) -> study.Report:
  """SAFL at d / 100 is within a point of dense Adam, first to 95 % of it."""
  claims, seeds, tables, pictures, tried = [], {}, [], [], []
  for name, make in settings.SETTINGS.items():
    setting = make(ws)
    entries = report.compared(ws, setting)
    dense, safl = entries['fedadam', 1.0], entries['safl', methods.SHARE]
    target = 0.95 * float(dense.final(last=2).mean())
    # Infinite if not reached.
    uplinks = {
      who: [run.reaches(target) for run in entry.runs]
      for who, entry in entries.items()
    }
    claims.append(comparison.above(_POINT.format(name), dense, safl, '<=', 1.0))
    claims.append(_bytes(name, uplinks))
    seeds[name] = report.seeds(entries)
    tables.append(_table(name, uplinks, target))
    tables.append(report.table(setting, entries, name))
    caption = f'{name}: test accuracy against the bytes of all clients'
    pictures.append(study.Picture(caption, report.panels(entries, {})))
    tried.append([name, *_tried(ws, setting, dense, safl)])
  tables.append(study.Table(_TRIED, _TRIED_HEAD, tried))
  notes = figures.RATES, figures.SUBSTITUTES
  return study.Report(claims, seeds, tables, pictures, notes)


def _tried(ws, setting, dense, safl) -> list[str]:
  """Accuracies of a longer run, of momentum and of Adam; bytes of the first."""
  longer = methods.longer(ws, setting, safl)
  momentum = methods.momentum(ws, setting)
  total = lambda run: run.row['total_uplink_bytes']
  return [
    f'{100 * longer.final(last=2):.1f}',
    f'{total(longer) / total(dense.runs[0]):.3f}',
    f'{100 * momentum.final(last=2):.1f}',
    f'{dense.accuracy.mean():.1f}',
  ]


def _bytes(name, uplinks) -> verdicts.Claim:
  """Claims that SAFL reaches 95 % with fewest bytes, at its better share."""
  of_all = {key: sum(by_seed) for key, by_seed in uplinks.items()}
  ours = min((k for k in uplinks if k[0] == 'safl'), key=of_all.__getitem__)
  text = (
    f"{name}: uplink of SAFL to 95 % of FedAdam's accuracy, at the better of "
    'd / 100 and d / 10, over that of each other method'
  )
  if not math.isfinite(of_all[ours]):
    return verdicts.untestable(text, '<=', 1.0, _CENSORED)
  ratios = {
    f'{who}, {share:g} d': np.divide(uplinks[ours], by_seed)
    for (who, share), by_seed in uplinks.items()
    if who != 'safl' and math.isfinite(of_all[who, share])
  }
  return verdicts.of_seeds(text, ratios, '<=', 1.0)


def _table(name, uplinks, target) -> study.Table:
  caption = f"{name}: uplink of all clients until 95 % of FedAdam's accuracy"
  rows = [
    [who, f'{share:g}', ', '.join(map(_megabytes, by_seed))]
    for (who, share), by_seed in uplinks.items()
  ]
  head = 'method', 'share of d', 'MB, of each seed'
  return study.Table(f'{caption}, {100 * target:.1f} %', head, rows)


def _megabytes(uplink: float) -> str:
  return f'{uplink / 1e6:,.3f}' if math.isfinite(uplink) else 'not reached'
