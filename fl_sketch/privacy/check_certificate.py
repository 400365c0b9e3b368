"""Check the certificate of a private run, with NumPy and nothing of the run.

  python check_certificate.py WORKDIR/certificate.json

A certificate has one round as a list of equations. This file gives every value
a type by rules of its own, compares them with the types in the certificate,
finds the releases, and computes epsilon anew. A value is public, or depends on
data of clients, which are

* rows along axes: slices of it are of one client each; or one client's;
* mixed: of several clients;
* a contribution, which a client's own bound limits; a sum of contributions with
  each client at most once; noise; or a sum with noise;
* secret: made of the secret key.

A release, of a sum with fresh noise of its own bound, is public. The exit
status is 0 only if everything holds.
"""

from collections.abc import Callable
import itertools
import json
import math
import sys
from typing import Any, NamedTuple

import numpy as np

DATA, SECRET, MIXED, CHANGED = 'data', 'secret', 'mixed', 'changed'


class Refused(Exception):
  """The certificate does not show what it claims."""


class Rows(NamedTuple):
  """Slices of a value along `axes` are of one client each; (): all of it is."""

  axes: tuple = ()
  span: Any = None  # which clients of the cohort, along a single axis
  loops: tuple = ()  # scans over clients, of which it is one step
  untouched: bool = False  # no equation has combined its entries
  lanes: bool = False  # it is of one client a lane of a map over clients


class Part(NamedTuple):
  """Contributions or their sum, with or without noise; else zeros."""

  leaf: Any = None
  terms: frozenset = frozenset()  # (mark, span, loops) of clients, once each
  axes: tuple = ()
  scale: Any = None
  noise: Any = None  # (key, array, whether each entry of keys is another)
  of_shard: bool = False


class Value(NamedTuple):
  """What is known of a value."""

  labels: frozenset = frozenset()
  rows: Any = None
  part: Any = None
  number: Any = None


class Number:
  """An expression; its entries all differ along the axes and loops `fresh`."""

  def __init__(self, op, params, args, fresh, varies, secret, zero):
    self.op, self.params, self.args, self.secret = op, params, args, secret
    self.fresh, self.varies, self.zero = fresh, fresh | varies, zero

  def text(self) -> str:
    """Return it as a function of arguments."""
    if self.op in ('argument', 'literal'):
      return str(self.params[-1])
    return f'{self.op}({", ".join(x.text() for x in self.args)})'


class Equation:
  """One equation of a program; `ins` and `outs` are (dtype, shape)."""

  def __init__(self, name, params, ins, outs, inner, path):
    self.name, self.params, self.path = name, params, path
    self.ins, self.outs, self.inner = ins, outs, inner


PUBLIC, ZEROS = Value(), Part()
NONE, ANY_AXIS = frozenset(), frozenset(range(32))
# Primitives whose results depend on the same entries of their arguments.
ELEMENTWISE = frozenset(
  'abs acos acosh add add_any and asin asinh atan atan2 atanh cbrt ceil clamp '
  'clz convert_element_type copy copy_p cos cosh distinct div eq erf erf_inv '
  'erfc exp exp2 expm1 floor ge gt imag integer_pow is_finite le lgamma log '
  'log1p logistic lt max min mul ne neg nextafter not or population_count pow '
  'pvary random_fold_in random_unwrap random_wrap real reduce_precision rem '
  'reshard round rsqrt select_n sharding_constraint shift_left '
  'shift_right_arithmetic shift_right_logical sign sin sinh sqrt square '
  'stop_gradient sub tan tanh xor'.split()
)
REDUCTIONS = (
  'argmax argmin reduce_and reduce_max reduce_min reduce_or reduce_prod '
  'reduce_sum reduce_xor'
).split()
COLLECTIVES = (
  'psum psum_invariant pmax pmin all_gather all_gather_invariant all_to_all '
  'reduce_scatter ppermute'
).split()
# They mix rows, and act on nothing else; any other name is refused.
PURE = frozenset(
  'approx_top_k axis_index bessel_i0e bessel_i1e bitcast_convert_type cholesky '
  'cholesky_update complex conj conv_general_dilated cummax cummin cumprod '
  'cumsum cumlogsumexp custom_linear_solve device_put digamma dot_general '
  'dynamic_slice dynamic_update_slice eig eigh fft geqrf hessenberg '
  'householder_product igamma igammac iota lu lu_pivots_to_permutation name '
  'platform_index polygamma qr ragged_dot_general random_clone random_seed '
  'reduce reduce_window reduce_window_max reduce_window_min reduce_window_sum '
  'rev rng_bit_generator scaled_dot scatter-add scatter-max scatter-min '
  'scatter-mul scatter-sub scatter_sub schur select_and_gather_add '
  'select_and_scatter select_and_scatter_add sort svd threefry2x32 tile '
  'triangular_solve tridiagonal tridiagonal_solve unstack zeta'.split()
)
LAYOUT = (
  'broadcast_in_dim convert_element_type reshape reshard sharding_constraint '
  'squeeze transpose'
).split()
CHOICES = {
  'broadcast_in_dim', 'gather', 'pad', 'reshape', 'slice', 'split', 'squeeze',
  'transpose',
}  # fmt: skip
EQUAL = 'pvary', 'copy', 'copy_p'


def less(axis: int, gone) -> int:
  """Return an axis after other axes have left."""
  return axis - sum(g < axis for g in gone)


def each(rule) -> Callable[..., Any]:
  """Make a rule for axes of one for an axis: (equation, argument, axis)."""

  def of_axes(eqn, n, axes):
    moved = tuple(rule(eqn, n, axis) for axis in axes)
    return None if None in moved else moved

  return of_axes


def unless(mixes) -> Callable[..., Any]:
  """Make a rule that keeps an axis unless mixes(parameters, axis)."""
  return each(lambda eqn, n, axis: None if mixes(eqn.params, axis) else axis)


def _reduced(key):
  def rule(eqn, n, axis):
    gone = eqn.params[key]
    return None if axis in gone else less(axis, gone)

  return each(rule)


def _broadcast(eqn, n, axis):
  to = eqn.params['broadcast_dimensions'][axis]
  return to if eqn.outs[0][1][to] == eqn.ins[n][1][axis] else None


def _reshaped(eqn, n, axes):
  """Follow neighbouring axes, which may be split or merged."""
  shape, out = eqn.ins[n][1], eqn.outs[0][1]
  first, last = min(axes), max(axes) + 1
  if len(axes) != last - first:
    return None
  before, size = math.prod(shape[:first]), math.prod(shape[first:last])
  for start in reversed(range(len(out))):
    for end in range(start + 1, len(out) + 1):
      sizes = math.prod(out[:start]), math.prod(out[start:end])
      if sizes == (before, size):
        return tuple(range(start, end))
  return None


