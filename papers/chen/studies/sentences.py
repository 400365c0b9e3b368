"""Figure 3 of Chen et al.: an encoder on sentences, at its registered cells."""

from collections.abc import Iterable, Mapping
import itertools
from typing import Any

import numpy as np

from ...common import comparison, registration, study, verdicts
from ...common.comparison import Comparison, Entry
from ...common.workspace import Workspace
from . import methods, report, settings

FEEDBACK = 'fetchsgd', 'cocktail_sgd', 'cd_adam'  # and bytes as they are told
_NOTES = (
  'Rates are those with the least training loss after all rounds on a seed of '
  'their own. A client sends as many bytes with every method, but for 1-bit '
  "Adam, whole in its first fifth and then d / 32, and MARINA's first, whole "
  'gradient; the paper has CocktailSGD at 1 % in every panel. MARINA has '
  'momentum on its server. A run that diverged counts as guessing, 50 %.',
  'The paper trains a BERT. Here it is an encoder of width 64 that nothing has '
  'trained before, on the 6,920 sentences of SST-2, cut to 32 tokens, by five '
  'clients with batches of 16, one step a round, at constant rates. All test '
  'sentences are evaluated.',
)
_QUICK = {
  'rounds': 20, 'evaluations': 2, 'sizes': [2e-4, 2e-3], 'panels': [2e-3],
  'adaptive': [0.003], 'plain': [0.03], 'seeds': [1, 2],
}  # fmt: skip


def figure_3(ws: Workspace) -> study.Report:
  """Reproduces Figure 3 on sentences: baselines, and sizes of tables."""
  r = registration.read('S4-Fig3')
  if ws.scale == 'quick':
    r |= _QUICK
  setting = settings.text(ws, r['rounds'], r['evaluations'])
  entries = play(ws, setting, r, cells(r))
  sized = {k: e for k, e in entries.items() if k[0] in ('safl', 'fedadam')}
  pictures = [study.Picture(study.MEANS, report.panels(entries, sized))]
  return study.Report(
    registration.claims(r, _values(entries, sized)),
    report.seeds(entries),
    [report.table(setting, entries, 'Rates of the server, or of clients')],
    pictures,
    _NOTES,
  )


def cells(r: Mapping[str, Any]) -> list[tuple[str, float]]:
  """Methods with the shares of d that they send."""
  names = [name for name in methods.METHODS if name not in methods.WHOLE]
  of_safl = [('safl', share) for share in r['sizes']]
  rivals = [(n, x) for x in r['panels'] for n in names if n != 'safl']
  return [*of_safl, *((name, 1.0) for name in methods.WHOLE), *rivals]


def play(
  ws: Workspace,
  setting: settings.LearningSetting,
  r: Mapping[str, Any],
  keys: Iterable[tuple[str, float]],
) -> dict[tuple[str, float], Entry]:
  """Tunes cells and runs them over the registered seeds."""
  entries = {}
  for name, share in keys:
    fields = methods.method(setting, name, share)
    adaptive = fields.pop('sweep')
    grid = {k: r[methods.KIND[name]] for k in adaptive}
    trials = {'seed': r['tuning_seed'], 'eval_every': r['rounds']}
    folder = f'{setting.name}/{{}}/{name}-{share:g}'
    entries[name, share] = comparison.run(
      ws, folder, fields, grid, r['seeds'], trials=trials
    )
  return entries


def _values(entries: Comparison, sized: Comparison) -> dict[str, Any]:
  """What the claims compare, by key."""
  left, middle = 2e-3, 2e-2
  baselines = {name for name, _ in entries} - {'safl', 'fedadam'}
  same_bytes = baselines - {'onebit_adam'}
  by_size = dict(sorted(sized.items(), key=lambda item: item[0][1]))
  losses = {f'{k[1]:g} d': _mean_loss(e) for k, e in by_size.items()}
  behind = {
    f'{share:g} d': _last(entries['fedadam', 1.0]) - _last(e)
    for (_, share), e in by_size.items()
    if share < 1
  }
  level = _lead(entries, middle, ['cocktail_sgd'])
  competitive = [_lead(entries, x, FEEDBACK) for x in (left, middle)]
  return {
    'faster': _lead(entries, left, baselines, _mean_accuracy),
    'better': _lead(entries, left, baselines),
    'better at equal bytes': _lead(entries, left, same_bytes),
    'level': [y for x in level.values() for y in verdicts.both_ways(x)],
    'above others': _lead(entries, middle, baselines - {'cocktail_sgd'}),
    'competitive': {k: -x for lead in competitive for k, x in lead.items()},
    'larger': {
      small: losses[small] - losses[large]
      for small, large in itertools.pairwise(losses)
    },
    'comparable': behind,
    'smallest': next(iter(behind.values())),
  }


def _lead(entries, share, names, of=None) -> dict[str, np.ndarray]:
  """A number of SAFL less that of baselines with the same share of d."""
  of, ours = of or _last, entries.get(('safl', share))
  return {
    f'{name}, {x:g} d': of(ours) - of(e)
    for (name, x), e in entries.items()
    if ours and name in names and x in (share, 1.0)
  }


def _last(entry: Entry) -> np.ndarray:
  return np.nan_to_num(entry.accuracy, nan=50.0)


def _mean_accuracy(entry: Entry) -> np.ndarray:
  """Test accuracy in per cent by seed, mean over all evaluations."""
  # The last 0 of a list are all of it.
  return np.nan_to_num(entry.final(last=0, scale=100), nan=50.0)


def _mean_loss(entry: Entry) -> np.ndarray:
  """Training loss by seed, mean over all rounds."""
  return np.nan_to_num(entry.final('train_loss', last=0), nan=np.log(2))
