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

  data: Any = None  # of clients: Rows, or MIXED
  secret: bool = False
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


class Equation(NamedTuple):
  """One equation of a program; `ins` and `outs` are (dtype, shape)."""

  name: str
  params: dict
  ins: list
  outs: list
  inner: list
  path: tuple


MIXED, ZEROS = 'mixed', Part()
NONE, ANY_AXIS = frozenset(), frozenset(range(32))
# Primitives whose results depend on the same entries of their arguments.
ELEMENTWISE = frozenset(
  'abs acos acosh add and asin asinh atan atan2 atanh cbrt ceil clamp clz '
  ' convert_element_type cos cosh div eq erf erf_inv erfc exp exp2 expm1 '
  'floor ge gt imag integer_pow is_finite le lgamma log log1p logistic lt max '
  'min mul ne neg nextafter not or population_count pow random_fold_in '
  'random_unwrap random_wrap real reduce_precision rem reshard round rsqrt '
  'select_n sharding_constraint shift_left shift_right_arithmetic '
  'shift_right_logical sign sin sinh sqrt square stop_gradient sub tan tanh '
  'xor'.split()
)
REDUCTIONS = (
  'argmax argmin reduce_and reduce_max reduce_min reduce_or reduce_prod '
  'reduce_sum reduce_xor'
).split()
COLLECTIVES = (
  'psum pmax pmin all_gather all_gather_invariant all_to_all reduce_scatter '
  'ppermute'
).split()
# They mix rows, and act on nothing else; any other name is refused.
PURE = frozenset(
  'approx_top_k axis_index bessel_i0e bessel_i1e bitcast_convert_type cholesky '
  'cholesky_update complex conj conv_general_dilated cummax cummin cumprod '
  'cumsum cumlogsumexp custom_linear_solve device_put digamma dot_general '
  'dynamic_slice dynamic_update_slice eig eigh fft geqrf hessenberg '
  'householder_product igamma igammac iota lu lu_pivots_to_permutation name '
  'platform_index polygamma qr ragged_dot_general random_bits random_clone '
  'random_seed random_split reduce reduce_window reduce_window_max '
  'reduce_window_min reduce_window_sum rev rng_bit_generator scaled_dot '
  'scatter scatter-add scatter-max scatter-min scatter-mul scatter-sub '
  'scatter_sub schur select_and_gather_add select_and_scatter '
  'select_and_scatter_add sort split '
  'svd threefry2x32 tile top_k triangular_solve tridiagonal '
  'tridiagonal_solve unstack zeta'.split()
)
LAYOUT = (
  'broadcast_in_dim convert_element_type reshape reshard sharding_constraint '
  'transpose'
).split()
CHOICES = 'broadcast_in_dim', 'gather', 'pad', 'reshape', 'slice', 'transpose'


def less(axis: int, gone) -> int:
  """Return an axis after other axes have left."""
  return axis - sum(g < axis for g in gone)


def _reduced(eqn, n, axis):
  gone = eqn.params['axes']
  return None if axis in gone else less(axis, gone)


def _broadcast(eqn, n, axis):
  to = eqn.params['broadcast_dimensions'][axis]
  return to if eqn.outs[0][1][to] == eqn.ins[n][1][axis] else None


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


# Where an axis of an argument is in the result; None: it is combined.
RULES: dict[str, Callable[[Equation, int, int], int | None]] = {
  **dict.fromkeys(ELEMENTWISE, lambda eqn, n, a: a),
  **dict.fromkeys(REDUCTIONS, _reduced),
  'broadcast_in_dim': _broadcast,
  'concatenate': lambda eqn, n, a: None if a == eqn.params['dimension'] else a,
  'gather': _gathered,
  'pad': lambda eqn, n, a: (
    None if any(eqn.params['padding_config'][a][::2]) else a
  ),
  'slice': lambda eqn, n, a: a if eqn.params['strides'][a] == 1 else None,
  'stack': lambda eqn, n, a: a + (a >= eqn.params['axis']),
  'transpose': lambda eqn, n, a: eqn.params['permutation'].index(a),
}
KNOWN = PURE | RULES.keys() | {*COLLECTIVES, 'reshape'}


