"""What a release consists of: contributions, their sum, and noise.

A part is a contribution of each client, bounded by C, a sum in which each
client is at most once, noise, or the sum of both. Selection by presence, sums
over clients and shards, and layout keep it; whatever else is done to it, it is
data of several clients.
"""

from collections.abc import Sequence
import itertools
from typing import Any, NamedTuple

from fl_sketch.privacy.noninterference import numbers, rows
from jax.extend import core
import jax.numpy as jnp

_LAYOUT = (
  'broadcast_in_dim', 'by_client', 'convert_element_type', 'copy', 'pvary',
  'reshape', 'reshard', 'sharding_constraint', 'squeeze', 'transpose',
)  # fmt: skip


class Noise(NamedTuple):
  """One array of a draw."""

  key: numbers.Number
  leaf: int
  each: bool  # whether each entry of an array of keys is another key


class Term(NamedTuple):
  """Clients whose contribution is in a part, once each."""

  mark: Any  # of the contribution: which one of a program
  span: tuple[int, int] | None  # `Rows.span`; None: any
  loops: tuple[Any, ...]  # `Rows.loops`, or `earlier` steps of them


class Part(NamedTuple):
  """Contributions, their sum, noise, or both; without either it is zeros."""

  leaf: int | None = None  # which array of a contribution
  terms: frozenset[Term] = frozenset()
  axes: rows.Axes = ()  # along which clients differ; () after the sum
  scale: numbers.Number | None = None  # the step of its grid
  noise: Noise | None = None
  of_shard: bool = False  # a sum over shards is to come

  def in_loops(self, change: dict[Any, Any]) -> 'Part':
    """Return the part with other loops; those that become None leave."""
    renamed = lambda loops: tuple(change.get(x, x) for x in loops)
    kept = lambda loops: tuple(x for x in renamed(loops) if x is not None)
    terms = frozenset(x._replace(loops=kept(x.loops)) for x in self.terms)
    return self._replace(terms=terms)


class Release(NamedTuple):
  """Noisy sums that one place of a program releases."""

  times: int  # in one run of the program
  clip_norm: numbers.Number
  noise_multiplier: numbers.Number
  honest: float  # shares of noise that have the multiplier together
  where: str | None
  keys: tuple[numbers.Number, ...]  # of its noise
  clients: tuple[int, int] | None = None  # whose samples they are of, if any


def of_one(found: list[Release]) -> list[Release]:
  """Return the most releases that one sample or client is in."""
  groups: dict[Any, list[Release]] = {}
  for release in found:
    groups.setdefault(release.clients, []).append(release)
  if None in groups:
    return found
  spans = sorted(groups)
  apart = all(x[1] <= y[0] for x, y in itertools.pairwise(spans))
  times = lambda group: sum(release.times for release in group)
  return max(groups.values(), key=times, default=[]) if apart else found


ZEROS = Part()


def earlier(loop: Any) -> Any:
  """Return what stands for all steps of a loop before the present one."""
  return ('earlier', loop)


def after(eqn: core.JaxprEqn, parts: Sequence[Part | None]) -> Part | None:
  """Return the part that an operation keeps; None: it keeps none.

  Selections are by `selected`.
  """
  name = eqn.primitive.name
  if name in ('add', 'add_any'):
    return _added(*parts)
  part = parts[0] if parts else None
  if part is None:
    return None
  if name == 'reduce_sum':
    dims = eqn.params['axes']
    axes = tuple(rows.less(a, dims) for a in part.axes if a not in dims)
    return part._replace(axes=axes) if {*dims} <= {*part.axes} else None
  if name in ('psum', 'psum_invariant'):
    is_sum = part.of_shard and not part.axes and len(parts) == 1
    return part._replace(of_shard=False) if is_sum else None
  if name not in _LAYOUT or not _same_integers(eqn):
    return None
  axes = part.axes and rows.RULES[name](eqn, 0, part.axes)
  return None if axes is None else part._replace(axes=axes)


def selected(
  parts: Sequence[Part | None], by: rows.Rows | None = None
) -> Part | None:
  """Return one part or zeros, chosen by its own clients' data or public ones.

  `by` are the rows of these data; None: it is public.
  """
  found = {*parts} - {ZEROS}
  if None in found or len(found) > 1:
    return None
  part: Any = found.pop() if found else ZEROS
  if by is None or not part.terms:
    return part
  aligned = by.axes == part.axes or by.lanes
  aligned = aligned or (by.axes and {*by.axes} <= {*part.axes})
  now = all(x.loops == by.loops for x in part.terms)
  return part if aligned and now else None


def is_of_another_bound(a: Part | None, b: Part | None) -> bool:
  """Return whether noise is added to contributions of another grid."""
  if a is None or b is None or ZEROS in (a, b):
    return False
  return bool(a.terms) != bool(b.terms) and a.scale is not b.scale


def _added(a: Part | None, b: Part | None) -> Part | None:
  if a == ZEROS:
    return b
  if b == ZEROS:
    return a
  if a is None or b is None:
    return None
  leaves = {x.leaf for x in (a, b) if x.terms}
  overlap = any(_overlap(x, y) for x in a.terms for y in b.terms)
  # Noise of the server is added after the sum over shards, else it is drawn
  # for each of them.
  too_early = not a.axes and bool(a.noise) != bool(b.noise)
  too_early = too_early and (a.of_shard or b.of_shard)
  if (a.noise and b.noise) or len(leaves) > 1 or overlap or too_early:
    return None
  if a.axes != b.axes or a.scale is not b.scale:
    return None
  return Part(
    leaves.pop() if leaves else None, a.terms | b.terms, a.axes, a.scale,
    a.noise or b.noise, a.of_shard or b.of_shard,
  )  # fmt: skip


def _overlap(x: Term, y: Term) -> bool:
  """Return whether some client may be in both."""
  if x.span and y.span:
    if x.span[1] <= y.span[0] or y.span[1] <= x.span[0]:
      return False
  pairs = zip(x.loops, y.loops, strict=False)
  return not any(a == earlier(b) or b == earlier(a) for a, b in pairs)


def _same_integers(eqn) -> bool:
  x, y = eqn.invars[0].aval, eqn.outvars[0].aval
  whole = all(jnp.issubdtype(z.dtype, jnp.integer) for z in (x, y))
  return whole and x.dtype.itemsize == y.dtype.itemsize and x.size == y.size
