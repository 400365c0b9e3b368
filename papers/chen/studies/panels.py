"""Figures 1, 2, 3 and 6 of Chen et al. at their registered cells.

Cells are (method, share of d that a client sends in a round).
"""

from collections.abc import Callable, Iterable, Mapping
import itertools
from typing import Any

import numpy as np

from ...common import comparison, registration, study, verdicts
from ...common.comparison import Comparison, Entry
from ...common.workspace import Workspace
from . import methods, report, settings

FEEDBACK = 'fetchsgd', 'cocktail_sgd', 'cd_adam'  # and bytes as they are told
_PLAIN = 'fetchsgd', 'marina', 'cocktail_sgd'  # rates not of an adaptive server
_BASELINES = {*methods.METHODS} - {'safl', 'fedadam'}
_RATES = (
  'Rates are those with the least training loss after all rounds on a seed of '
  'their own. A client sends as many bytes with every method, but for 1-bit '
  "Adam, whole in its first fifth and then d / 32, and MARINA's first, whole "
  'gradient; the paper has CocktailSGD at 1 % in every panel. MARINA has '
  'momentum on its server. Five clients take one step a round, at constant '
  'rates. A run that diverged counts as guessing. All test data are evaluated.'
)
_TEXT = (
  'The paper trains a BERT. Here it is an encoder of width 64 that nothing has '
  'trained before, on the 6,920 sentences of SST-2, cut to 32 tokens.'
)
_IMAGES = (
  'The paper trains a ResNet-101. Here it is a ResNet-8 on 10,000 images of '
  'CIFAR-10.'
)
_BEFORE = (
  'The paper fine-tunes a ViT-B/16 with published weights. Here a transformer '
  'of width 64 is trained by dense Adam on 20,000 images of CIFAR-10, its head '
  'is drawn anew, and it is trained on 10,000 others.'
)
_SIZES = (
  'Convergence is a training loss, mean of the last 20 rounds, of at most 80 % '
  'of the first; nine tenths of its own fall are a rate. Both are bars of the '
  'project. Each size has its own best rate.'
)
_QUICK = {
  'rounds': 20, 'evaluations': 2, 'adaptive': [0.003], 'plain': [0.03],
  'seeds': [1, 2],
}  # fmt: skip


def figure_3(ws: Workspace) -> study.Report:
  """An encoder on sentences: baselines, and sizes of tables."""
  return _figure(ws, 'S4-Fig3', 'text', _encoder_values, _RATES, _TEXT)


def encoder_sizes(ws: Workspace) -> study.Report:
  """An encoder on sentences with tables down to 20 numbers."""
  return _figure(ws, 'S4-Encoder', 'text', _convergence, _SIZES, _TEXT)


def resnet(ws: Workspace) -> study.Report:
  """A ResNet from scratch: baselines, and tables down to 20 numbers."""
  notes = _RATES, _IMAGES, _SIZES
  return _figure(ws, 'S4-ResNet', 'resnet', _resnet_values, *notes)


def transformer(ws: Workspace) -> study.Report:
  """A vision transformer, trained before: three panels of baselines."""
  return _figure(ws, 'S4-ViT', 'vit', _vit_values, _RATES, _BEFORE)


def _figure(ws: Workspace, name: str, model: str, values_of, *notes):
  r = registration.read(name)
  if ws.scale == 'quick':
    r |= _QUICK
  setting = settings.learning_setting(ws, model, r)
  entries = play(ws, setting, r, cells(r))
  sized = {k: e for k, e in entries.items() if k[0] in ('safl', 'fedadam')}
  sized = dict(sorted(sized.items(), key=lambda item: item[0][1]))
  guessing = 50.0 if model == 'text' else 10.0
  values = values_of(_Values(entries, sized, guessing))
  return study.Report(
    registration.claims(r, values),
    report.seeds(entries),
    [report.table(setting, entries, 'Rates of the server, or of clients')],
    [study.Picture(study.MEANS, report.panels(entries, sized))],
    notes,
  )


def cells(r: Mapping[str, Any]) -> list[tuple[str, float]]:
  """Methods with the shares of d that they send; rivals where it has panels."""
  names = [n for n in methods.METHODS if n not in (*methods.WHOLE, 'safl')]
  whole = methods.WHOLE if r['panels'] else ['fedadam']
  of_safl = [('safl', share) for share in r['sizes']]
  rivals = [(n, x) for x in r['panels'] for n in names]
  return [*of_safl, *((name, 1.0) for name in whole), *rivals]


def play(
  ws: Workspace,
  setting: settings.LearningSetting,
  r: Mapping[str, Any],
  keys: Iterable[tuple[str, float]],
) -> dict[tuple[str, float], Entry]:
  """Tunes cells and runs them over the registered seeds."""
  entries = {}
  trials = {'seed': r['tuning_seed'], 'eval_every': r['rounds']}
  for name, share in keys:
    fields = methods.method(setting, name, share)
    grid = {methods.rate(name): r['plain' if name in _PLAIN else 'adaptive']}
    folder = f'{setting.name}/{{}}/{name}-{share:g}'
    entries[name, share] = comparison.run(
      ws, folder, fields, grid, r['seeds'], trials=trials
    )
  return entries