def axes_after(eqn, n, axes) -> Any:
  """Return where axes of argument n are; None: one of them is combined."""
  if axes and eqn.name == 'reshape':
    return _reshaped(eqn, axes)
  if axes and eqn.name not in RULES:
    return None
  to = tuple(RULES[eqn.name](eqn, n, axis) for axis in axes)
  return None if None in to else to


def _reshaped(eqn, axes):
  """Follow neighbouring axes, which may be split or merged."""
  shape, out = eqn.ins[0][1], eqn.outs[0][1]
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


def span_of(eqn, rows) -> Any:
  """Return the clients of a result whose axis of clients may be cut."""
  if rows.span is None or len(rows.axes) != 1:
    return rows.span
  (axis,), (low, high), p = rows.axes, rows.span, eqn.params
  start, size = 0, high - low
  if eqn.name == 'slice':
    start = p['start_indices'][axis]
    size = p['limit_indices'][axis] - start
  elif eqn.name == 'pad':
    size += min(p['padding_config'][axis][1], 0)
  return min(low + start, high), min(low + start + size, high)


def data_after(eqn, data) -> Any:
  """Return whose a result is, of data of its arguments that may be None."""
  found = [(n, x) for n, x in enumerate(data) if x is not None]
  if not found or MIXED in data or eqn.name in COLLECTIVES:
    return MIXED if found else None
  first = found[0][1]
  kept = eqn.name in ELEMENTWISE or eqn.name in CHOICES
  untouched = len(found) == 1 and first.untouched and kept
  if all(x.axes == () and x.loops == first.loops for _, x in found):
    spans = {x.span for _, x in found} - {None}
    lanes = any(x.lanes for _, x in found)
    span = next(iter(spans), None)
    made = Rows((), span, first.loops, untouched, lanes)
    return MIXED if len(spans) > 1 else made
  moved = {axes_after(eqn, n, x.axes) for n, x in found}
  same = {(x.span, x.loops) for _, x in found}
  if None in moved or len(moved) > 1 or len(same) > 1:
    return MIXED
  return Rows(moved.pop(), span_of(eqn, first), first.loops, untouched)


def part_after(eqn, parts) -> Any:
  """Return the contribution, sum or noise that a result is; None: none."""
  if eqn.name == 'add':
    return added(*parts)
  part = parts[0] if parts else None
  if part is None:
    return None
  if eqn.name == 'reduce_sum':
    gone = eqn.params['axes']
    axes = tuple(less(a, gone) for a in part.axes if a not in gone)
    return part._replace(axes=axes) if {*gone} <= {*part.axes} else None
  if eqn.name == 'psum':
    whole = part.of_shard and not part.axes and len(parts) == 1
    return part._replace(of_shard=False) if whole else None
  (before, shape), (after, to) = eqn.ins[0], eqn.outs[0]
  integers = {'int32', 'uint32'}, {'int64', 'uint64'}
  same = any({before, after} <= kind for kind in integers)
  same = same and math.prod(shape) == math.prod(to)
  if eqn.name not in LAYOUT or not same:
    return None
  axes = axes_after(eqn, 0, part.axes)
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


def selected(by, parts) -> Any:
  """Return one part or zeros, chosen by public or by its clients' data."""
  found = {*parts} - {ZEROS}
  if None in found or len(found) > 1 or by == MIXED:
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
  if isinstance(value.data, Rows):
    axes = value.data.axes
    words.append(f'rows along {list(axes)}' if axes else "one client's")
  words += [MIXED] * (value.data == MIXED) + ['secret'] * value.secret
  return ', '.join(words) or 'public'


