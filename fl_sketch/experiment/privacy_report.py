"""A promise as text and as a picture: epsilon over the rounds."""

import os
import pathlib

from fl_sketch.experiment import privacy_plan
from matplotlib import figure
import numpy as np


def curve(promise: privacy_plan.Promise, rounds: int) -> dict[int, float]:
  """Epsilon after some rounds, evenly spaced, the last among them."""
  asked = np.unique(np.linspace(1, rounds, min(rounds, 21)).round()).astype(int)
  return dict(
    zip(asked.tolist(), promise.epsilons(asked.tolist()), strict=True)
  )


def text(promise: privacy_plan.Promise, epsilons: dict[int, float]) -> str:
  """The statement, the noise, and epsilon after some rounds, as lines."""
  told = promise.statement
  lines = [told.sentence(), f'noise_multiplier {promise.noise_multiplier:.6g}']
  lines += ['', f'rounds  epsilon at delta {told.delta:g}']
  return '\n'.join(lines + [f'{r:6d}  {e:.4f}' for r, e in epsilons.items()])


def draw(
  promise: privacy_plan.Promise,
  epsilons: dict[int, float],
  path: str | os.PathLike,
) -> pathlib.Path:
  """Draws epsilon over the rounds into a file."""
  told, picture = promise.statement, figure.Figure(figsize=(5, 3.5))
  ax = picture.subplots()
  ax.plot(list(epsilons), list(epsilons.values()), marker='.')
  ax.set(xlabel='round', ylabel=f'epsilon at delta {told.delta:g}', ylim=0)
  ax.set_title(
    f'of one {promise.mechanism.unit}, z = {promise.noise_multiplier:.4g}'
  )
  ax.grid(alpha=0.3)
  picture.savefig(path, dpi=150, bbox_inches='tight')
  return pathlib.Path(path)
