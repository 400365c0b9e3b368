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

FORMAT, NAME = 2, 'certificate.json'
_SMALL = 16  # entries of constants that are compared by value
# Operations that pass their arguments on, those with programs that are no
# calls, and names of operations that another one has the rule of.
_SAME = ('copy', 'copy_p', 'optimization_barrier', 'pvary')
_PROGRAMS = ('cond', 'scan', 'shard_map', 'while')
_RENAMED = {'add_any': 'add', 'psum_invariant': 'psum', 'squeeze': 'reshape'}


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
    'program': program, 'variables': writer.variables,
    'kinds': [*writer.kinds],
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
  words += [flow.MIXED] * (flow.MIXED in value.labels)
  words += ['secret'] * (flow.NOISE in value.labels)
  return ', '.join(words) or 'public'


class _Writer:
  """Writes programs without calls, and numbers variables, kinds and arrays."""

  def __init__(self, walk):
    self.types, self.kinds = walk.types, {}
    self.variables: list[Any] = []
    self.arrays: dict[Any, int] = {}

  def program(self, jaxpr, path):
    """Return a program: its arguments, equations and results."""
    bare, equations = getattr(jaxpr, 'jaxpr', jaxpr), []
    arguments = self._define(bare.invars, self.types[(*path, id(bare))])
    results = self._equations(jaxpr, path, arguments, equations)
    return {
      'arguments': arguments, 'equations': equations, 'results': results,
    }  # fmt: skip

  def _equations(self, jaxpr, path, given, equations):
    """Add equations, also those of calls; return the results."""
    consts, jaxpr = getattr(jaxpr, 'consts', ()), getattr(jaxpr, 'jaxpr', jaxpr)
    names = dict(zip(jaxpr.invars, given, strict=True))

    def constant(var, value):
      outs = self._define([var], [flow.PUBLIC])
      equations.append(['constant', self._constant(value), [], outs, []])
      return outs[0]

    if consts:
      values = map(constant, jaxpr.constvars, consts)
      names |= zip(jaxpr.constvars, values, strict=True)
    read = lambda x: (
      constant(x, x.val) if isinstance(x, core.Literal) else names[x]
    )
    for eqn in jaxpr.eqns:
      name, args = eqn.primitive.name, [*map(read, eqn.invars)]
      here, inner = (*path, id(eqn)), self._inner(eqn, path)
      if name in _SAME:
        outs = args
      elif inner and name not in _PROGRAMS:
        outs = self._equations(inner[0], here, args, equations)
      else:
        outs = self._define(eqn.outvars, self.types[here])
        name, params = _plain_form(name, eqn)
        programs = [self.program(x, here) for x in inner]
        equations.append([name, params, args, outs, programs])
      names |= zip(eqn.outvars, outs, strict=True)
    return [*map(read, jaxpr.outvars)]

  def _define(self, some, values):
    """Return the numbers of new variables."""
    for var, value in zip(some, values, strict=True):
      kind = self.kinds.setdefault(kind_of(value), len(self.kinds))
      dtype = str(getattr(var.aval, 'dtype', 'none'))
      shape = [*getattr(var.aval, 'shape', ())]
      self.variables.append([dtype, shape, kind])
    return [*range(len(self.variables) - len(values), len(self.variables))]

  def _inner(self, eqn, path):
    path, programs = (*path, id(eqn)), core.jaxprs_in_params(eqn.params)
    # Others say how an operation combines numbers, which no rule looks at.
    typed = lambda x: (*path, id(getattr(x, 'jaxpr', x))) in self.types
    return [x for x in programs if typed(x)]

  def _constant(self, value):
    """Return the value of a scalar; the name of an array, and if it is 0."""
    dtype, shape = str(getattr(value, 'dtype', '')), [*np.shape(value)]
    plain = dtype and not dtype.startswith('key')
    if not shape and plain:
      return {'value': np.asarray(value).item()}
    small = plain and np.size(value) <= _SMALL
    key = (dtype, *shape, np.asarray(value).tobytes()) if small else id(value)
    zero = bool(small and not np.any(np.asarray(value)))
    named = self.arrays.setdefault(key, len(self.arrays))
    return {'array': named, 'zero': zero}


def _plain_form(name, eqn):
  """Return the name and parameters of an equation, for one rule where it can.

  It has no defaults, and no programs, places or functions.
  """
  params: dict[str, Any] = {k: _plain(x) for k, x in eqn.params.items()}
  if name == 'slice' and params['strides'] is None:
    params['strides'] = [1] * len(params['start_indices'])
  params = {k: x for k, x in params.items() if x is not None}
  return _RENAMED.get(name, name), params


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
