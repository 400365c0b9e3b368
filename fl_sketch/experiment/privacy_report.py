"""Prints and plots a DP guarantee: epsilon over the rounds, and a trade-off."""

import pathlib

from fl_sketch.experiment import parts
from fl_sketch.experiment.config import Config
from fl_sketch.experiment.privacy_plan import PrivacyGuarantee
from fl_sketch.privacy import accounting
from fl_sketch.privacy.accounting import hypothesis_tests
from fl_sketch.reporting import figures
import numpy as np


def curve(guarantee: PrivacyGuarantee, rounds: int) -> dict[int, float]:
  """Return epsilon after up to 21 evenly spaced rounds, the last included."""
  even = np.linspace(1, rounds, min(rounds, 21)).round()
  counts = np.unique(even).astype(int).tolist()
  return dict(zip(counts, guarantee.epsilons(counts), strict=True))


def signal(config: Config, guarantee: PrivacyGuarantee) -> str:
  """Format the largest signal-to-noise ratio that the mean of a round can have.

  All of the cohort take part, and all send the same update of norm C. Return ''
  for samples and for a bound that follows a quantile.
  """
  if guarantee.mechanism.unit == 'sample' or config.bound == 'quantile':
    return ''
  size, shares = parts.table_size(config), 1.0
  if config.trust == 'local':  # each client adds the noise of the whole
    shares = config.cohort
  elif config.trust == 'secure_aggregation' and config.min_honest is not None:
    shares = config.cohort / config.min_honest
  assert config.clip_norm is not None  # the config is private
  ratio = accounting.signal_to_noise(
    guarantee.noise_multiplier,
    config.clip_norm,
    expected_cohort=config.cohort,
    size=size or 1,
  )
  where = f'{size} numbers'
  if size is None:
    where = 'one number; of d numbers of the model, that over the root of d'
  return (
    f'signal_to_noise {ratio / shares**0.5:.4g} at most of a mean over '
    f'{config.cohort} clients, on {where}'
  )


def text(
  guarantee: PrivacyGuarantee, epsilons: dict[int, float], signal: str = ''
) -> str:
  """Format the statement, the noise multiplier and epsilon over the rounds."""
  statement = guarantee.statement
  noise = f'noise_multiplier {guarantee.stated_multiplier:.6g}'
  if guarantee.noise_scale != 1:
    noise += f', simulated by noise_scale {guarantee.noise_scale:.6g}'
  lines = [statement.sentence(), noise]
  lines += [signal] if signal else []
  lines += [f'\nrounds  epsilon at delta {statement.delta:g}']
  return '\n'.join(lines + [f'{r:6d}  {e:.4f}' for r, e in epsilons.items()])


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
  for name, panel in (
    ('epsilon', over_rounds),
    ('trade_off', trade_off(guarantee)),
  ):
    figures.draw([panel]).savefig(folder / f'{name}.png', dpi=150)


def trade_off(guarantee: PrivacyGuarantee) -> figures.Panel:
  """Plot the largest true-positive rate of a test at each false-positive rate.

  Beside it: mu-Gaussian privacy, and guessing.
  """
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