def _gathered(eqn, n, axis):
  p = eqn.params['dimension_numbers']
  out = range(len(eqn.outs[0][1]))
  batch = [d for d in out if d not in p['offset_dims']]
  if n == 1:
    return batch[axis] if axis < len(batch) else None
  if axis in p['operand_batching_dims']:
    k = p['operand_batching_dims'].index(axis)
    return batch[p['start_indices_batching_dims'][k]]
  whole = eqn.params['slice_sizes'][axis] == eqn.ins[0][1][axis]
  if axis in p['start_index_map'] or not whole:
    return None
  gone = {*p['collapsed_slice_dims'], *p['operand_batching_dims']}
  return p['offset_dims'][less(axis, gone)]


def _scattered(eqn, n, axis):
  """Keep axes that the operand, indices and updates have in common."""
  p = eqn.params['dimension_numbers']
  common = p['operand_batching_dims']
  if n == 0:
    return axis if axis in common else None
  aligned = p['scatter_indices_batching_dims']
  outer = axis if n == 1 else less(axis, p['update_window_dims'])
  window = n == 2 and axis in p['update_window_dims']
  return (
    common[aligned.index(outer)] if outer in aligned and not window else None
  )


SAME = each(lambda eqn, n, axis: axis)
RULES: dict[str, Callable[..., Any]] = {
  **dict.fromkeys(ELEMENTWISE, SAME),
  **dict.fromkeys(REDUCTIONS, _reduced('axes')),
  **dict.fromkeys(('random_bits', 'random_split', 'split'), SAME),
  'broadcast_in_dim': each(_broadcast),
  'concatenate': unless(lambda p, axis: axis == p['dimension']),
  'gather': each(_gathered),
  'pad': unless(lambda p, axis: any(p['padding_config'][axis][::2])),
  'reshape': _reshaped,
  'scatter': each(_scattered),
  'slice': unless(lambda p, a: p.get('strides') and p['strides'][a] != 1),
  'squeeze': _reduced('dimensions'),
  'stack': each(lambda eqn, n, axis: axis + (axis >= eqn.params['axis'])),
  'top_k': each(
    lambda eqn, n, axis: (
      None if axis == eqn.params['axis'] % len(eqn.ins[0][1]) else axis
    )
  ),
  'transpose': each(lambda eqn, n, a: eqn.params['permutation'].index(a)),
}  # fmt: skip
KNOWN = PURE | RULES.keys() | {*COLLECTIVES}


def span_of(eqn, out, rows) -> Any:
  """Return the clients of a result whose axis of clients may be cut."""
  if rows.span is None or len(rows.axes) != 1:
    return rows.span
  (axis,), (low, high), p = rows.axes, rows.span, eqn.params
  start, size = 0, high - low
  if eqn.name == 'slice':
    start = p['start_indices'][axis]
    size = p['limit_indices'][axis] - start
  elif eqn.name == 'split' and p['axis'] == axis:
    start, size = sum(p['sizes'][:out]), p['sizes'][out]
  elif eqn.name == 'pad':
    size += min(p['padding_config'][axis][1], 0)
  return min(low + start, high), min(low + start + size, high)


def rows_after(eqn, out, rows) -> Any:
  """Return the rows of a result; None where clients are mixed."""
  found = [(n, x) for n, x in enumerate(rows) if x is not None]
  first = found[0][1]
  kept = eqn.name in ELEMENTWISE or eqn.name in CHOICES
  untouched = len(found) == 1 and first.untouched and kept
  if all(x.axes == () and x.loops == first.loops for _, x in found):
    spans = {x.span for _, x in found} - {None}
    lanes = any(x.lanes for _, x in found)
    span = next(iter(spans), None)
    made = Rows((), span, first.loops, untouched, lanes)
    return None if len(spans) > 1 else made
  if eqn.name == 'concatenate' and first.axes == (eqn.params['dimension'],):
    return _joined(eqn, rows)
  rule = RULES.get(eqn.name)
  if rule is None or len({(x.span, x.loops) for _, x in found}) > 1:
    return None
  moved = {rule(eqn, n, x.axes) for n, x in found}
  if None in moved or len(moved) > 1:
    return None
  return Rows(moved.pop(), span_of(eqn, out, first), first.loops, untouched)


def _joined(eqn, rows):
  """Concatenate rows of clients that follow one another, then public rows."""
  known = [x for x in rows if x is not None]
  (axis,), end = known[0].axes, known[0].span and known[0].span[0]
  for n, row in enumerate(known):
    alike = rows[n] is row and row.span and row.span[0] == end
    size = eqn.ins[n][1][axis]
    if not alike or row._replace(span=None) != known[0]._replace(span=None):
      return None
    if row.span[1] - row.span[0] > size:
      return None
    end = row.span[1]
  return known[0]._replace(span=(known[0].span[0], end))


def part_after(eqn, parts) -> Any:
  """Return the contribution, sum or noise that a result is; None: none."""
  if eqn.name in ('add', 'add_any'):
    return added(*parts)
  part = parts[0] if parts else None
  if part is None:
    return None
  if eqn.name == 'reduce_sum':
    gone = eqn.params['axes']
    axes = tuple(less(a, gone) for a in part.axes if a not in gone)
    return part._replace(axes=axes) if {*gone} <= {*part.axes} else None
  if eqn.name in ('psum', 'psum_invariant'):
    whole = part.of_shard and not part.axes and len(parts) == 1
    return part._replace(of_shard=False) if whole else None
  (before, shape), (after, to) = eqn.ins[0], eqn.outs[0]
  integers = {'int32', 'uint32'}, {'int64', 'uint64'}
  same = any({before, after} <= kind for kind in integers)
  if eqn.name not in (*LAYOUT, *EQUAL) or not same:
    return None
  if math.prod(shape) != math.prod(to):
    return None
  axes = part.axes and RULES[eqn.name](eqn, 0, part.axes)
  return None if axes is None else part._replace(axes=axes)


def added(a, b) -> Any:
  """Return the sum of parts: other clients, or noise of the same scale."""
  if a is None or b is None or ZEROS in (a, b):
    return b if a == ZEROS else a if b == ZEROS else None
  leaves = {x.leaf for x in (a, b) if x.terms}
  twice = any(_overlap(x, y) for x in a.terms for y in b.terms)
  noise_of_one = not a.axes and bool(a.noise) != bool(b.noise)
  too_early = noise_of_one and (a.of_shard or b.of_shard)
  both = a.noise and b.noise
  if both or twice or too_early or len(leaves) > 1:
    return None
  if a.axes != b.axes or a.scale is not b.scale:
    return None
  leaf, noise = next(iter(leaves), None), a.noise or b.noise
  shard = a.of_shard or b.of_shard
  return Part(leaf, a.terms | b.terms, a.axes, a.scale, noise, shard)


