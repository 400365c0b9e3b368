"""Write what was proved of a private round, for a checker to prove it again.

A certificate has the round as a list of equations, with what the walk knows of
each value, its releases, and the inputs of the account. Its checker,
`privacy/check_certificate.py`, shares no code with the library.
Tested with JAX 0.10 and 0.11: uses `jax.extend.core`.
"""

from collections.abc import Mapping, Sequence
import importlib.metadata
import json
import types
from typing import Any, NamedTuple

from fl_sketch.privacy.noninterference import flow, numbers, releases
from fl_sketch.utils import __version__
from jax.extend import core
import numpy as np

FORMAT, NAME = 1, 'certificate.json'
_SMALL = 16  # entries of constants that are compared by value


class Round(NamedTuple):
  """A program that a walk has typed, and the names of what it takes and has."""

  program: core.ClosedJaxpr
  walk: releases.Proof
  arguments: Sequence[tuple[str, str]]  # names and kinds
  results: Sequence[tuple[str, str]]
  hyper: Mapping[str, float] = types.MappingProxyType({})  # its numbers


def text(proved: Round, **about: Any) -> str:
  """Return a certificate as JSON, the same text for the same round.

  `about` has the account and whatever else a run says of itself.
  """
  walk, writer = proved.walk, _Writer(proved.walk)
  packages = {x: importlib.metadata.version(x) for x in ('jax', 'jaxlib')}
  program = writer.program(proved.program, ())
  body = {
    'format': FORMAT, 'versions': {'fl_sketch': __version__} | packages,
    **about, 'unit': walk.unit, 'arguments': [*map(list, proved.arguments)],
    'results': [*map(list, proved.results)], 'hyper': dict(proved.hyper),
    'trusted': [list(x) for x in walk.shown.trusted],
    'releases': [_release(x, proved.hyper) for x in walk.shown.releases],
    'program': program, 'kinds': [*writer.kinds],
  }  # fmt: skip
  lines = [json.dumps(k) + ': ' + _dumped(v) for k, v in body.items()]
  return '{\n' + ',\n'.join(lines) + '\n}\n'


def _dumped(value) -> str:
  return json.dumps(value, separators=(',', ':'))


def _release(release, hyper):
  value = lambda x: numbers.value_of(x, hyper)
  return {
    'times': release.times, 'clip_norm': value(release.clip_norm),
    'noise_multiplier': value(release.noise_multiplier),
    'honest': release.honest, 'where': release.where,
    'keys': sorted({*map(_expression, release.keys)}),
    'clients': release.clients,
  }  # fmt: skip


def _expression(number) -> str:
  """Return a key as a function of arguments."""
  if number.op == 'argument':
    return number.params
  if number.op == 'literal':
    return str(number.value) if number.value.ndim == 0 else 'array'
  return f'{number.op}({", ".join(map(_expression, number.args))})'


def kind_of(value: flow.Value) -> str:
  """Return what is known of a value, in words.

  >>> kind_of(flow.PUBLIC)
  'public'
  """
  words, part = [], value.part
  if part is not None and (part.terms or part.noise):
    names = 'contribution' if part.axes else 'sum'
    names = [names] * bool(part.terms) + ['noise'] * bool(part.noise)
    along = f' along {[*map(int, part.axes)]}' if part.axes else ''
    words.append(' + '.join(names) + along + ' of a shard' * part.of_shard)
  if value.rows is not None and flow.DATA in value.labels:
    one = "one client's"
    axes = [*map(int, value.rows.axes)]
    words.append(f'rows along {axes}' if axes else one)
  words += [x for x in (flow.MIXED, flow.CHANGED) if x in value.labels]
  words += ['secret'] * (flow.NOISE in value.labels)
  return ', '.join(words) or 'public'


class _Writer:
  """Writes programs, and numbers the kinds and constants in them."""

  def __init__(self, walk):
    self.types, self.kinds = walk.types, {}
    self.arrays: dict[Any, int] = {}

  def program(self, jaxpr, path):
    """Return a program, whose variables are numbered from 0."""
    consts = [self._constant(x) for x in getattr(jaxpr, 'consts', ())]
    key = *path, id(getattr(jaxpr, 'jaxpr', jaxpr))
    jaxpr = getattr(jaxpr, 'jaxpr', jaxpr)
    names: dict[Any, int] = {}
    variables: list[Any] = []

    def define(some, values):
      for var, value in zip(some, values, strict=True):
        names[var] = len(variables)
        kind = None if value is None else self._kind(value)
        variables.append([*_type(var.aval), kind])
      return len(some)

    read = lambda x: (
      self._constant(x.val) if isinstance(x, core.Literal) else names[x]
    )
    constants = define(jaxpr.constvars, [None] * len(consts))
    arguments = define(jaxpr.invars, self.types[key])
    equations = []
    for eqn in jaxpr.eqns:
      given, inner = [*map(read, eqn.invars)], self._inner(eqn, path)
      first = len(variables)
      count = define(eqn.outvars, self.types[(*path, id(eqn))])
      params = self._params(eqn.params)
      name = eqn.primitive.name
      equations.append([name, params, given, first, count, inner])
    return {
      'constants': consts, 'arguments': [constants, arguments],
      'variables': variables, 'equations': equations,
      'results': [*map(read, jaxpr.outvars)],
    }  # fmt: skip

  def _inner(self, eqn, path):
    path, programs = (*path, id(eqn)), core.jaxprs_in_params(eqn.params)
    # Others say how an operation combines numbers, which no rule looks at.
    typed = lambda x: (*path, id(getattr(x, 'jaxpr', x))) in self.types
    return [self.program(x, path) for x in programs if typed(x)]

  def _kind(self, value):
    return self.kinds.setdefault(kind_of(value), len(self.kinds))

  def _constant(self, value):
    """Return [type, shape, value] of a scalar, or [.., whether 0, its name]."""
    dtype, shape = str(getattr(value, 'dtype', '')), [*np.shape(value)]
    plain = dtype and not dtype.startswith('key')
    if not shape and plain:
      return [dtype, shape, np.asarray(value).item()]
    small = plain and np.size(value) <= _SMALL
    key = (dtype, *shape, np.asarray(value).tobytes()) if small else id(value)
    zero = bool(small and not np.any(np.asarray(value)))
    return [dtype, shape, zero, self.arrays.setdefault(key, len(self.arrays))]

  def _params(self, params):
    given = {k: _plain(x) for k, x in params.items()}
    return {k: x for k, x in given.items() if x is not None}


def _type(aval):
  return [str(getattr(aval, 'dtype', 'none')), [*getattr(aval, 'shape', ())]]


def _plain(value):
  """Return a parameter for JSON; None of programs, places and functions."""
  if hasattr(value, '_asdict'):
    value = value._asdict()
  if isinstance(value, Mapping):
    return {str(k): _plain(x) for k, x in value.items()}
  if isinstance(value, tuple | list):
    found = [_plain(x) for x in value]
    return found if None not in found or None in value else None
  if isinstance(value, np.dtype | np.generic):
    return str(value) if isinstance(value, np.dtype) else value.item()
  if isinstance(value, bool | int | float | str):
    return value
  if type(value).__name__ == 'GatherDimensionNumbers':
    return vars(value)
  return None
