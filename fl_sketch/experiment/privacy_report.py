"""Prints and plots a DP guarantee: epsilon over the rounds."""

import os
import pathlib

from fl_sketch import reporting
from fl_sketch.experiment import privacy_plan
import numpy as np


def curve(
  guarantee: privacy_plan.PrivacyGuarantee, rounds: int
) -> dict[int, float]:
  """Epsilon after up to 21 evenly spaced rounds, the last included."""
  even = np.linspace(1, rounds, min(rounds, 21)).round()
  counts = np.unique(even).astype(int).tolist()
  return dict(zip(counts, guarantee.epsilons(counts), strict=True))


def text(
  guarantee: privacy_plan.PrivacyGuarantee, epsilons: dict[int, float]
) -> str:
  """Formats the statement, the noise multiplier and epsilon over the rounds."""
  statement = guarantee.statement
  lines = [
    statement.sentence(),
    f'noise_multiplier {guarantee.noise_multiplier:.6g}',
    f'\nrounds  epsilon at delta {statement.delta:g}',
  ]
  return '\n'.join(lines + [f'{r:6d}  {e:.4f}' for r, e in epsilons.items()])


def draw(
  guarantee: privacy_plan.PrivacyGuarantee,
  epsilons: dict[int, float],
  path: str | os.PathLike,
) -> pathlib.Path:
  """Draws epsilon over the rounds into a file."""
  statement, picture = guarantee.statement, reporting.new_figure(5, 3.5)
  ax = picture.subplots()
  ax.plot(list(epsilons), list(epsilons.values()), marker='.')
  ax.set(xlabel='round', ylabel=f'epsilon at delta {statement.delta:g}', ylim=0)
  ax.set_title(
    f'of one {guarantee.mechanism.unit}, z = {guarantee.noise_multiplier:.4g}'
  )
  ax.grid(alpha=0.3)
  picture.savefig(path, dpi=150, bbox_inches='tight')
  return pathlib.Path(path)