def _overlap(x, y) -> bool:
  """Return whether a client may be in both terms."""
  (_, a, one), (_, b, other) = x, y
  if a and b and (a[1] <= b[0] or b[1] <= a[0]):
    return False
  pairs = zip(one, other, strict=False)
  return not any(p == ('earlier', q) or q == ('earlier', p) for p, q in pairs)


def selected(parts, by=None) -> Any:
  """Return one part or zeros, chosen by public or by its clients' data."""
  found = {*parts} - {ZEROS}
  if None in found or len(found) > 1:
    return None
  part = found.pop() if found else ZEROS
  if by is None or not part.terms:
    return part
  aligned = by.axes == part.axes or by.lanes
  aligned = aligned or (by.axes and {*by.axes} <= {*part.axes})
  now = all(loops == by.loops for _, _, loops in part.terms)
  return part if aligned and now else None


def in_loops(part, change) -> Any:
  """Return a part with other loops; those that become None leave."""
  if part is None:
    return None
  moved = lambda loops: tuple(
    y for y in (change.get(x, x) for x in loops) if y is not None
  )
  terms = frozenset((m, span, moved(loops)) for m, span, loops in part.terms)
  return part._replace(terms=terms)


def kind_of(value: Value) -> str:
  """Return a type in the words of the certificate."""
  words, part = [], value.part
  if part is not None and (part.terms or part.noise):
    names = ['contribution' if part.axes else 'sum'] * bool(part.terms)
    names += ['noise'] * bool(part.noise)
    along = f' along {list(part.axes)}' if part.axes else ''
    words.append(' + '.join(names) + along + ' of a shard' * part.of_shard)
  if value.rows is not None and DATA in value.labels:
    axes = value.rows.axes
    words.append(f'rows along {list(axes)}' if axes else "one client's")
  words += [x for x in (MIXED, CHANGED, SECRET) if x in value.labels]
  return ', '.join(words) or 'public'


