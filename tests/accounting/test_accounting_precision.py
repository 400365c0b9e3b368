"""Epsilon against 40 digits: never below, and hardly above."""

from accounting_reference import REPLACE, epsilon, poisson
from fl_sketch import accounting
from fl_sketch.accounting import GaussianMechanism, step_losses, tilted_losses
import mpmath as mp
import multiprecision
import numpy as np
import pytest

in_nightly = lambda row: pytest.param(*row, marks=pytest.mark.nightly)
ALMOST = 1 - 1e-12  # is sampled, and in effect everybody


def within(mechanism, delta, exact, slack=1e-2):
  """Never below the exact epsilon, and at most `slack` above, relatively."""
  eps = mp.mpf(accounting.compute_epsilon(mechanism, delta=delta))
  assert exact <= eps <= exact * (1 + slack)


MIXED = accounting.compose([
  poisson(300.0, 10**4, ALMOST),
  GaussianMechanism(5.0, 3),
  GaussianMechanism(40.0, 200),
  poisson(4000.0, 10**6, ALMOST),
  poisson(3.0, 1, ALMOST, releases_per_step=2),
])  # fmt: skip
SQUARE = 10**4 / 9e4 + 3 / 25 + 200 / 1600 + 10**6 / 1.6e7 + 2 / 9
REPLACED = poisson(200.0, 10**4, ALMOST, adjacency=REPLACE)


@pytest.mark.parametrize(('mechanism', 'mu', 'delta', 'slack'), [
  (poisson(1 / 0.3, 1, ALMOST), 0.3, 1e-5, 1e-3),
  (poisson(1e7**0.5, 10**7, ALMOST), 1.0, 1e-12, 1e-3),
  in_nightly((poisson(1e5**0.5 / 4, 10**5, ALMOST), 4.0, 1e-12, 1e-3)),
  (MIXED, SQUARE**0.5, 1e-12, 1e-2),
  (REPLACED, 1.0, 1e-9, 1e-2),
])  # fmt: skip
def test_full_participation_by_losses_is_the_closed_form(
  mechanism, mu, delta, slack
):
  """Catches a lost part or adjacency, an FFT's rounding, too wide cells."""
  exact = multiprecision.closed_form(mu, delta)
  within(mechanism, delta, exact, slack)


def test_the_inversion_is_the_closed_form():
  """A control of the reference itself."""
  for swap in (False, True):
    curve = multiprecision.Curve([GaussianMechanism(2.0, 4)], 1e-9, swap)
    gap = curve.epsilon(1e-9) - multiprecision.closed_form(1.0, 1e-9)
    assert abs(gap) < 1e-25


SAMPLED = [
  ([poisson(4.0, 500, 0.2)], 1e-5),
  in_nightly(([poisson(0.756, 2000, 0.01)], 1e-5)),
  in_nightly(([poisson(316.0, 10**7, 0.1)], 1e-12)),
  in_nightly(([poisson(30.0, 10**4, 0.3), poisson(2.0, 20, 0.05)], 1e-12)),
]


@pytest.mark.parametrize(('parts', 'delta'), SAMPLED)
def test_poisson_samples_are_those_of_an_inversion_in_40_digits(parts, delta):
  """Catches any bound that is too low, by rounding, cells, tails, wrapping."""
  exact = multiprecision.epsilon(parts, delta)
  within(accounting.compose(parts), delta, exact, 2e-3)


@pytest.mark.nightly
def test_rare_samples_have_an_epsilon():
  """Catches a window that the wall of the moments makes too long."""
  steps, q = 10**4, 1e-4
  mechanism = poisson(1.0, steps, q)
  eps = epsilon(mechanism, 1e-6)
  once = epsilon(poisson(1.0, 1, steps * q / 2), 1e-6)
  assert 0 < eps < min(once, epsilon(mechanism, 1e-6, 'rdp'))


def hockey_stick(kind, z, q, loss):
  """delta of one step, in 60 digits."""
  z, q = mp.mpf(z), mp.mpf(q)
  at = lambda x, shift: mp.ncdf((x - shift) / z)
  if kind == 'replace':
    ratio = (1 - q) / q * mp.exp(1 / (2 * z**2)) * mp.sinh(loss / 2)
    x = z**2 * (loss / 2 + mp.asinh(ratio))
    above = lambda side: (1 - q) * at(-x, 0) + q * at(-x, -side)
    return above(1) - mp.exp(loss) * above(-1)
  sign = 1 if kind == 'remove' else -1
  ratio = (mp.expm1(sign * loss) + q) / q
  if ratio <= 0:
    return -mp.expm1(loss) if sign == 1 else mp.mpf(0)
  x = z**2 * mp.log(ratio) + mp.mpf(1) / 2
  if sign == 1:
    mixture = (1 - q) * at(-x, 0) + q * at(-x, -1)
    return mixture - mp.exp(loss) * at(-x, 0)
  mixture = (1 - q) * at(x, 0) + q * at(x, 1)
  return at(x, 0) - mp.exp(loss) * mixture


@pytest.mark.parametrize('counts', [(1, 3), (10**7, 10**5)])
def test_a_transform_is_off_by_no_more_than_its_bound(counts):
  """Catches a bound of rounding that forgets steps, products or a transform."""
  cells, rng = 64, np.random.default_rng(0)
  masses = [rng.dirichlet(np.full(n, 0.3)) for n in (20, 90)]
  parts = [*zip(masses, counts, strict=True)]
  x, error = tilted_losses._convolve(parts, 5, cells)
  root = [mp.expjpi(mp.mpf(2 * k) / cells) for k in range(cells)]
  at = lambda p, k: mp.fdot(
    (float(v), root[-k * i % cells]) for i, v in enumerate(p)
  )
  spectra = [mp.fprod(at(p, k) ** n for p, n in parts) for k in range(cells)]
  square = mp.mpf(0)
  for j in range(cells):
    shifted = (root[k * (j + 5) % cells] for k in range(cells))
    exact = mp.re(mp.fdot(zip(spectra, shifted, strict=True))) / cells
    square += (mp.mpf(float(x[j])) - exact) ** 2
  assert mp.sqrt(square) <= error < 1e-13 * (sum(counts) + 10)


STEPS = [
  (1.0, ALMOST, 2.0**-13), (0.3, 0.2, 2.0**-10), (5.0, 1e-5, 2.0**-23),
]  # fmt: skip


@pytest.mark.parametrize('kind', ['remove', 'add', 'replace'])
@pytest.mark.parametrize(('z', 'q', 'h'), STEPS)
def test_masses_of_a_step_are_moved_up_only(kind, z, q, h):
  """Catches rounding of a step to the unsafe side, which steps multiply."""
  masses = step_losses.masses((step_losses.Pair(kind, z, q),), h)
  above = np.cumsum(np.exp(masses.log_mass)[::-1])[::-1] + masses.infinite
  with mp.workdps(60):
    cell, count = mp.mpf(h), len(above)
    at = lambda k: hockey_stick(kind, z, q, (masses.first + k) * cell)
    places = np.linspace(1, count - 1, 12).astype(int)
    for k in {1, 2, *places.tolist()}:
      exact = (at(k - 1) - mp.exp(-cell) * at(k)) / -mp.expm1(-cell)
      # numpy adds what mpmath compares, to a relative count * 2^-53.
      assert above[k] * (1 + 2**-52 * count) >= exact
      if 1e-30 < exact and above[max(k - 1, 1)] > 1e-12:
        assert above[k] <= exact * (1 + 1e-3)
  total = np.exp(masses.log_mass).sum() + masses.infinite
  assert 1 - 1e-12 <= total <= 1 + 1e-12
