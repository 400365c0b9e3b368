"""Laws over lists of cases: the tier of each case, and its programs."""

from collections.abc import Callable, Collection, Iterable
import functools
from typing import Any

import jax
import pytest

# Hardly optimised programs, since compiling is what takes time.
jit = functools.partial(
  jax.jit, compiler_options={'xla_backend_optimization_level': 0}
)


def tiered(fast, nightly=(), long=()):
  """Rows of parameters, each in its tier."""
  tiers = ((), fast), (pytest.mark.nightly, nightly), (pytest.mark.long, long)
  return [
    pytest.param(*row, marks=mark) for mark, rows in tiers for row in rows
  ]


def law(
  names: Iterable[str], fast: Collection[str], parameter: str = 'name',
  value: Callable[[str], Any] = lambda name: name, group: str = '',
  long: Collection[str] = (), smoke: Collection[str] = (),
):  # fmt: skip
  """A law, nightly but for `fast`; each (case, group) runs in one process.

  A test gets `value(name)`; a `group` tells cases of one name apart.
  """
  names = list(names)
  if not set(names) & set(fast):
    raise ValueError(f'Expected one of {names} in fast={fast}.')

  def row(name):
    tier = [] if name in fast else [pytest.mark.nightly]
    tier = [pytest.mark.long] if name in long else tier
    tier += [pytest.mark.smoke] if name in smoke else []
    place = pytest.mark.xdist_group(f'{group} {name}'.strip())
    return pytest.param(value(name), id=name, marks=[place, *tier])

  return pytest.mark.parametrize(parameter, [row(name) for name in names])