class Walk:
  """A type checker of a round's equations; it notes errors and releases."""

  def __init__(self, certificate):
    self.kinds, self.hyper = certificate['kinds'], certificate['hyper']
    self.variables, self.unit = certificate['variables'], certificate['unit']
    self.notes: list[Any] = []  # (what, of which)
    apart = self.unit == 'client' and certificate['trust'] != 'central'
    self.places = {'round', 0} if apart else {'round'}  # noise depends on them
    self.table, self.scans, self.clients = {}, {}, ()
    self.shards = 0
    self.scans_rounds = len(shapes(certificate)['cohort.ids']) > 1

  def found(self, what) -> list:
    """Return all notes of a kind: 'wrong', 'release' or 'noise'."""
    return [x for kind, x in self.notes if kind == what]

  def leak(self, eqn, text):
    """Note an error."""
    self.notes.append(('wrong', f'{eqn.path}: {text}'))

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

  def program(self, program, values, path) -> list:
    """Return the values of a program's results; compare types on the way."""
    env = dict(zip(program['arguments'], values, strict=True))
    self.compare(env, path)
    types = lambda some: [self.variables[x][:2] for x in some]
    for n, (name, params, given, outs, inner) in enumerate(
      program['equations']
    ):
      here = (*path, n)
      eqn = Equation(name, params, types(given), types(outs), inner, here)
      results = self.equation(eqn, [env[x] for x in given])
      made = dict(zip(outs, results, strict=True))
      self.compare(made, here)
      env |= made
    return [env[x] for x in program['results']]

  def compare(self, env, path):
    """Compare types of variables with those of the certificate."""
    for n, value in env.items():
      claimed, own = self.kinds[self.variables[n][2]], kind_of(value)
      if claimed != own:
        text = f'{path}: variable {n} is {own}, not {claimed}'
        self.notes.append(('wrong', text))

  def equation(self, eqn, values) -> list:
    """Return the results of an equation."""
    if rule := getattr(self, f'on_{eqn.name}', None):
      before = self.scans, self.clients
      results = rule(eqn, values)
      self.scans, self.clients = before
      return results
    if eqn.name not in KNOWN and any(x.data or x.secret for x in values):
      raise Refused(f'{eqn.path}: {eqn.name} has no rule')
    return [self.result(eqn, n, values) for n in range(len(eqn.outs))]

  def result(self, eqn, out, values) -> Value:
    """Return a result by the rules of data, parts and numbers."""
    parts, data = [*map(part_of, values)], [x.data for x in values]
    secret = any(x.secret for x in values)
    if eqn.name == 'select_n':
      part = selected(data[0], parts[1:])
    else:
      part = part_after(eqn, parts)
    whose = data_after(eqn, data)
    by_ids = eqn.name in ('gather', 'scatter') and is_ids(values[1].number)
    if by_ids and whose and MIXED not in data:
      given = [x for x in (data[0], *data[2:]) if x]
      by_first = all(x.axes == (0,) for x in given)
      whose = Rows((0,), (0, eqn.outs[0][1][0])) if by_first else MIXED
    return Value(whose, secret, part, self.numbered(eqn, out, values))

  def chosen(self, by, values) -> Value:
    """Return a result that is one of several values."""
    part = selected(by.data, [*map(part_of, values)])
    found = [x.data for x in values if x.data]
    # A choice by lanes is of each of them.
    lanes = found and isinstance(by.data, Rows) and by.data.lanes
    if by.data and not lanes:
      found.append(by.data)
    plain = {x if x == MIXED else x._replace(untouched=False) for x in found}
    data = plain.pop() if len(plain) == 1 else MIXED if plain else None
    secret = any(x.secret for x in (by, *values))
    numbers = {x.number for x in values}
    same = len(numbers) == 1 and not (by.data or by.secret)
    return Value(data, secret, part, numbers.pop() if same else None)

  def numbered(self, eqn, out, values) -> Number:
    """Return what a result is equal to, and where it never repeats."""
    name = eqn.name
    args = [x.number or self.unknown(eqn, n) for n, x in enumerate(values)]
    axes, fresh = frozenset(range(len(eqn.outs[out][1]))), NONE
    first: Any = args[0] if args else None
    moved: list[Any] = [
      self.moved(eqn, n, x.varies) for n, x in enumerate(args)
    ]
    varies = axes.union(*(x.varies - ANY_AXIS for x in args))
    # Equal entries stay equal; others, such as a sum of 1s so far, do not.
    even = name in ELEMENTWISE or name in REDUCTIONS or name in CHOICES
    if even and name != 'pad' and None not in moved:
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
    of_key |= {'gather', 'dynamic_slice', 'slice'}
    secret = name in of_key and first.secret
    params = out, sorted(eqn.params.items())
    zero = name in (*LAYOUT, 'slice') and first.zero
    return self.number(name, params, args, fresh, varies, secret, zero)

  def moved(self, eqn, n, places):
    """Follow axes among places to a result; None: not all of them."""
    if eqn.name not in RULES and eqn.name != 'reshape':
      return None
    axes = [x for x in places & ANY_AXIS if x < len(eqn.ins[n][1])]
    to = [axes_after(eqn, n, (a,)) for a in axes]
    return None if None in to else (places - ANY_AXIS).union(*to)

  # Programs within equations.

  def on_shard_map(self, eqn, values):
    """A shard has rows of its own."""
    anew = lambda x, kind: (
      x._replace(data=x.data._replace(span=(0, kind[1][x.data.axes[0]])))
      if isinstance(x.data, Rows) and len(x.data.axes) == 1
      else x
    )
    kinds = [self.variables[n] for n in eqn.inner[0]['arguments']]
    self.shards += 1
    values = [anew(*x) for x in zip(values, kinds, strict=True)]
    results = self.program(eqn.inner[0], values, (*eqn.path, 0))
    self.shards -= 1
    return [anew(*x) for x in zip(results, eqn.outs, strict=True)]

  def on_cond(self, eqn, values):
    """A result is one of those of the branches."""
    by, *values = values
    branches = [
      self.program(x, values, (*eqn.path, n)) for n, x in enumerate(eqn.inner)
    ]
    return [self.chosen(by, x) for x in zip(*branches, strict=True)]

  def on_while(self, eqn, values):
    """A carry also depends on what stops the loop."""
    p, (test, body) = eqn.params, eqn.inner
    first, count = p['cond_nconsts'], p['cond_nconsts'] + p['body_nconsts']
    self.scans = self.scans | {eqn.path: None}

    def step(state):
      (again,) = self.program(test, values[:first] + state, (*eqn.path, 0))
      new = self.program(body, values[first:count] + state, (*eqn.path, 1))
      return [self.chosen(again, [x]) for x in new]

    return self.fixed(eqn, values[count:], step, False)[0]

  def on_scan(self, eqn, values):
    """A step may be of one client, and the carry of those before it."""
    p, path = eqn.params, eqn.path
    count, carry = p['num_consts'], p['num_carry']
    consts, steps = values[:count], values[count + carry :]
    self.scans = self.scans | {path: p['length']}
    over = any(isinstance(x.data, Rows) and 0 in x.data.axes for x in steps)
    if over:  # a scan over clients, whose constants are of all of them
      self.clients = (*self.clients, path)
      beside = lambda x: x._replace(data=MIXED, part=None)
      consts = [beside(x) if x.data else x for x in consts]
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
    data, number = value.data, value.number
    if isinstance(data, Rows):
      loops = (*data.loops, path) if 0 in data.axes else data.loops
      axes = tuple(a - 1 for a in data.axes if a)
      other = over and 0 not in data.axes
      data = MIXED if other else data._replace(axes=axes, loops=loops)
    if number:
      inner = lambda places: (places - ANY_AXIS).union(
        {x - 1 for x in places & ANY_AXIS if x}, {path} if 0 in places else ()
      )
      fresh, varies = inner(number.fresh), inner(number.varies) | {path}
      args = [number], fresh, varies, number.secret, number.zero
      number = self.number('step', path, *args)
    return Value(data, value.secret, None, number)

  def stacked(self, value, path):
    """Return what a scan stacks from a value of each step."""
    data = value.data
    if isinstance(data, Rows):
      first = (0,) if path in data.loops else ()
      axes = (*first, *(a + 1 for a in data.axes))
      loops = tuple(x for x in data.loops if x != path)
      data = data._replace(axes=axes, loops=loops)
    return Value(data, value.secret)

  def fixed(self, eqn, state, body, over):
    """Return the stable types of a loop's carry, and those of its results."""
    before = len(self.notes)
    starts = [x.number.fresh if x.number else NONE for x in state]
    varies, place = ANY_AXIS | {eqn.path}, lambda n: (*eqn.path, n)
    earlier = {eqn.path: ('earlier', eqn.path)}
    state = [
      x._replace(
        number=self.number('carry', place(n), (), varies=varies),
        part=part_of(x),
      )
      for n, x in enumerate(state)
    ]
    while True:
      del self.notes[before:]
      results, new = body(state), []
      for n, (old, x) in enumerate(zip(state, results, strict=False)):
        number = old.number
        if counts(x.number, number):
          # Two rounds may count through the same numbers, unless it counts
          # rounds.
          own = self.scans_rounds and len(self.scans) == 1
          fresh = {eqn.path} | (starts[n] if own else NONE)
          args = (), frozenset(fresh), starts[n]
          number = self.number('counter', place(n), *args)
        elif number.op == 'counter':  # it is none in other steps
          number = self.number('carry', place(n), (), varies=varies)
        if over:
          x = x._replace(part=in_loops(x.part, earlier))
          if isinstance(x.data, Rows) and eqn.path in x.data.loops:
            x = x._replace(data=MIXED)
        new.append(self.chosen(Value(), [old, x])._replace(number=number))
      if new == state:
        return state, results
      state = new

  # Marks of the library's mechanisms.

  def on_constant(self, eqn, values):
    """A scalar with its value, or an array with a name."""
    p, (dtype, shape) = eqn.params, eqn.outs[0]
    if values:
      raise Refused(f'{eqn.path}: a constant has arguments')
    zero = p.get('zero') or ('value' in p and not p['value'])
    params = dtype, shape, p.get('array'), p.get('value', 'array')
    axes = frozenset(range(len(shape)))
    number = self.number('literal', params, (), varies=axes, zero=zero)
    return [Value(number=number)]

  def on_by_client(self, eqn, values):
    """Clients are along an axis; None: all of it is of one client."""
    (value,), axis = values, eqn.params.get('row_axis')
    if not isinstance(value.data, Rows):
      return values
    span, axes = value.data.span, ()
    if axis is not None:
      axes = (axis + len(mapped(eqn, 0)),)
      span = span or (0, eqn.ins[0][1][axes[0]])
    rows = Rows(axes, span, value.data.loops, True, not axes)
    return [value._replace(data=rows)]

  def on_distinct(self, eqn, values):
    """Ids of clients that differ from one another."""
    axes, number = range(len(eqn.ins[0][1])), values[0].number
    args = [number] if number else []
    fresh = frozenset(axes) | (number.fresh if number else NONE)
    made = self.number('distinct', eqn.path, args, fresh)
    return [values[0]._replace(number=made)]

  def on_of_same(self, eqn, values):
    """Values of the same client as the last one, or of all of its rows."""
    *values, like = values
    rows = Rows((), None, self.clients)
    if isinstance(like.data, Rows):
      lanes = like.data.lanes or bool(like.data.axes)
      rows = like.data._replace(axes=(), lanes=lanes)
    of_one = Value(rows._replace(untouched=True))
    return [of_one if x.data else x for x in values]

  def on_samples(self, eqn, values):
    """A client's samples, each of which is now what a client was."""
    axis, out = len(eqn.params['batched']), []
    for x, (_, shape) in zip(values, eqn.ins, strict=True):
      if whose := x.data:
        known = whose != MIXED
        if not (known and (whose.untouched or whose.axes == (axis,))):
          self.leak(eqn, 'samples are mixed before they are bounded')
        own = 'clients', whose.span if known else None
        rows = Rows((axis,), (0, shape[axis]), (*self.clients, own), True)
        x = x._replace(data=rows, secret=False)
      out.append(x)
    return out

  def on_scale(self, eqn, values):
    """The numbers of a grid, of a bound and a noise multiplier."""
    count, law = eqn.params['count'], eqn.params['law']
    if any(x.data or x.secret for x in values[count:]):
      self.leak(eqn, 'a bound or a scale of noise depends on data')
    args = [x.number or self.unknown(eqn, 0) for x in values[count:]]
    one = lambda n: self.number('scale', (n, law), args)
    return [x._replace(number=one(n)) for n, x in enumerate(values[:count])]

  def on_contribution(self, eqn, values):
    """What a client adds to a sum, within the bound of its grid."""
    *values, step, bound = values
    scale = step.number
    if scale.op != 'scale' or scale.args[0] is not bound.number:
      self.leak(eqn, 'a contribution is on the grid of another bound')
    named = all(is_lane for is_lane, *_ in eqn.params['batched'])
    whose, out = set(), []
    for n, x in enumerate(values):
      if x.data:
        own = x.data.axes == mapped(eqn, n) or (x.data.axes == () and named)
        whose.add((x.data.span, x.data.loops) if own else None)
    if len(whose) > 1 or None in whose:
      self.leak(eqn, 'a contribution is of several clients')
    whose = next(iter(whose - {None}), (None, self.clients))
    terms = frozenset({(eqn.path, *whose)})
    shard = self.shards > 0 and self.unit == 'client'
    for n, x in enumerate(values):
      axes = (x.data.axes if x.data else ()) or mapped(eqn, n)
      out.append(x._replace(part=Part(n, terms, axes, scale, None, shard)))
    return out

  def on_drawn(self, eqn, values):
    """Noise of a key and a grid."""
    count, made = eqn.params['count'], []
    if values[count].data:
      self.leak(eqn, 'a key of noise depends on data')
    key, *scale = [x.number for x in values[count:]]
    known = key and scale[0] and scale[0].op == 'scale'
    if known:
      law, args = scale[0].params[1], scale[0].args
      grid = [self.number('scale', (n, law), args) for n in range(3)]
      known = scale == grid
    axes = tuple(range(len(eqn.ins[count][1])))
    for n, x in enumerate(values[:count]):
      noise = (key, n, bool(known) and {*axes} <= key.fresh)
      part = Part(None, NONE, axes, scale[0], noise) if known else None
      made.append(x._replace(part=part, number=None))
    return made

  def on_published(self, eqn, values):
    """What clients or readers see."""
    if any(x.data or x.secret for x in values):
      self.leak(eqn, f'{eqn.params["places"]} is published with data')
    return values

  def on_trusted(self, eqn, values):
    """What a user declares public, or rows."""
    if not eqn.params['rows']:
      return [Value(number=x.number) for x in values]
    rows = lambda shape: Rows((0,), (0, shape[0]), self.clients)
    return [
      Value(rows(shape)) if x.data else x
      for x, (_, shape) in zip(values, eqn.ins, strict=True)
    ]

  def on_released(self, eqn, values):
    """A sum with noise, which is public from here."""
    parts = [x.part for x in values]
    if any(x.data for x in values):
      whole = all(x and x.terms and x.noise and not x.of_shard for x in parts)
      if not whole or len({x.terms for x in parts}) > 1:
        self.leak(eqn, 'a release is no sum of contributions with noise')
      elif len({x.leaf for x in parts}) < len(parts):
        self.leak(eqn, 'a release has one contribution twice')
      else:
        self.notes.append(('release', self.release(eqn, parts)))
    for key, leaf, fresh in {x.noise for x in parts if x and x.noise}:
      places = {x for x, n in self.scans.items() if n != 1} | self.places
      once = (key, leaf) not in self.found('noise') and fresh
      if not (key.secret and places <= key.fresh and once):
        self.leak(eqn, f'noise is not secret, or used again: {key.text()}')
      self.notes.append(('noise', (key, leaf)))
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