class Walk:
  """A type checker of a round's equations; it collects errors and releases."""

  def __init__(self, certificate):
    self.kinds, self.hyper = certificate['kinds'], certificate['hyper']
    self.unit = certificate['unit']
    self.wrong, self.releases, self.used = [], [], set()
    self.table, self.scans, self.clients = {}, {}, ()
    self.shards = 0
    self.scans_rounds = len(ids_shape(certificate)) > 1

  def number(
    self, op, params=(), args=(), fresh=NONE, varies=NONE, secret=False,
    zero=False,
  ):  # fmt: skip
    """Return the number of an expression: one object for equal ones."""
    key = op, repr(params), *map(id, args)
    made = Number(op, params, args, fresh, varies, secret, zero)
    return self.table.setdefault(key, made)

  def unknown(self, eqn, n):
    """Return a number that nothing else is equal to."""
    places = ANY_AXIS | self.scans.keys()
    return self.number('unknown', (eqn.path, n), (), varies=places)

  def constant(self, x) -> Value:
    """Return a literal: [type, shape, value] or [.., whether 0, its name]."""
    axes = frozenset(range(len(x[1])))
    zero = x[2] is True if axes or len(x) > 3 else not x[2]
    params = x[2] if len(x) == 3 else 'array'
    params = *x[:2], *x[3:], params
    return Value(
      number=self.number('literal', params, (), varies=axes, zero=zero)
    )

  def program(self, program, values, path) -> list:
    """Return the values of a program's results; compare types on the way."""
    env = [self.constant(x) for x in program['constants']] + list(values)
    variables, start = program['variables'], len(program['constants'])
    if [start, len(values)] != program['arguments']:
      raise Refused(f'{path}: a program has other arguments than its caller')
    read = lambda x: env[x] if isinstance(x, int) else self.constant(x)
    type_of = lambda x: tuple(variables[x][:2] if isinstance(x, int) else x[:2])
    self.compare(env, variables, start, path)
    for n, row in enumerate(program['equations']):
      name, params, given, first, count, inner = row
      here, outs = (*path, n), variables[first : first + count]
      types = [type_of(x) for x in given], [tuple(x[:2]) for x in outs]
      if first != len(env) or any(
        isinstance(x, int) and not 0 <= x < first for x in given
      ):
        raise Refused(f'{here}: {name} has variables out of order')
      eqn = Equation(name, params, *types, inner, here)
      env += self.equation(eqn, [read(x) for x in given])
      if len(env) != first + count:
        raise Refused(f'{here}: {name} has other results')
      self.compare(env, variables, first, here)
    return [read(x) for x in program['results']]

  def compare(self, env, variables, first, path):
    """Compare types from a variable on with those of the certificate."""
    for n in range(first, len(env)):
      claimed, own = self.kinds[variables[n][2]], kind_of(env[n])
      if claimed != own:
        self.wrong.append(f'{path}: variable {n} is {own}, not {claimed}')

  def equation(self, eqn, values) -> list:
    """Return the results of an equation."""
    name, inner = eqn.name, eqn.inner
    if mark := getattr(self, f'_mark_{name}', None):
      return mark(eqn, values)
    if name in ('scan', 'while', 'cond', 'shard_map'):
      before = self.scans, self.clients
      results = getattr(self, f'_{name}')(eqn, values)
      self.scans, self.clients = before
      return results
    if inner:
      return self.program(inner[0], values, (*eqn.path, 0))
    if name == 'optimization_barrier':
      return values
    if name not in KNOWN and any(x.labels for x in values):
      raise Refused(f'{eqn.path}: {name} has no rule')
    return [self.result(eqn, n, values) for n in range(len(eqn.outs))]

  def result(self, eqn, out, values) -> Value:
    """Return a result by the rules of labels, rows, parts and numbers."""
    labels = NONE.union(*(x.labels for x in values))
    given = [*map(part_of, values)]
    if eqn.name == 'select_n':
      part = self.selected(values[0], given[1:])
    else:
      part = part_after(eqn, given)
    rows = None
    if DATA in labels:
      rows = self.rows(eqn, out, values)
      labels = labels if rows else labels | {MIXED}
      labels = changed(labels, part, given)
    return Value(labels, rows, part, self.numbered(eqn, out, values))

  def rows(self, eqn, out, values):
    """Return the rows of a result; None: clients are mixed."""
    found = [x.rows for x in values]
    unknown = any(x.rows is None for x in values if DATA in x.labels)
    if unknown or eqn.name in COLLECTIVES:
      return None
    if eqn.name in ('gather', 'scatter') and is_ids(values[1].number):
      given = (found[0], *found[2:])
      by_first = all(x is None or x.axes == (0,) for x in given)
      return Rows((0,), (0, eqn.outs[0][1][0])) if by_first else None
    return rows_after(eqn, out, found)

  def selected(self, by, parts):
    """Return the part that a value chooses."""
    if DATA not in by.labels:
      return selected(parts)
    return by.rows and selected(parts, by.rows)

  def chosen(self, by, values) -> Value:
    """Return a result that is one of several values."""
    labels = by.labels.union(*(x.labels for x in values))
    given = [*map(part_of, values)]
    part = self.selected(by, given)
    found = [x.rows for x in values if DATA in x.labels]
    # A choice by lanes is of each of them.
    if DATA in by.labels and not (found and by.rows and by.rows.lanes):
      found.append(by.rows)
    plain = {x and x._replace(untouched=False) for x in found}
    if len(plain) > 1 or None in plain:
      labels, plain = labels | {MIXED}, {None}
    labels, numbers = changed(labels, part, given), {x.number for x in values}
    same = len(numbers) == 1 and not by.labels
    number = numbers.pop() if same else None
    return Value(labels, plain.pop() if plain else None, part, number)

  def numbered(self, eqn, out, values) -> Number:
    """Return what a result is equal to, and where it never repeats."""
    name = eqn.name
    args = [x.number or self.unknown(eqn, n) for n, x in enumerate(values)]
    if name == 'random_wrap' and args[0].op == 'random_unwrap':
      return args[0].args[0]
    if name in EQUAL:
      return args[0]
    axes, fresh = frozenset(range(len(eqn.outs[out][1]))), NONE
    first: Any = args[0] if args else None
    moved: list[Any] = [
      self.moved(eqn, n, x.varies) for n, x in enumerate(args)
    ]
    varies = axes.union(*(x.varies - ANY_AXIS for x in args))
    if args and None not in moved and name != 'random_split':
      varies = NONE.union(*moved)
    if name == 'iota':
      fresh = frozenset({eqn.params['dimension']})
    elif name in ('add', 'sub'):  # a + b is equal for many pairs
      fresh = first.fresh - args[1].varies or args[1].fresh - first.varies
    elif name == 'random_fold_in':
      key, by = args
      apart = not (key.fresh & by.varies and by.fresh & key.varies)
      fresh = key.fresh | (by.fresh if apart else NONE)
    elif name == 'random_split':
      fresh = first.fresh | (axes - frozenset(range(len(eqn.ins[0][1]))))
    elif name in ('gather', 'dynamic_slice'):  # always the same one
      if not any(x.varies for x in args[1:]):
        fresh = first.fresh - ANY_AXIS
    elif name == 'convert_element_type' and not widens(eqn):
      fresh = NONE  # different integers may become equal
    elif name in (*LAYOUT, 'slice', 'random_wrap'):
      kept = [self.moved(eqn, 0, frozenset({x})) for x in first.fresh]
      fresh = NONE.union(*filter(None, kept))
    of_key = {*LAYOUT, 'random_fold_in', 'random_split', 'random_wrap'}
    secret = name in of_key | {'gather', 'dynamic_slice'} and first.secret
    params = out, sorted(eqn.params.items())
    zero = name in (*LAYOUT, 'slice') and first.zero
    return self.number(name, params, args, fresh, varies, secret, zero)

  def moved(self, eqn, n, places):
    """Follow axes among places to a result; None: not all of them."""
    axes = [x for x in places & ANY_AXIS if x < len(eqn.ins[n][1])]
    rule = RULES.get(eqn.name)
    to = [rule and rule(eqn, n, (a,)) for a in axes]
    return None if None in to else (places - ANY_AXIS).union(*to)

  # Programs within equations.

  def _shard_map(self, eqn, values):
    anew = lambda x, kind: (
      x._replace(rows=x.rows._replace(span=(0, kind[1][x.rows.axes[0]])))
      if x.rows and len(x.rows.axes) == 1
      else x
    )
    inner = eqn.inner[0]
    kinds = [x[:2] for x in inner['variables'][inner['arguments'][0] :]]
    self.shards += 1
    values = [anew(*x) for x in zip(values, kinds, strict=False)]
    results = self.program(inner, values, (*eqn.path, 0))
    self.shards -= 1
    return [anew(*x) for x in zip(results, eqn.outs, strict=True)]

  def _cond(self, eqn, values):
    by, *values = values
    branches = [
      self.program(x, values, (*eqn.path, n)) for n, x in enumerate(eqn.inner)
    ]
    return [self.chosen(by, x) for x in zip(*branches, strict=True)]

  def _while(self, eqn, values):
    p, (test, body) = eqn.params, eqn.inner
    first, count = p['cond_nconsts'], p['cond_nconsts'] + p['body_nconsts']
    self.scans = self.scans | {eqn.path: None}

    def step(state):
      (again,) = self.program(test, values[:first] + state, (*eqn.path, 0))
      new = self.program(body, values[first:count] + state, (*eqn.path, 1))
      return [self.chosen(again, [x]) for x in new]

    return self.fixed(eqn, values[count:], step, False)[0]

  def _scan(self, eqn, values):
    p, path = eqn.params, eqn.path
    count, carry = p['num_consts'], p['num_carry']
    consts, steps = values[:count], values[count + carry :]
    self.scans = self.scans | {path: p['length']}
    over = any(x.rows and 0 in x.rows.axes for x in steps)
    if over:  # a scan over clients, whose constants are of all of them
      self.clients = (*self.clients, path)
      consts = [_mixed(x) if DATA in x.labels else x for x in consts]
    steps = [self.step(x, path, over) for x in steps]

    def body(state):
      return self.program(eqn.inner[0], consts + state + steps, (*path, 0))

    state = values[count : count + carry]
    if p['length'] == 1:
      results = body(state)
      state = results[:carry]
    else:
      state, results = self.fixed(eqn, state, body, over)
    gone = {path: None, ('earlier', path): None}
    state = [
      x._replace(part=in_loops(x.part, gone), number=None) for x in state
    ]
    return state + [self.stacked(x, path) for x in results[carry:]]

  def step(self, value, path, over):
    """Return one step of an array that a loop scans."""
    labels, rows, number = value.labels, value.rows, value.number
    if rows:
      of_one = 0 in rows.axes
      rows = rows._replace(axes=tuple(a - 1 for a in rows.axes if a))
      if of_one:
        rows = rows._replace(loops=(*rows.loops, path))
      elif over:
        labels, rows = labels | {MIXED}, None
    if number:
      inner = lambda places: (places - ANY_AXIS).union(
        {x - 1 for x in places & ANY_AXIS if x}, {path} if 0 in places else ()
      )
      fresh, varies = inner(number.fresh), inner(number.varies) | {path}
      args = [number], fresh, varies, number.secret, number.zero
      number = self.number('step', path, *args)
    return Value(labels, rows, None, number)

  def stacked(self, value, path):
    """Return what a scan stacks from a value of each step."""
    rows = value.rows
    if rows:
      first = (0,) if path in rows.loops else ()
      axes = (*first, *(a + 1 for a in rows.axes))
      loops = tuple(x for x in rows.loops if x != path)
      rows = rows._replace(axes=axes, loops=loops)
    return Value(value.labels, rows)

  def fixed(self, eqn, state, body, over):
    """Return the stable types of a loop's carry, and those of its results."""
    saved = len(self.wrong), len(self.releases), {*self.used}
    starts = [x.number.fresh if x.number else NONE for x in state]
    place = lambda n: (*eqn.path, n)
    varies = ANY_AXIS | {eqn.path}
    carry = lambda n, secret: self.number(
      'carry', place(n), (), varies=varies, secret=secret
    )
    secret = [x.number is not None and x.number.secret for x in state]
    state = [
      x._replace(number=carry(n, secret[n]), part=part_of(x))
      for n, x in enumerate(state)
    ]
    while True:
      del self.wrong[saved[0] :], self.releases[saved[1] :]
      self.used = {*saved[2]}
      results, new = body(state), []
      for n, (old, x) in enumerate(zip(state, results, strict=False)):
        number = old.number
        chain = chained(x.number, number)
        if chain or counts(x.number, number):
          # Two rounds may count through the same numbers, unless it counts
          # rounds.
          own = chain or (self.scans_rounds and len(self.scans) == 1)
          fresh = (starts[n] if own else NONE) | {eqn.path}
          number = self.number(
            'counter', place(n), (), fresh, starts[n], number.secret
          )
        elif x.number is not number:
          number = self.number('carry', (*place(n), 'any'), (), varies=varies)
        if over:
          x = x._replace(
            part=in_loops(x.part, {eqn.path: ('earlier', eqn.path)})
          )
          if x.rows and eqn.path in x.rows.loops:
            x = x._replace(labels=x.labels | {MIXED}, rows=None)
        new.append(self.chosen(PUBLIC, [old, x])._replace(number=number))
      if new == state:
        return state, results
      state = new

  # Marks of the library's mechanisms.

  def _leak(self, eqn, text):
    self.wrong.append(f'{eqn.path}: {text}')

  def _mark_by_client(self, eqn, values):
    (value,), axis = values, eqn.params.get('axis')
    if value.rows is None:
      return values
    span, axes = value.rows.span, () if axis is None else (axis,)
    if axes and span is None:
      span = 0, eqn.ins[0][1][axis]
    return [
      value._replace(rows=Rows(axes, span, value.rows.loops, True, not axes))
    ]

  def _mark_distinct(self, eqn, values):
    axes, number = range(len(eqn.ins[0][1])), values[0].number
    args = [number] if number else []
    fresh = frozenset(axes) | (number.fresh if number else NONE)
    made = self.number('distinct', eqn.path, args, fresh)
    return [values[0]._replace(number=made)]

  def _mark_of_same(self, eqn, values):
    *values, like = values
    rows = like.rows or Rows((), None, self.clients)
    lanes = rows.lanes or bool(rows.axes)
    rows = rows._replace(axes=(), untouched=True, lanes=lanes)
    of_one = Value(frozenset({DATA}), rows)
    return [of_one if DATA in x.labels else x for x in values]

  def _mark_samples(self, eqn, values):
    axis, out = len(eqn.params['batched']), []
    for x, (_, shape) in zip(values, eqn.ins, strict=True):
      if DATA in x.labels:
        if x.rows is None or not (x.rows.untouched or x.rows.axes == (axis,)):
          self._leak(eqn, 'samples are mixed before they are bounded')
        own = 'clients', x.rows and x.rows.span
        loops = (*self.clients, own)
        rows = Rows((axis,), (0, shape[axis]), loops, True)
        x = x._replace(labels=frozenset({DATA}), rows=rows)
      out.append(x)
    return out

  def _mark_scale(self, eqn, values):
    count, law = eqn.params['count'], eqn.params['law']
    if any({DATA, SECRET} & x.labels for x in values[count:]):
      self._leak(eqn, 'a bound or a scale of noise depends on data')
    args = [x.number or self.unknown(eqn, 0) for x in values[count:]]
    one = lambda n: self.number('scale', (n, law), args)
    return [x._replace(number=one(n)) for n, x in enumerate(values[:count])]

  def _mark_contribution(self, eqn, values):
    *values, step, bound = values
    scale, batched = step.number, eqn.params['batched']
    if scale.op != 'scale' or scale.args[0] is not bound.number:
      self._leak(eqn, 'a contribution is on the grid of another bound')
    axes_of = lambda n: tuple(range(sum(mapped[n] for *_, mapped in batched)))
    named, whose = all(is_lane for is_lane, *_ in batched), set()
    for n, x in enumerate(values):
      if DATA in x.labels:
        rows = x.rows
        own = rows and (rows.axes == axes_of(n) or (rows.axes == () and named))
        whose.add((rows.span, rows.loops) if own else None)
    if len(whose) > 1 or None in whose:
      self._leak(eqn, 'a contribution is of several clients')
    whose = next(iter(whose - {None}), (None, self.clients))
    terms = frozenset({(eqn.path, *whose)})
    shard, out = self.shards > 0 and self.unit == 'client', []
    for n, x in enumerate(values):
      axes = (x.rows.axes if x.rows else ()) or axes_of(n)
      out.append(x._replace(part=Part(n, terms, axes, scale, None, shard)))
    return out

  def _mark_drawn(self, eqn, values):
    count, made = eqn.params['count'], []
    if DATA in values[count].labels:
      self._leak(eqn, 'a key of noise depends on data')
    key, *scale = [x.number for x in values[count:]]
    grid = scale[0]
    known = (
      key
      and grid
      and grid.op == 'scale'
      and scale
      == [
        self.number('scale', (n, grid.params[1]), grid.args) for n in range(3)
      ]
    )
    axes = tuple(range(len(eqn.ins[count][1])))
    for n, x in enumerate(values[:count]):
      noise = (key, n, bool(known) and {*axes} <= key.fresh)
      part = Part(None, NONE, axes, grid, noise) if known else None
      made.append(x._replace(part=part, number=None))
    return made

  def _mark_published(self, eqn, values):
    if any({DATA, SECRET} & x.labels for x in values):
      self._leak(eqn, f'{eqn.params["places"]} is published with data')
    return values

  def _mark_trusted(self, eqn, values):
    if not eqn.params['rows']:
      return [Value(number=x.number) for x in values]
    rows = lambda shape: Rows((0,), (0, shape[0]), self.clients)
    return [
      Value(frozenset({DATA}), rows(shape)) if DATA in x.labels else x
      for x, (_, shape) in zip(values, eqn.ins, strict=True)
    ]

  def _mark_released(self, eqn, values):
    labels = NONE.union(*(x.labels for x in values))
    parts = [x.part for x in values]
    if DATA in labels:
      whole = all(x and x.terms and x.noise and not x.of_shard for x in parts)
      if not whole or len({x.terms for x in parts}) > 1:
        self._leak(eqn, 'a release is no sum of contributions with noise')
      elif len({x.leaf for x in parts}) < len(parts):
        self._leak(eqn, 'a release has one contribution twice')
      else:
        self.releases.append(self.release(eqn, parts))
    for key, leaf, fresh in {x.noise for x in parts if x and x.noise}:
      places = {x for x, n in self.scans.items() if n != 1} | {'round'}
      once = (key, leaf) not in self.used and fresh
      if labels and not (key.secret and places <= key.fresh and once):
        self._leak(eqn, f'noise is not secret, or used again: {key.text()}')
      self.used.add((key, leaf))
    return [Value(number=self.unknown(eqn, n)) for n in range(len(values))]

  def release(self, eqn, parts):
    """Return what the certificate should say of a release."""
    bound, multiplier = parts[0].scale.args
    law = dict(parts[0].scale.params[1])
    own = {x for part in parts for term in part.terms for x in term[2]}
    times: list[Any] = [n for loop, n in self.scans.items() if loop not in own]
    times += [n for lane, n, _ in eqn.params['batched'] if not lane]
    if None in times:
      raise Refused(f'{eqn.path}: a release in a loop of unknown length')
    return {
      'times': math.prod(times), 'clip_norm': value_of(bound, self.hyper),
      'noise_multiplier': value_of(multiplier, self.hyper),
      'honest': 1.0 if law['shares'] > 1 else law['honest'],
      'keys': sorted({x.noise[0].text() for x in parts}),
      'clients': next((x[1] for x in own if x[0] == 'clients'), None),
    }  # fmt: skip