class _Values:
  """What claims compare: numbers of every seed, by what they are of."""

  def __init__(self, entries: Comparison, sized: Comparison, guessing: float):
    self.entries, self.guessing = entries, guessing
    self.sized = {f'{share:g} d': e for (_, share), e in sized.items()}

  def accuracy(self, entry: Entry) -> np.ndarray:
    """Last test accuracy in per cent; that of guessing if it diverged."""
    return np.nan_to_num(entry.accuracy, nan=self.guessing)

  def mean_accuracy(self, entry: Entry) -> np.ndarray:
    """The same, mean over all evaluations, which the last 0 of a list are."""
    every = entry.final(last=0, scale=100)
    return np.nan_to_num(every, nan=self.guessing)

  def lead(
    self, shares: Iterable[float], names: Iterable[str], of: Any = None
  ) -> dict[str, np.ndarray]:
    """A number of SAFL less that of baselines, at each share of d."""
    of = of or self.accuracy
    return {
      f'{name} at {share:g} d': of(self.entries['safl', share]) - of(e)
      for share in shares
      for (name, x), e in self.entries.items()
      if name in names and x in (share, 1.0)
    }

  def apart(self, share: float, name: str) -> list[np.ndarray]:
    """SAFL's accuracy less that of a baseline, both ways."""
    (lead,) = self.lead([share], [name]).values()
    return [*verdicts.both_ways(lead)]

  def behind(self, shares: Iterable[float], names: Iterable[str]) -> Any:
    """Accuracy of methods above that of SAFL, at these shares."""
    return {k: -x for k, x in self.lead(shares, names).items()}

  def behind_dense(self, *shares: float) -> Any:
    """Accuracy of dense Adam above that of SAFL at these shares."""
    dense = self.accuracy(self.entries['fedadam', 1.0])
    of = lambda x: self.accuracy(self.entries['safl', x])
    return {f'{share:g} d': dense - of(share) for share in shares}

  def steps(self, of: Callable[[Entry], np.ndarray], first: int = 0) -> Any:
    """A number with a table less that with the next larger one."""
    sizes = [*self.sized.items()][first:]
    pairs = itertools.pairwise(sizes)
    return {f'{a} and {b}': of(x) - of(y) for (a, x), (b, y) in pairs}


def _encoder_values(v: _Values) -> dict[str, Any]:
  left, middle = 2e-3, 2e-2
  mean_loss = lambda entry: entry.final('train_loss', last=0)
  every_size = v.behind_dense(2e-4, left, middle)
  return {
    'faster': v.lead([left], _BASELINES, v.mean_accuracy),
    'better': v.lead([left], _BASELINES),
    'better at equal bytes': v.lead([left], _BASELINES - {'onebit_adam'}),
    'level': v.apart(middle, 'cocktail_sgd'),
    'above others': v.lead([middle], _BASELINES - {'cocktail_sgd'}),
    'competitive': v.behind([left, middle], FEEDBACK),
    'larger': v.steps(mean_loss),
    'comparable': every_size,
    'smallest': every_size['0.0002 d'],
  }


def _resnet_values(v: _Values) -> dict[str, Any]:
  names = 'fetchsgd', 'marina', 'cocktail_sgd', 'cd_adam', 'onebit_adam'
  smallest, *larger = [v.accuracy(e) for e in [*v.sized.values()][1:]]
  error = lambda entry: 100 - v.accuracy(entry)
  return {
    **{f'above {name}': v.lead([0.01], [name]) for name in names},
    'alike': v.apart(0.1, 'marina'),
    'above fetchsgd, 10 %': v.lead([0.1], ['fetchsgd']),
    'above cd_adam, 10 %': v.lead([0.1], ['cd_adam']),
    'above the curves, 10 %': v.lead([0.1], ['onebit_adam', 'cocktail_sgd']),
    'smallest best': [smallest - x for x in larger],
    'in order': v.steps(error, first=1),
    'training': v.steps(lambda entry: entry.loss, first=1),
    'comparable': v.behind_dense(0.1),
    'competitive': v.behind([0.01, 0.1], FEEDBACK),
    'faster': v.lead([0.01, 0.1], _BASELINES, v.mean_accuracy),
    **_convergence(v),
    'accuracy by size': v.steps(error),
  }


def _vit_values(v: _Values) -> dict[str, Any]:
  shares = {'0.1 %': 0.001, '1 %': 0.01, '10 %': 0.1}
  return {
    **{f'best, {k}': v.lead([x], _BASELINES) for k, x in shares.items()},
    'competitive': v.behind(shares.values(), FEEDBACK),
    'comparable': v.behind_dense(*shares.values()),
  }


def _convergence(v: _Values) -> dict[str, Any]:
  """Falls of the training loss at every size of table, dense Adam apart."""
  tables = {k: e for k, e in v.sized.items() if k != '1 d'}
  rounds = {k: [report.plateau(x) for x in e.runs] for k, e in tables.items()}
  first = lambda run: run.curve('train_loss')[1][0]
  return {
    'converges': {
      k: e.loss / [first(run) for run in e.runs] for k, e in tables.items()
    },
    'as fast': {
      f'{a} over {b}': np.divide(rounds[a], rounds[b])
      for a, b in itertools.permutations(rounds, 2)
    },
  }