def mapped(eqn, n) -> tuple:
  """Return the axes of an argument over which a mark was mapped."""
  return tuple(range(sum(of[n] for *_, of in eqn.params['batched'])))


def part_of(value):
  """Return the part of a value, which may be zeros."""
  number = value.number
  public = value.data is None and not value.secret
  is_zero = number is not None and number.zero and public
  return ZEROS if is_zero and value.part is None else value.part


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


def counts(after, before) -> bool:
  """Return whether a number is another one plus a constant other than 0."""
  if after is None or after.op not in ('add', 'sub'):
    return False
  first, second = after.args
  return first is before and second.op == 'literal' and not second.zero


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


def log_normal(x: float) -> float:
  """Return the log of the probability that a unit normal is below x."""
  if x > -30:
    return math.log(math.erfc(-x / math.sqrt(2)) / 2)
  tail = math.log1p(3 / x**4 - 1 / x**2) - math.log(-x * math.sqrt(2 * math.pi))
  return tail - x**2 / 2


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
    below = math.exp(log_normal(distance / 2 - e / distance))
    above = math.exp(e + log_normal(-distance / 2 - e / distance))
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
  shape = shapes(certificate)['cohort.ids']
  rounds = shape[0] if len(shape) > 1 else 1
  paid = rounds * per_round * m['releases_per_step'] * inverse(z)
  if spent != paid and not abs(spent / paid - 1) < 1e-5:
    wrong.append(f'a round costs {spent} of 1 / z^2, and {paid} is accounted')
  noise, steps = a['correlation'], a['rounds'] * per_round
  apart = 1.0
  if noise:
    apart = sensitivity_of(**noise)
    steps = -(-a['rounds'] // max(noise['rounds'], noise['separation']))
  if steps != m['steps']:
    wrong.append(f'{a["rounds"]} rounds have {steps} steps, not {m["steps"]}')
  if abs(m['noise_multiplier'] * apart - z) > 1e-6 * z:
    wrong.append(
      f'the account is of noise {m["noise_multiplier"]}, not {z / apart}'
    )
  low, high, how = epsilon_of(a)
  said = float(a['epsilon'])
  if said != low and not low * (1 - 1e-6) <= said <= high * (1 + 5e-5):
    wrong.append(f'epsilon is {low} to {high}, by {how}, not {said}')
  return wrong


def allowed(certificate, name: str) -> tuple:
  """Return the kinds that an argument of a round may have."""
  root, field = name.split('.')[0].split('[')[0], name.split('.')[-1]
  if root == 'state':
    return 'public', 'client'
  if root == 'cohort':
    seen = certificate['unit'] == 'sample' or certificate['trust'] != 'central'
    known = seen and not field.startswith('batches')
    return ('data', 'rounds', *(['public'] * known))
  kinds = {'data': 'pool', 'noise_key': 'noise', 'hp': 'public'}
  return (kinds[root] if root != 'key' else 'public',)


def argument(walk, name, kind, shape) -> Value:
  """Return what is known of an argument of a round."""
  fresh = frozenset({'round'} if name == 'state.round' else ())
  varies, secret = frozenset(range(len(shape))), kind == 'noise'
  number = walk.number('argument', (name,), (), fresh, varies, secret)
  data, axis = None, int(kind == 'rounds')
  if kind not in ('public', 'noise'):
    rows = kind != 'pool' and axis < len(shape)
    data = Rows((axis,), (0, shape[axis]), (), True) if rows else MIXED
  return Value(data, secret, None, number)


def shapes(certificate) -> dict[str, list[int]]:
  """Return the shapes of arguments by their names."""
  variables = certificate['program']['arguments']
  return {
    name: certificate['variables'][n][1]
    for (name, _), n in zip(certificate['arguments'], variables, strict=True)
  }


def check_round(certificate) -> list[str]:
  """Return what is wrong with the program of a certificate."""
  walk, known = Walk(certificate), dict(certificate['arguments'])
  wrong = [
    f'{name} cannot be {kind}'
    for name, kind in known.items()
    if kind not in allowed(certificate, name)
  ]
  values = {
    name: argument(walk, name, known[name], shape)
    for name, shape in shapes(certificate).items()
  }
  found = walk.program(certificate['program'], [*values.values()], ())
  for (name, kind), value in zip(certificate['results'], found, strict=True):
    metric = name.startswith('metrics') and kind in ('public', 'data')
    if not metric and kind != known.get(name):
      wrong.append(f'the result {name} cannot be {kind}')
    data, secret = value.data, value.secret
    if kind == 'client' and data and data != MIXED and data.axes == (0,):
      data = None
    if (data or secret) and kind != 'data':
      wrong.append(f'{name} is {kind}, and depends on data: {kind_of(value)}')
    if name == 'state.round' and not walk.scans_rounds:
      if not counts(value.number, values[name].number):
        wrong.append('state.round does not count rounds')
  claimed = [
    {k: x for k, x in row.items() if k != 'where'}
    for row in certificate['releases']
  ]
  own = json.loads(json.dumps(walk.found('release')))
  if claimed != own:
    wrong.append(f'releases are {own}, not {claimed}')
  return wrong + walk.found('wrong')


TRUSTED = (
  'that the equations are those of the run, and JAX computes them',
  'clipping, rounding and drawing within the marked mechanisms',
  'the host: the sampler of cohorts, the secret key and its generator',
)


def check(text: str) -> list[str]:
  """Return what is wrong with a certificate, nothing if it holds."""
  try:
    certificate = json.loads(text)
    if certificate['format'] != 2:
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
