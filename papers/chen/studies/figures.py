"""Figures 1, 2 and 6 of Chen et al.: methods, and sizes of tables."""

import itertools

import numpy as np

from ...common import comparison, study, verdicts
from ...common.workspace import Workspace
from . import methods, report, settings

RATES = (
  'Every method has seven learning rates at each number of floats, and further '
  'ones while the best is at an edge; that with the least training loss after '
  f'all rounds of seed 0 runs on seeds 1 to {methods.SEEDS}. Methods send d / '
  '100 or d / 10 floats a round in the mean; FedAdam sends whole updates, and '
  '1-bit Adam whole gradients in its first fifth and then d / 32. At cpu scale '
  'all take one step a round and client, so that none has more steps than '
  'another, and rates are constant, where the paper has a cosine to 1e-5.'
)
SUBSTITUTES = (
  'The paper trains a ResNet-101 and fine-tunes a ViT-B/16 with published '
  'weights. At cpu scale these are a ResNet-8 and a ViT of width 64 on 10,000 '
  'training images of CIFAR-10. The first 2,000 test images are evaluated: the '
  'binomial error of an accuracy, 1.1 points, is common to all seeds and not '
  'in the intervals.'
)
_BASELINES = tuple(n for n in methods.METHODS if n not in ('fedadam', 'safl'))
_CAPTION = (
  'Test accuracy against the bytes of all clients, and SAFL by the size of its '
  'tables. Means over seeds with intervals of 95 %.'
)
_TINY = (
  'Each size has its own best rate. At gpu scale the paper has BERT as well, '
  'which is not here.'
)
_WINS = (
  'test accuracy of SAFL at d / 100 above that of {} at the same bytes, points'
)


def figure_1(ws: Workspace) -> study.Report:
  """Reproduces Figure 1: a ResNet, methods at equal bytes, table sizes."""
  setting, ours = settings.resnet(ws), ('safl', methods.SHARE)
  entries = report.compared(ws, setting)
  sized = report.sizes(ws, setting, (0.001, 0.01, 0.1, 1.0))
  pairs = itertools.pairwise(sized.items())
  points = sized['fedadam', 1.0].accuracy - sized['safl', 0.1].accuracy
  claims = [
    verdicts.of_seeds(
      'last training loss with a table above that with the next larger one',
      {f'{a[1]:g} d': x.loss - y.loss for (a, x), (_, y) in pairs}, '>=', 0.0,
    ),
    *(
      comparison.above(_WINS.format(key[0]), entries[ours], entries[key])
      for key in entries
      if key[0] in _BASELINES and key[1] == methods.SHARE
    ),
    verdicts.of_seeds(
      'test accuracy of dense Adam and of SAFL at d / 10: points apart',
      verdicts.both_ways(points), '<=', 2.0,
    ),
  ]  # fmt: skip
  lowest = (
    'That the test error is least at the smallest tables is not asked for.'
  )
  return _report(setting, claims, entries, sized, RATES, SUBSTITUTES, lowest)


def figure_2(ws: Workspace) -> study.Report:
  """A vision transformer, trained before on other images."""
  setting = settings.vit(ws)
  entries = report.compared(ws, setting)
  sized = report.sizes(ws, setting, (0.001, 0.01, 0.1, 1.0))
  ours = entries['safl', methods.SHARE]
  above = {
    name: entry.accuracy - ours.accuracy
    for (name, share), entry in entries.items()
    if name in _BASELINES and share in (methods.SHARE, 1.0)
  }
  text = 'test error of SAFL at d / 100 above that of each baseline, points'
  claim = verdicts.of_seeds(text, above, '<=', 0.5)
  before = (
    'The transformer was trained by dense Adam on other images of CIFAR-10, at '
    'cpu scale 20,000; its head is drawn anew before it is fine-tuned.'
  )
  return _report(setting, [claim], entries, sized, RATES, SUBSTITUTES, before)


def figure_6(ws: Workspace) -> study.Report:
  """Reproduces Figure 6: tiny tables learn as fast to a lower plateau."""
  setting = settings.resnet(ws)
  tables = ws.pick((50, 500), (20, 200, 2000), (400, 4000, 40_000, 400_000))
  shares = [floats / setting.dimension for floats in tables]
  sized = report.sizes(ws, setting, shares)
  tiniest = next(iter(sized.values()))
  first = [run.curve('train_loss')[1][0] for run in tiniest.runs]
  falls = [[report.plateau(run) for run in e.runs] for e in sized.values()]
  accuracies = [entry.accuracy for entry in sized.values()]
  claims = [
    verdicts.of_seeds(
      f'last training loss over that of the first round, b = {tables[0]:,}',
      tiniest.loss / first, '<=', 0.8,
    ),
    verdicts.of_seeds(
      'rounds to nine tenths of the fall of the training loss, of a size over '
      'another',
      {
        f'b = {a:,} over {b:,}': np.divide(x, y)
        for (a, x), (b, y) in itertools.permutations(
          zip(tables, falls, strict=True), 2
        )
      },
      '<=', 2.0,
    ),
    verdicts.of_seeds(
      'gain of test accuracy from a size to the next, points',
      np.diff(accuracies, axis=0), '>=', 0.0,
    ),
  ]  # fmt: skip
  return _report(setting, claims, {}, sized, SUBSTITUTES, _TINY)


def _report(setting, claims, entries, sized, *notes) -> study.Report:
  every = entries | sized
  tables = [report.table(setting, every, setting.name)]
  pictures = [study.Picture(_CAPTION, report.panels(entries, sized))]
  return study.Report(claims, report.seeds(every), tables, pictures, notes)