def part_of(value):
  """Return the part of a value, which may be zeros."""
  number = value.number
  is_zero = number is not None and number.zero and not value.labels
  return ZEROS if is_zero and value.part is None else value.part


def changed(labels, part, given):
  """Return labels of what was a part, and is none any more."""
  lost = part is None and any(x and x.terms for x in given)
  return labels | {CHANGED} if lost and DATA in labels else labels


def _mixed(value):
  return Value(value.labels | {MIXED}, None, None, value.number)


def widens(eqn) -> bool:
  """Return whether a conversion keeps different integers different."""
  names = [kind[0].removeprefix('u') for kind in (eqn.ins[0], eqn.outs[0])]
  if not all(name.startswith('int') for name in names):
    return False
  return int(names[0][3:]) <= int(names[1][3:])


def is_ids(number) -> bool:
  """Return whether a value is the ids of a cohort, which differ."""
  while number and number.op in ('broadcast_in_dim', 'reshard'):
    number = number.args[0]
  return number is not None and number.op == 'distinct'


def chained(after, before) -> bool:
  """Return whether a key was derived from another one."""
  steps = 0
  while after is not None and after is not before and after.secret:
    steps += after.op in ('random_fold_in', 'random_split')
    after = after.args[0] if after.args else None
  return after is before and steps > 0


