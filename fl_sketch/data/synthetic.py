"""Draws the quadratics of Das et al., arXiv:2106.07094, section 5.3."""

from typing import NamedTuple

from fl_sketch.utils import seeding
import numpy as np


class Quadratics(NamedTuple):
  r"""Clients with the losses :math:`f_i(w) = \|A_i^T (w - w_i^*)\|^2 / 2`.

  Client i has one sample: row i of each array in `data`
  (`partitions.one_each`): 'factor' f32[population, dimension, rank], the A_i,
  and 'optimum' f32[population, dimension], the w_i*. The minimiser of the mean
  loss is `w_star`, f32[dimension]: the solution of (sum_i A_i A_i^T) w =
  sum_i A_i A_i^T w_i*, that of least norm where population * rank < dimension
  leaves many. It is not the mean of the w_i*.
  """

  data: dict[str, np.ndarray]
  w_star: np.ndarray

  def value(self, w: np.ndarray) -> float:
    """The mean over the clients of f_i(w), in float64."""
    factor = self.data['factor'].astype(np.float64)
    residual = np.einsum('ndr,nd->nr', factor, w - self.data['optimum'])
    return float(0.5 * np.mean(np.sum(residual**2, axis=1)))

  def start(self, seed: int, scale: float = 1.0) -> np.ndarray:
    """w_star + scale * z with z uniform on [0, 1]^d; Das: scale 1 and 1/5."""
    z = seeding.generator(seed, 'quadratics start').random(len(self.w_star))
    return (self.w_star + scale * z).astype(np.float32)


def quadratics(
  seed: int, population: int = 100, dimension: int = 200, rank: int = 20
) -> Quadratics:
  r"""Draws :math:`w_i^* \sim N(0, I)` and :math:`A_i` from N(0, 1/rank^2).

  >>> problem = quadratics(seed=0, population=4, dimension=6, rank=3)
  >>> problem.value(problem.w_star) < problem.value(np.zeros(6))
  True
  """
  if population < 1 or not 1 <= rank <= dimension:
    raise ValueError(
      f'{population=} must be >= 1, and {rank=} 1 to {dimension=}.'
    )
  rng = seeding.generator(seed, 'quadratics')
  factor = rng.standard_normal((population, dimension, rank), np.float32) / rank
  optimum = rng.standard_normal((population, dimension), np.float32)
  wide = factor.astype(np.float64)
  normal = np.einsum('ndr,ner->de', wide, wide, optimize=True)
  right = np.einsum('ndr,nr->d', wide, np.einsum('ndr,nd->nr', wide, optimum))
  w_star = np.linalg.lstsq(normal, right)[0].astype(np.float32)
  return Quadratics({'factor': factor, 'optimum': optimum}, w_star)
