"""Delta and epsilon of sampled Gaussians by mpmath, 40 digits throughout.

With M(w) = E[exp(w L)] of one step's loss L under P, by Fourier's inversion::

  delta(e) = 1/(2 pi) int M(w)^T exp(-w e) / (w (w + 1)) dt,   w = c + i t,

for any c > 0, since 1 / (w (w + 1)) is the Laplace transform of 1 - exp(-x).
The trapezoidal rule takes both integrals, without a grid of losses. Parts are
Poisson-sampled mechanisms under add-or-remove-one, or of everybody.
"""

import mpmath as mp
import numpy as np
from scipy import optimize, special

mp.mp.dps = 40
_RULE = 1 / 8  # between nodes, in standard deviations of the noise
_FAR = 14  # standard deviations, past which a normal has no 40 digits


def _nodes(part, power):
  """Nodes, of an integral over N(0, 1), and its logarithms in float64."""
  z, q = part.noise_multiplier, part.sampling_probability
  rule = min(_RULE, z / 8)  # the nearest singularity is pi z away
  first, last = -_FAR + min(power, 0) / z, _FAR + max(power, 0) / z
  v = np.arange(int(first / rule), int(last / rule) + 1)
  x = rule * v
  none = np.log1p(-q) if q < 1 else -np.inf
  ratio = np.logaddexp(none, np.log(q) + x / z - 0.5 / z**2)
  return v, rule, power * ratio - x**2 / 2


def _rough_moment(releases, power):
  """log E[exp(w L)] in float64, with power = w + 1, or -w swapped."""
  total = 0.0
  for part in releases:
    _, rule, logs = _nodes(part, power)
    step = special.logsumexp(logs) + np.log(rule / np.sqrt(2 * np.pi))
    total += part.steps * step
  return total


class Curve:
  """delta(e) near where it is `delta`."""

  def __init__(self, releases, delta, swap=False):
    self.releases, self.swap = tuple(releases), swap
    rough = lambda c: _rough_moment(releases, -c if swap else c + 1)
    chernoff = lambda log_c: (
      (rough(np.exp(log_c)) - np.log(delta)) / np.exp(log_c)
    )
    best = optimize.minimize_scalar(chernoff, bounds=(-5, 8), method='bounded')
    c, d = float(np.exp(best.x)), float(np.exp(best.x)) / 50
    self.start = mp.mpf(float(best.fun))
    bent = (rough(c + d) + rough(c - d) - 2 * rough(c)) / d**2
    self.c, self.step = mp.mpf(c), mp.mpf(float(bent**-0.5) / 4)
    self.tables = [self._table(part) for part in self.releases]
    self.terms = []
    for k in range(100_000):
      w = self.c + mp.j * k * self.step
      self.terms.append((w, self._moment(w) - mp.log(w) - mp.log(w + 1)))
      if mp.re(self.terms[-1][1] - self.terms[0][1]) < -75:
        return
    raise ValueError('The integral does not converge.')

  def _table(self, part):
    """Weights and log likelihood ratios where they count at order c."""
    power = float(-self.c if self.swap else self.c + 1)
    v, rule, logs = _nodes(part, power)
    some = v[logs > logs.max() - 100]
    z, rule = mp.mpf(part.noise_multiplier), mp.mpf(rule)
    q = mp.mpf(part.sampling_probability)
    weigh = lambda x: rule * mp.npdf(x)
    ratio = lambda x: mp.log(1 - q + q * mp.exp(x / z - 1 / (2 * z**2)))
    points = [rule * int(n) for n in some]
    return [(weigh(x), ratio(x)) for x in points]

  def _moment(self, w):
    """log E[exp(w L)] of all releases."""
    power, total = -w if self.swap else w + 1, mp.mpf(0)
    for part, table in zip(self.releases, self.tables, strict=True):
      step = mp.fsum(weight * mp.exp(power * r) for weight, r in table)
      total += part.steps * mp.log(step)
    return total

  def delta(self, epsilon):
    total = mp.mpf(0)
    for k, (w, term) in enumerate(self.terms):
      value = mp.re(mp.exp(term - w * epsilon))
      total += value if k else value / 2
    return total * self.step / mp.pi

  def epsilon(self, delta):
    target = mp.log(mp.mpf(delta))
    gap = lambda e: mp.log(self.delta(e)) - target
    return mp.findroot(gap, (self.start * 0.9, self.start * 0.95), tol=1e-25)


def epsilon(releases, delta):
  """The least epsilon at `delta`, over both orders of the neighbours."""
  curves = (Curve(releases, delta, swap) for swap in (False, True))
  return max(curve.epsilon(delta) for curve in curves)


def closed_form(mu, delta):
  """Epsilon of full participation: two unit normals mu apart."""
  mu, target = mp.mpf(mu), mp.log(mp.mpf(delta))
  phi = mp.ncdf
  gap = lambda e: (
    mp.log(phi(mu / 2 - e / mu) - mp.exp(e) * phi(-mu / 2 - e / mu)) - target
  )
  start = mu**2 / 2 + mu * mp.sqrt(-2 * target)
  return mp.findroot(gap, (start * 0.8, start * 0.9), tol=1e-25)