def counts(after, before) -> bool:
  """Return whether a number is another one plus a constant other than 0."""
  if after is None or after.op not in ('add', 'sub'):
    return False
  first, second = after.args
  return first is before and second.op == 'literal' and bool(second.params[-1])


ARITHMETIC: dict[str, Callable[..., Any]] = {
  'add': np.add, 'convert_element_type': np.positive, 'div': np.divide,
  'exp': np.exp, 'log': np.log, 'max': np.maximum, 'min': np.minimum,
  'mul': np.multiply, 'neg': np.negative, 'pow': np.power, 'sub': np.subtract,
  'rsqrt': lambda x: x**-0.5, 'sqrt': np.sqrt, 'square': np.square,
  'broadcast_in_dim': np.positive, 'reshape': np.positive,
}  # fmt: skip


def value_of(number, hyper) -> Any:
  """Compute a scalar from the hyperparameters; None: it is not one."""
  if number.op == 'argument':
    return hyper.get(number.params[0])
  if number.op == 'literal':
    return None if number.params[1] else float(number.params[-1])
  args = [value_of(x, hyper) for x in number.args]
  if None in args or not args:
    return None
  if number.op == 'integer_pow':
    return args[0] ** dict(number.params[1])['y']
  fn = ARITHMETIC.get(number.op)
  return None if fn is None else float(fn(*args))


def normal(x: float) -> float:
  """Return the probability that a unit normal is below x."""
  return math.erfc(-x / math.sqrt(2)) / 2


def root(falls, low: float, high: float) -> float:
  """Return where a function that falls becomes 0, from above."""
  while falls(high) > 0:
    high *= 2
  for _ in range(100):
    middle = (low + high) / 2
    low, high = (middle, high) if falls(middle) > 0 else (low, middle)
  return high


def gaussian_epsilon(distance: float, delta: float) -> float:
  """Return epsilon of two unit normals, by the closed form."""

  def excess(e):
    below, above = normal(distance / 2 - e / distance), 0.0
    if e < 600:
      above = math.exp(e) * normal(-distance / 2 - e / distance)
    return below - above - delta

  if math.isinf(distance):
    return math.inf
  return root(excess, 0.0, 1.0) if excess(0.0) > 0 else 0.0


def loss_of(kind: str, z: float, q: float, v):
  """Return log density of P, and the loss, at v deviations.

  'remove' is (1-q) N(0) + q N(1) against N(0), 'add' the reverse; 'replace' has
  (1-q) N(0) + q N(-1) on the other side.
  """
  log = lambda x: math.log(x) if x > 0 else -math.inf
  ratio = lambda sign: np.logaddexp(
    log(1 - q), log(q) + (sign * v - 0.5 / z) / z
  )
  base = -(v**2) / 2 - math.log(2 * math.pi) / 2
  if kind == 'add':
    return base, -ratio(1)
  return base + ratio(1), ratio(1) - ratio(-1) * (kind == 'replace')


