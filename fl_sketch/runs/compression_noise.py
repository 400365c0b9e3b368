"""Noise that sketches and few-bit tables add to an adaptive server's steps.

The noise of an estimate D of g is D - g, taken to be white and independent over
rounds. Ours.
"""

from fl_sketch.codecs import lloyd_max
import numpy as np


def table_alpha(dimension: int, size: int, omega: float = 0.0) -> float:
  r"""Noise in units of :math:`\|g\|^2`: :math:`(d / b)(1 + \omega) - 1`.

  For tables of b numbers from an operator with orthogonal rows, quantised by a
  codec of variance ``omega`` (`codecs.eden`).

  >>> round(table_alpha(1024, 256, 0.5708), 4)
  5.2832
  """
  return dimension / size * (1 + omega) - 1


def correlated_omega(bits: int, correlation: np.ndarray) -> np.ndarray:
  r"""Covariance of two errors of `codecs.eden` under one rotation.

  In units of :math:`\|x\| \|y\|`, for updates whose cosine is rho, f64[...]:
  :math:`\sum_{k \geq 3} (a_k / a_1)^2 \rho^k` (Mehler), with :math:`a_k` the
  coefficients of the quantiser in normalised Hermite polynomials. For one bit
  it is arcsin(rho) - rho; at rho = 1 omega.

  >>> round(float(correlated_omega(1, np.array(0.5))), 4)  # pi / 6 - 1 / 2
  0.0236
  """
  centroids, distortion = lloyd_max(bits)
  levels = np.array(centroids)
  steps = np.array([0.0, *(levels[1:] + levels[:-1]) / 2])
  jumps = np.array([levels[0], *np.diff(levels)])  # half of that at 0
  density = np.exp(-(steps**2) / 2)
  before, now = np.zeros_like(steps), np.ones_like(steps)  # h_{k-2}, h_{k-1}
  rho = np.asarray(correlation, np.float64)
  total, power, first = np.zeros_like(rho), rho, (jumps * density).sum()
  for k in range(1, 400):
    if k % 2 and k > 1:
      total += ((jumps * density * now).sum() / first) ** 2 / k * power
    before, now = now, (steps * now - (k - 1) ** 0.5 * before) / k**0.5
    power = power * rho
  return np.where(rho < 0.999, total, distortion / (1 - distortion))


def step_cosine(alpha: float, momentum: float = 0.9) -> float:
  r"""Cosine of a momentum step with a gradient that stays the same.

  :math:`1 / \sqrt{1 + \alpha (1 - \beta) / (1 + \beta)}`: an exponential mean
  by the momentum beta keeps this share of the energy of fresh noise.

  >>> round(step_cosine(99.0), 2)
  0.4
  """
  return (1 + alpha * (1 - momentum) / (1 + momentum)) ** -0.5
