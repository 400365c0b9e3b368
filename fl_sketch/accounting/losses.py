"""Steps of a mechanism as privacy losses, for `tilted_losses` to compose."""

import dataclasses
import math

from fl_sketch.accounting import allocation, events, step_losses, types
from fl_sketch.accounting.tilted_losses import Composition, Steps, chernoff
import scipy  # its packages load on first use

Parts = tuple[types.GaussianMechanism, ...]
# Below this noise, and above this epsilon, full participation is the bound.
LEAST_NOISE, _HOPELESS = 1e-3, 1e4
_TYPICAL = 1e-6  # the delta whose epsilon sets the width of cells
# Cells from 0 to that epsilon: at least, and at most, which is used where the
# loss of a step spreads over less than _NARROW cells, or rounding to cells
# would cost more than _COST of that epsilon.
_CELLS, _MOST_CELLS, _NARROW, _COST = 2**15, 2**18, 20, 1e-6


def composition(parts: Parts) -> Composition | None:
  """Return the curve of a composition; None if epsilon is past 1e4."""
  orders = _orders(parts)
  epsilon, s = max(chernoff(_TYPICAL, steps) for steps in orders)
  if epsilon >= _HOPELESS:
    return None
  # Rounding the losses of T releases to multiples of h costs epsilon about
  # T h^2 (s + 1) / 12, and the bound of float64's T spread 2^-40 / h. h is a
  # power of two; where it falls, an added release may lower epsilon by _COST.
  times = sum(count for _, count in orders[0])
  spread = max(step_losses.spread(step) for step, _ in orders[0])
  exact = math.sqrt(12 * _COST * epsilon / (times * (s + 1)))
  exact = max(exact, (2**-37 * spread / (s + 1)) ** (1 / 3))
  least = max(min(spread / _NARROW, exact), epsilon / _MOST_CELLS)
  width = min(epsilon / _CELLS, least)
  return Composition(orders, 2.0 ** math.floor(math.log2(width)))


def rough_epsilon(parts: Parts, delta: float) -> float:
  """Return Chernoff's bound of epsilon, roughly computed; inf past 1e4."""
  if min(map(events.noise_of, parts)) < LEAST_NOISE:
    return math.inf
  # Random allocation costs about as much as Poisson sampling.
  rough = tuple(
    dataclasses.replace(part, sampling=types.Sampling.POISSON, epoch_steps=None)
    if part.epoch_steps is not None
    else part
    for part in map(events.untruncated, parts)
  )
  epsilon, _ = max(chernoff(delta, steps) for steps in _orders(rough))
  return epsilon if epsilon < _HOPELESS else math.inf


def _orders(parts: Parts) -> tuple[Steps, ...]:
  """Return (step, count) pairs for each order of the neighbours; once if equal.

  An epoch of random allocation is one step.
  """
  # All full participation together is one normal.
  counts: dict[types.GaussianMechanism, int] = {}
  full = [part for part in parts if part.sampling is types.Sampling.FULL]
  for part in parts:
    if part.sampling is types.Sampling.FULL:
      continue
    length = part.epoch_steps or 1
    whole, rest = divmod(part.steps, length)
    for steps, n in (length, whole), (rest, 1):
      if steps and n:
        step = dataclasses.replace(part, steps=steps)
        counts[step] = counts.get(step, 0) + n
  steps = [(_step(part), n) for part, n in counts.items()]
  if full:
    one = (step_losses.Pair('remove', 1 / events.distance(full), 1.0),)
    steps.append(((one, one), 1))
  forth, back = (tuple((s[i], n) for s, n in steps) for i in (0, 1))
  return (forth,) if forth == back else (forth, back)


def _step(part: types.GaussianMechanism) -> tuple[step_losses.Step, ...]:
  """Return a sampled step, or an epoch, in both orders of the neighbours."""
  noise, q = events.noise_of(part), part.sampling_probability
  if part.sampling is types.Sampling.RANDOM_ALLOCATION:
    assert part.epoch_steps is not None  # as `GaussianMechanism` checks
    if noise >= allocation.LEAST_NOISE:
      spec = noise, part.epoch_steps, part.steps
      return tuple(allocation.Epoch(kind, *spec) for kind in ('remove', 'add'))
    q = 1.0
  pairs = [step_losses.Pair(kind, noise, q) for kind in ('remove', 'add')]
  if part.adjacency is types.Adjacency.REPLACE_ONE:
    pairs = [step_losses.Pair('replace', noise, q)] * 2
  if part.sampling is not types.Sampling.TRUNCATED_POISSON:
    return tuple((pair,) for pair in pairs)
  # Under zero-out a step reveals at most whether its cohort was truncated; then
  # one unit replaces another: Ganesh et al., arXiv:2508.15089.
  population, cohort = part.sizes
  tail = scipy.stats.binom.sf
  cut_off = float(tail(cohort - 1, population - 1, q))
  if cut_off == 0:
    return tuple((pair,) for pair in pairs)
  share = float(tail(cohort, population, q)) * cohort / population / cut_off
  replaced = step_losses.Pair('replace', noise / 2, min(share, 1.0), cut_off)
  whole = [dataclasses.replace(pair, weight=1 - cut_off) for pair in pairs]
  return tuple((replaced, pair) for pair in whole)