def sampled_epsilon(step, count: int, delta: float) -> float:
  """Return epsilon of `count` steps, each a mixture of (weight, kind, z, q).

  With M(s) = E[exp(s L)] of the loss of a step, delta(e) is the integral of
  M(s)^count exp(-e s) / (s (s + 1)) over a line s = a + i t, over 2 pi.
  """
  bounds = [
    ((count * log_moment(step, a) - math.log(delta)) / a, a)
    for a in np.geomspace(0.05, 500, 120)
  ]
  bound, a = min(bounds)  # Chernoff's bound of epsilon
  scale, least = log_moment(step, a), min(z for _, _, z, _ in step)

  def integrand(t):
    dv, total, s = min(0.1, 2 * least / (t[-1] + 1)), 0.0, a + 1j * t
    for part in step:
      log_p, loss = nodes(part, a, dv)
      waves = np.exp(1j * np.outer(t, loss))
      total = total + waves @ np.exp(log_p - scale + a * loss)
    return total**count / (s * (s + 1))

  def line(dt):
    values = []
    for start in range(0, 2**15, 128):
      values.append(integrand((start + np.arange(128)) * dt))
      if abs(values[-1]).max() < 1e-12 * abs(values[0][0]):
        break
    values = np.concatenate(values) * dt / math.pi
    values[0] /= 2
    return values, np.arange(len(values)) * dt

  def solve(dt):
    values, t = line(dt)

    def excess(e):
      integral = (values * np.exp(-1j * t * e)).real.sum()
      return integral * math.exp(count * scale - a * e) - delta

    low = high = max(bound, 1e-9)  # the line is exact near it
    while excess(low) <= 0 and low > 0:
      low, high = max(low - bound / 64, 0.0), low
    return root(excess, low, high) if excess(low) > 0 else 0.0

  dt = 2 * math.pi * a / 45
  last = solve(dt)
  for _ in range(8):  # until a finer line says the same
    dt, before = dt / 2, last
    last = solve(dt)
    if abs(last - before) <= 1e-8 * last:
      return last
  raise Refused('epsilon does not converge')


def nodes(part, a: float, dv: float):
  """Return log weights of P and losses, where a tilt by `a` has its mass."""
  weight, kind, z, q = part
  far = 16 + (2 + a) / z
  v = np.arange(-far, far, 0.1)
  log_p, loss = loss_of(kind, z, q, v)
  (kept,) = np.nonzero(log_p + a * loss > (log_p + a * loss).max() - 45)
  v = np.arange(float(v[kept[0]]), float(v[kept[-1]]), dv)
  log_p, loss = loss_of(kind, z, q, v)
  return log_p + math.log(weight * dv), loss


def log_moment(step, a: float) -> float:
  """Return log E[exp(a L)] of a step."""
  parts = [nodes(part, a, 0.1) for part in step]
  terms = [log_p + a * loss for log_p, loss in parts]
  return float(np.logaddexp.reduce(np.concatenate(terms)))


def binomial_above(k: int, n: int, q: float) -> float:
  """Return the probability of more than k of n, each with chance q."""
  if q >= 1:
    return float(n > k)
  log = lambda i: (
    math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1)
    + i * math.log(q) + (n - i) * math.log1p(-q)
  )  # fmt: skip
  return math.fsum(math.exp(log(i)) for i in range(k + 1, n + 1))


