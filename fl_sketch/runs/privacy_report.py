"""Draw a DP guarantee: epsilon over the rounds, and its trade-off curve."""

import pathlib

from fl_sketch.accounting import hypothesis_tests
from fl_sketch.runs import figures
from fl_sketch.runs.privacy_plan import PrivacyGuarantee
import numpy as np


def draw(
  guarantee: PrivacyGuarantee, epsilons: dict[int, float], folder: pathlib.Path
) -> None:
  """Draw epsilon.png, over the rounds, and trade_off.png into a folder."""
  over_rounds = figures.Panel(
    'round',
    f'epsilon at delta {guarantee.statement.delta:g}',
    [figures.Line('', list(epsilons), list(epsilons.values()))],
    f'of one {guarantee.mechanism.unit}, z = {guarantee.stated_multiplier:.4g}',
  )
  panels = {'epsilon': over_rounds, 'trade_off': trade_off(guarantee)}
  for name, panel in panels.items():
    figures.draw([panel]).savefig(folder / f'{name}.png', dpi=150)


def trade_off(guarantee: PrivacyGuarantee) -> figures.Panel:
  """Plot the true-positive rate of the best test, by false-positive rate."""
  statement = guarantee.statement
  rates = np.geomspace(1e-6, 1.0, 121)
  errors = hypothesis_tests.type_two_error(
    guarantee.mechanism, rates, accountant=statement.accountant
  )
  lines = [
    figures.Line('any test, at most', rates, 1 - np.asarray(errors)),
    figures.Line('guessing', rates, rates, variant=2),
  ]
  if statement.mu is not None and np.isfinite(statement.mu):
    gaussian = hypothesis_tests.gaussian_trade_off(statement.mu, rates)
    label = f'Gaussian, mu = {statement.mu:.3g}'
    lines.insert(1, figures.Line(label, rates, 1 - gaussian, variant=1))
  return figures.Panel(
    'false-positive rate', 'true-positive rate', lines,
    title=f'Whether one {guarantee.mechanism.unit} took part', x_scale='log',
    y_limits=(0.0, 1.0), x_mark=hypothesis_tests.FALSE_POSITIVE_RATE,
  )  # fmt: skip