def epsilon_of(account) -> tuple[float, float, str]:
  """Return the least epsilon, the most it may be said to be, and by what."""
  m, delta = account['mechanism'], account['delta']
  z = m['noise_multiplier'] / math.sqrt(m['releases_per_step'])
  kind, q, steps = m['sampling'], m['sampling_probability'], m['steps']
  population: Any = m['population']
  most: Any = m['max_cohort']
  replace = m['adjacency'] == 'replace_one'
  whole = most in (None, population)
  coins = kind in ('poisson', 'random_allocation') and q == 1
  if z == 0:
    return math.inf, math.inf, 'without noise'
  takes_part = -(-steps // (m['epoch_steps'] or 1))
  moved = 2 if replace else 1
  at_most = gaussian_epsilon(moved * math.sqrt(takes_part) / z, delta)
  if kind == 'full' or (whole and (coins or kind.startswith('fixed'))):
    return at_most, at_most, 'closed form'
  if kind == 'random_allocation':
    return 0.0, at_most, 'TRUSTED below full participation'
  if kind.startswith('fixed'):
    q = most / population
  names = ['replace'] if replace else ['remove', 'add']
  choices, overflow = [[(1.0, name, z, q)] for name in names], 0.0
  if kind == 'truncated_poisson':
    cut = binomial_above(most, population + 1, q)
    if m['adjacency'] == 'add_or_remove_one' or cut <= 1e-15:
      overflow = min(1.0, steps * cut)
    elif (cut := binomial_above(most - 1, population - 1, q)) > 0:
      share = binomial_above(most, population, q) * most / population / cut
      rest = cut, 'replace', z / 2, min(share, 1.0)
      choices = [[rest, (1 - cut, name, z, q)] for name in names]
  at = lambda delta: max(sampled_epsilon(x, steps, delta) for x in choices)
  if overflow:
    delta -= (1 + math.exp(at(delta / 2))) * overflow
  own = at(delta)
  if kind.startswith('fixed'):  # others' contributions may be 0
    return own, at_most, 'TRUSTED between one client alone and all'
  if account['accountant'] == 'rdp':
    return own, math.inf, 'Fourier integral, and by Renyi larger'
  return own, own, 'Fourier integral'


def sensitivity_of(weights, rounds: int, separation: int) -> float:
  """Return by how much a client moves what correlated noise is added to."""
  column = np.zeros(rounds)
  column[0] = 1
  back = -np.array(weights[1:]) / weights[0]
  for k in range(1, rounds):
    last = column[max(k - len(back), 0) : k][::-1]
    column[k] = back[: len(last)] @ last
  column = np.maximum.accumulate(column[::-1])[::-1]
  total = np.zeros(rounds)
  for start in range(0, rounds, min(separation, rounds)):
    total[start:] += column[: rounds - start]
  return float(np.linalg.norm(total))


def check_account(certificate, releases) -> list[str]:
  """Return what is wrong with epsilon and its inputs."""
  a, wrong = certificate['account'], []
  m, per_round = a['mechanism'], a['steps_per_round']
  z = float(a['noise_multiplier'])
  inverse = lambda z: 1 / z**2 if z else math.inf
  groups = {}
  for x in releases:
    cost = x['times'] * x['honest'] * inverse(x['noise_multiplier'])
    whose = tuple(x['clients'] or ())
    groups[whose] = groups.get(whose, 0.0) + cost
  spans = sorted(groups)
  apart = all(x and x[1] <= y[0] for x, y in itertools.pairwise(spans))
  spent = max(groups.values(), default=0) if apart else sum(groups.values())
  shape = ids_shape(certificate)
  rounds = shape[0] if len(shape) > 1 else 1
  paid = rounds * per_round * m['releases_per_step'] * inverse(z)
  if spent != paid and not abs(spent / paid - 1) < 1e-5:
    wrong.append(f'a round costs {spent} of 1 / z^2, and {paid} is accounted')
  noise, steps = a['correlation'], a['rounds'] * per_round
  apart = 1.0
  if noise:
    apart = sensitivity_of(
      *(noise[k] for k in ('weights', 'rounds', 'separation'))
    )
    steps = -(-a['rounds'] // max(noise['rounds'], noise['separation']))
  if steps != m['steps']:
    wrong.append(f'{a["rounds"]} rounds have {steps} steps, not {m["steps"]}')
  if abs(m['noise_multiplier'] * apart - z) > 1e-6 * z:
    wrong.append(
      f'the account is of noise {m["noise_multiplier"]}, not {z / apart}'
    )
  low, high, how = epsilon_of(a)
  said = float(a['epsilon'])
  if said != low and not low * (1 - 1e-6) <= said <= high * (1 + 1e-4):
    wrong.append(f'epsilon is {low} to {high}, by {how}, not {said}')
  return wrong


LABELS = {
  'public': NONE, 'noise': frozenset({SECRET}),
  'pool': frozenset({DATA, MIXED}),
  **dict.fromkeys(('data', 'client', 'rounds'), frozenset({DATA})),
}  # fmt: skip
FORBIDDEN = {
  'public': {DATA, SECRET}, 'client': {MIXED, SECRET}, 'data': NONE,
}  # fmt: skip


def allowed(certificate, name: str) -> tuple:
  """Return the kinds that an argument of a round may have."""
  root, field = name.split('.')[0].split('[')[0], name.split('.')[-1]
  seen = certificate['unit'] == 'sample' or certificate['trust'] != 'central'
  if root == 'cohort':
    known = seen and not field.startswith('batches')
    return ('data', 'rounds', *(['public'] * known))
  fixed = {
    'data': 'pool',
    'noise_key': 'noise',
    'hp': 'public',
    'key': 'public',
  }
  return (fixed[root],) if root in fixed else ('public', 'client')


def argument(walk, name, kind, variable) -> Value:
  """Return what is known of an argument of a round."""
  labels, shape = LABELS[kind], variable[1]
  fresh = frozenset({'round'} if name == 'state.round' else ())
  varies, secret = frozenset(range(len(shape))), kind == 'noise'
  number = walk.number('argument', (name,), (), fresh, varies, secret)
  rows, axis = None, int(kind == 'rounds')
  if labels == {DATA}:
    if axis < len(shape):
      rows = Rows((axis,), (0, shape[axis]), (), True)
    else:
      labels = labels | {MIXED}
  return Value(labels, rows, None, number)


def ids_shape(certificate) -> list[int]:
  """Return the shape of the ids of a cohort, or of one for each round."""
  first, count = certificate['program']['arguments']
  variables = certificate['program']['variables'][first : first + count]
  for (name, _), (_, shape, _) in zip(
    certificate['arguments'], variables, strict=True
  ):
    if name == 'cohort.ids':
      return shape
  raise Refused('no argument is cohort.ids')


def check_round(certificate) -> list[str]:
  """Return what is wrong with the program of a certificate."""
  walk, program = Walk(certificate), certificate['program']
  arguments, results = certificate['arguments'], certificate['results']
  wrong = [
    f'{name} cannot be {kind}'
    for name, kind in arguments
    if kind not in allowed(certificate, name)
  ]
  known = dict(arguments)
  wrong += [
    f'the result {name} cannot be {kind}'
    for name, kind in results
    if known.get(name, kind) != kind
    or (kind == 'data' and name[:7] != 'metrics')
  ]
  first = program['arguments'][0]
  variables = program['variables'][first : first + len(arguments)]
  values = [
    argument(walk, name, kind, v)
    for (name, kind), v in zip(arguments, variables, strict=True)
  ]
  found = walk.program(program, values, ())
  for (name, kind), value in zip(results, found, strict=True):
    leaks = FORBIDDEN[kind] & value.labels
    if kind == 'client' and DATA in value.labels:
      leaks = leaks or value.rows.axes != (0,)
    if leaks:
      wrong.append(f'{name} is {kind}, and depends on data: {kind_of(value)}')
    if name == 'state.round' and value.number is not None:
      before = values[[x for x, _ in arguments].index(name)].number
      if not counts(value.number, before):
        wrong.append('state.round does not count rounds')
  claimed = [
    {k: x for k, x in row.items() if k != 'where'}
    for row in certificate['releases']
  ]
  if claimed != json.loads(json.dumps(walk.releases)):
    wrong.append(f'releases are {walk.releases}, not {claimed}')
  return wrong + walk.wrong


TRUSTED = (
  'that the equations are those of the run, and JAX computes them',
  'clipping, rounding and drawing within the marked mechanisms',
  'the host: the sampler of cohorts, the secret key and its generator',
)


def check(text: str) -> list[str]:
  """Return what is wrong with a certificate, nothing if it holds."""
  try:
    certificate = json.loads(text)
    if certificate['format'] != 1:
      raise Refused(f'format {certificate["format"]} is not known')
    wrong = check_round(certificate)
    return wrong + check_account(certificate, certificate['releases'])
  except Refused as e:
    return [str(e)]
  except (KeyError, IndexError, TypeError, ValueError, AttributeError) as e:
    return [f'the certificate is malformed: {type(e).__name__}: {e}']


def report(text: str) -> list[str]:
  """Return what a certificate that holds has proved, and what it has not."""
  c = json.loads(text)
  a = c['account']
  m, (low, high, how) = a['mechanism'], epsilon_of(a)
  times = sum(x['times'] for x in c['releases'])
  exact = [name for name, kind in c['results'] if kind == 'data']
  lines = [
    f'Proved: in a round of {c["algorithm"]} data of clients leave by {times} '
    'releases alone, each a sum of contributions within its bound with fresh '
    'secret noise.',
    f'Epsilon {float(a["epsilon"]):.6g} at delta {a["delta"]:g}: {m["steps"]} '
    f'steps, {m["sampling"]}, {m["adjacency"]}; checked: {low:.6g} to '
    f'{high:.6g}, {how}.',
  ]
  if a['noise'] != 'secret':
    lines.append(f'NOT PRIVATE: the noise is {a["noise"]}.')
  if exact:
    lines.append(f'Published exactly: {", ".join(exact)}.')
  lines.append('Tested elsewhere: the law of the noise, by audits.')
  lines += [f'Trusted: {x}.' for x in TRUSTED]
  lines += [
    f'Trusted by the user: {why} ({where}).' for why, where in c['trusted']
  ]
  return lines


def main(argv: list[str]) -> int:
  """Check a file and print what it shows; return the exit status."""
  if len(argv) != 2:
    print(__doc__)
    return 2
  with open(argv[1]) as file:
    text = file.read()
  wrong = check(text)
  print(*(wrong[:10] or report(text)), sep='\n')
  print('REFUSED' if wrong else 'The certificate holds.')
  return int(bool(wrong))


if __name__ == '__main__':
  sys.exit(main(sys.argv))
