"""Follow contributions to their noisy release, and count what is released.

A part of a release is a contribution of each client, bounded by C, a sum in
which each client is at most once, noise, or the sum of both. Selection by
presence, sums over clients and shards, and layout keep it; all else does not.
"""

from collections.abc import Sequence
import contextlib
import math
from typing import Any, NamedTuple

from fl_sketch.privacy.noninterference import flow, numbers, rows
from fl_sketch.privacy.noninterference.flow import Value
from fl_sketch.rounds import marks
import jax.numpy as jnp

Term = tuple[Any, tuple[int, int] | None, tuple[int, ...]]


class Noise(NamedTuple):
  """One array of a draw."""

  key: numbers.Number
  leaf: int


class Part(NamedTuple):
  """Contributions, their sum, noise, or both; without either it is zeros."""

  leaf: int | None = None  # which array of a contribution
  # Whose: (the mark of the contribution, `Rows.span`, `Rows.loops`).
  terms: frozenset[Term] = frozenset()
  axes: rows.Axes = ()  # along which clients differ; () after the sum
  scale: numbers.Number | None = None  # the step of its grid
  noise: Noise | None = None
  of_shard: bool = False  # a sum over shards is to come


ZEROS = Part()


class Release(NamedTuple):
  """Noisy sums that one place of a program releases."""

  times: int  # in one run of the program
  clip_norm: numbers.Number
  noise_multiplier: numbers.Number
  honest: float  # shares of noise that have the multiplier together
  where: str | None


class Proof(flow.Walk):
  """A walk through a private program that types its releases.

  `unit` is 'client', or 'sample' where a client adds noise to sums over its
  samples. `in_rounds`: noise must depend on `numbers.ROUND`.
  """

  def __init__(self, unit: str = 'client', in_rounds: bool = False):
    super().__init__()
    self.unit, self.in_rounds = unit, in_rounds
    self.table = numbers.Table()
    self.releases: list[Release] = []
    self.trusted: list[tuple[str, str | None]] = []  # reasons, and lines
    self.used: dict[Noise, Any] = {}  # noise that was released
    self.scans: dict[Any, int | None] = {}  # around; None: unknown length
    self.of_clients: tuple[int, ...] = ()  # scans over clients
    self.shards = 0
    self.starts: dict[Any, numbers.Where] = {}  # of counters that loops carry
    self.marks = {
      marks.BY_CLIENT: self._by_client, marks.CONTRIBUTION: self._contribution,
      marks.DISTINCT: self._same, marks.DRAWN: self._drawn,
      marks.FETCHED: self._fetched,
      marks.PUBLISHED: self._published, marks.RELEASED: self._released,
      marks.SAMPLES: self._samples, marks.SCALE: self._scale,
      marks.TRUSTED: self._trusted,
    }  # fmt: skip

  # What a walk asks of values.

  def constant(self, value):
    """Return the number of a constant."""
    return flow.PUBLIC._replace(number=self.table.literal(value))

  def result(self, eqn, out, values):
    """Return labels, rows, part and number of a result."""
    value = flow.passed(eqn, flow.joined(values))
    labels, part = value.labels, self._part(eqn, values)
    if flow.DATA in labels:
      found = self._rows(eqn, out, values)
      if found is None:
        labels = {flow.MIXED: labels[flow.DATA], **labels}
      had = any(x.part and x.part.terms for x in values)
      if had and part is None:
        labels = {**labels, flow.CHANGED: labels[flow.DATA]}
      value = Value(labels, found)
    return value._replace(part=part, number=self._number(eqn, out, values))

  def _number(self, eqn, out, values):
    args = [
      x.number or self._unknown_number(eqn, out, n)
      for n, x in enumerate(values)
    ]
    return self.table.result(eqn, out, args)

  def _unknown_number(self, eqn, *which):
    axes = frozenset(range(32)) | self.scans.keys()
    return self.table.of(
      'unknown', (*self.path, id(eqn), *which), (), varies=axes
    )

  def _rows(self, eqn, out, values):
    data = [flow.DATA in x.labels for x in values]
    unknown = [x.rows is None for x, y in zip(values, data, strict=True) if y]
    if _is_collective(eqn) or any(unknown):
      return None
    found = [x.rows for x in values]
    if len(values) > 1 and _is_ids(values[1].number):
      if eqn.primitive.name == 'gather':
        return rows.taken_by_id(eqn, found)
      if eqn.primitive.name == 'scatter':
        return rows.put_by_id(found)
    return rows.after(eqn, out, found)

  def chosen(self, by, values):
    """Return the value of a result that is one of several."""
    value = flow.joined(values, [by])
    labels = value.labels
    parts = [_part_of(x) for x in values]
    part = self._selected(by, parts)
    found = {x.rows for x in [*values, by] if flow.DATA in x.labels}
    plain = {x._replace(untouched=False) for x in found if x}
    if flow.DATA in labels and (len(plain) != 1 or None in found):
      labels = {flow.MIXED: labels[flow.DATA], **labels}
      plain = {None}
    if part is None and any(x and x.terms for x in parts):
      labels = {**labels, flow.CHANGED: labels[flow.DATA]}
    same = {x.number for x in values}
    number = same.pop() if len(same) == 1 and not by.labels else None
    return Value(labels, plain.pop() if plain else None, part, number)

  # Loops.

  @contextlib.contextmanager
  def within(self, eqn, values):
    """Enter an inner program: of a shard, of a loop, or of a branch."""
    name, before = (
      eqn.primitive.name,
      (self.scans, self.of_clients, self.shards),
    )
    self.shards += name == 'shard_map'
    with super().within(eqn, values):
      if name in ('scan', 'while'):
        self.scans = self.scans | {self.path: eqn.params.get('length')}
      if name == 'scan':
        given = values[eqn.params['num_consts'] + eqn.params['num_carry'] :]
        is_one = eqn.params['length'] == 1  # a step has all of the scan
        if is_one or any(x.rows and 0 in x.rows.axes for x in given):
          self.of_clients = (*self.of_clients, self.path)
      yield
    self.scans, self.of_clients, self.shards = before

  def _call(self, eqn, inner, values, decided):
    if eqn.primitive.name != 'shard_map':
      return super()._call(eqn, inner, values, decided)
    # A shard has its own rows.
    values = [*map(_anew, values, inner[0].invars)]
    results = super()._call(eqn, inner, values, decided)
    return [*map(_anew, results, eqn.outvars)]

  def _is_of_clients(self):
    return self.of_clients[-1:] == (self.path,)

  def step_of(self, eqn, n, value):
    """Return one step of an array, whose axis of steps may be of clients."""
    axes = value.rows.axes if value.rows else ()
    found, labels = value.rows, value.labels
    if found:
      found = found._replace(axes=tuple(a - 1 for a in axes if a))
      if 0 in axes or (eqn.params['length'] == 1 and self._is_of_clients()):
        found = found._replace(loops=(*found.loops, self.path))
      elif self._is_of_clients():  # all clients, beside one
        found, labels = None, {flow.MIXED: labels[flow.DATA], **labels}
    number = value.number and self.table.of(
      'step', self.path, [value.number],
      fresh=self._of_steps(value.number.fresh),
      varies=self._of_steps(value.number.varies) | {self.path},
      secret=value.number.secret, zero=value.number.zero,
    )  # fmt: skip
    return value._replace(labels=labels, rows=found, part=None, number=number)

  def _of_steps(self, places):
    place = lambda x: x if not isinstance(x, int) else x - 1 if x else self.path
    return frozenset(map(place, places))

  def stacked(self, eqn, value):
    """Return what a scan stacks from a value of each step."""
    found, labels = value.rows, value.labels
    if found:
      axes = tuple(a + 1 for a in found.axes)
      if self.path in found.loops:
        axes = (0, *axes)
      loops = tuple(x for x in found.loops if x != self.path)
      found = found._replace(axes=axes, loops=loops)
      if found.span is None and axes == (0,):
        found = found._replace(span=(0, eqn.params['length']))
    return value._replace(labels=labels, rows=found, part=None, number=None)

  def carried(self, eqn, n, old, new):
    """Return the carry of a step: of earlier clients, if it is over clients."""
    key = (*self.path, n)
    if old is None:
      part = _part_of(new) or None
      self.starts[key] = new.number.fresh if new.number else numbers.NOWHERE
      number = self.table.of('carry', key, (), varies=self._everywhere())
      return new._replace(part=part, number=number)
    value = self.chosen(flow.PUBLIC, [old, self._of_earlier(new)])
    number, after = old.number, new.number
    if after and after.op in ('add', 'sub') and after.args[0] is number:
      step = after.args[1]
      if step.op == 'literal' and not step.zero:
        number = self.table.of(
          'counter', key, (), fresh=self.starts[key] | {self.path}
        )
    return value._replace(number=number)

  def _everywhere(self):
    return frozenset(range(32)) | {self.path}

  def _of_earlier(self, value):
    found, labels, part = value.rows, value.labels, value.part
    if found and self.path in found.loops:
      found, labels = None, {flow.MIXED: labels[flow.DATA], **labels}
    if part and self.path in self.of_clients:
      terms = frozenset(
        (
          group,
          span,
          tuple(_earlier(x) if x == self.path else x for x in loops),
        )
        for group, span, loops in part.terms
      )
      part = part._replace(terms=terms)
    return value._replace(labels=labels, rows=found, part=part)

  def saved(self):
    """Return what a further pass through a loop starts from."""
    return (
      len(self.leaks),
      len(self.releases),
      len(self.trusted),
      dict(self.used),
    )

  def restore(self, before):
    """Forget what one pass through a loop found."""
    leaks, releases, trusted, used = before
    del self.leaks[leaks:], self.releases[releases:], self.trusted[trusted:]
    self.used = dict(used)

  def _scan(self, eqn, values, decided):
    consts = eqn.params['num_consts']
    if self._is_of_clients():  # what all clients have is not of this step
      values = [*map(self._beside, values[:consts]), *values[consts:]]
    results = super()._scan(eqn, values, decided)
    return [self._after_loop(x) for x in results]

  def _beside(self, value):
    """Return a constant of a scan over clients: of all of them, if of any."""
    if flow.DATA not in value.labels:
      return value
    labels = {flow.MIXED: value.labels[flow.DATA], **value.labels}
    return Value(labels, number=value.number, cell=value.cell)

  def _after_loop(self, value):
    part = value.part
    if part:
      gone = self.path, _earlier(self.path)
      terms = frozenset(
        (group, span, tuple(x for x in loops if x not in gone))
        for group, span, loops in part.terms
      )
      part = part._replace(terms=terms)
    return value._replace(part=part, number=None)

  # Parts of releases.

  def _part(self, eqn, values) -> Part | None:
    parts, name = [_part_of(x) for x in values], eqn.primitive.name
    if not any(x and (x.terms or x.noise) for x in parts):
      return None
    if name == 'select_n':
      return self._selected(values[0], parts[1:])
    if name in ('add', 'add_any'):
      return self._added(values, *parts)
    part = next(x for x in parts if x)
    if name == 'reduce_sum':
      dims = eqn.params['axes']
      if not {*dims} <= {*part.axes}:
        return None
      left = [a for a in part.axes if a not in dims]
      axes = tuple(a - sum(d < a for d in dims) for a in left)
      return part._replace(axes=axes)
    if name in ('psum', 'psum_invariant'):
      is_sum = part.of_shard and not part.axes and len(values) == 1
      return part._replace(of_shard=False) if is_sum else None
    return self._laid_out(eqn, part)

  def _laid_out(self, eqn, part):
    x, y = eqn.invars[0].aval, eqn.outvars[0].aval
    whole = all(jnp.issubdtype(z.dtype, jnp.integer) for z in (x, y))
    whole = whole and x.dtype.itemsize == y.dtype.itemsize and x.size == y.size
    if eqn.primitive.name not in _LAYOUT or not whole:
      return None
    axes = part.axes and rows.RULES[eqn.primitive.name](eqn, 0, part.axes)
    return None if axes is None else part._replace(axes=axes)

  def _selected(self, by, parts):
    """Choose a part or zeros, by whether its client is present."""
    found = {x for x in parts if x != ZEROS}
    if None in found or len(found) > 1:
      return None
    if not found:
      return ZEROS
    (part,) = found
    if flow.DATA not in by.labels or not part.terms:
      return part
    same_step = all(x[2] == by.rows.loops for x in part.terms) if by.rows else 0
    of_same = by.rows and {*by.rows.axes} <= {*part.axes}
    return part if same_step and of_same else None

  def _added(self, values, a, b):
    if a is None or b is None:
      return None
    if ZEROS in (a, b):
      return b if a == ZEROS else a
    scales = {x.scale for x in (a, b)}
    if len(scales) > 1 and not (a.noise and b.noise):
      origin = flow.joined(values).labels.get(flow.DATA)
      if origin:
        place = 'a release with noise of another bound'
        self.leaks.append(flow.Leak(place, flow.DATA, origin))
      return None
    both = a.noise and b.noise
    leaves = {x.leaf for x in (a, b) if x.terms}
    noise_first = (a if a.noise else b).noise and (a.of_shard or b.of_shard)
    misplaced = noise_first and not (a.axes and b.axes)
    overlap = any(_overlap(x, y) for x in a.terms for y in b.terms)
    if both or len(leaves) > 1 or misplaced or overlap or a.axes != b.axes:
      return None
    return Part(
      leaves.pop() if leaves else None, a.terms | b.terms, a.axes,
      a.scale, a.noise or b.noise, a.of_shard or b.of_shard,
    )  # fmt: skip

  # Marks.

  def _apply(self, eqn, values, decided):
    mark = self.marks.get(eqn.primitive)
    if mark is None:
      return super()._apply(eqn, values, decided)
    if not flow.is_of_library(eqn) and eqn.primitive is not marks.TRUSTED:
      raise flow.InterferenceError(
        f'{flow.where(eqn)} marks a value as {eqn.primitive.name!r}; only '
        'mechanisms of fl_sketch.privacy may. Use privacy.trust.'
      )
    return mark(eqn, values)

  def _same(self, eqn, values):
    number = self._number(eqn, 0, values)
    return [values[0]._replace(number=number)]

  def _by_client(self, eqn, values):
    (value,), axis = values, eqn.params['axis']
    if flow.DATA not in value.labels:
      return values
    labels = {flow.DATA: value.labels[flow.DATA]}
    labels |= {k: x for k, x in value.labels.items() if k == flow.NOISE}
    span = value.rows.span if value.rows else None
    axes = () if axis is None else (axis,)
    if axes and span is None:
      span = 0, eqn.invars[0].aval.shape[axis]
    found = rows.Rows(axes, span, self.of_clients, True)
    return [value._replace(labels=labels, rows=found)]

  def _fetched(self, eqn, values):
    *values, like = values
    found = like.rows or rows.Rows((), None, self.of_clients)
    found = found._replace(axes=(), untouched=True)
    data = lambda x: {flow.DATA: x.labels[flow.DATA]}
    return [
      Value(data(x), found) if flow.DATA in x.labels else x for x in values
    ]

  def _samples(self, eqn, values):
    out = []
    for value, var in zip(values, eqn.invars, strict=True):
      if flow.DATA not in value.labels:
        out.append(value)
        continue
      depth = len(eqn.params['batched'])
      known = value.rows is not None and (
        value.rows.untouched or value.rows.axes == (depth,)
      )
      if not known:
        label = flow.MIXED if flow.MIXED in value.labels else flow.DATA
        origin = value.labels[label].after(eqn)
        self.leaks.append(flow.Leak('a contribution', flow.MIXED, origin))
      span = 0, var.aval.shape[depth]
      found = rows.Rows((depth,), span, self.of_clients, True)
      labels = {k: x for k, x in value.labels.items() if k != flow.MIXED}
      out.append(value._replace(labels=labels, rows=found))
    return out

  def _scale(self, eqn, values):
    count = eqn.params['count']
    for value in values[count:]:
      for label in {flow.DATA, flow.NOISE} & value.labels.keys():
        origin = value.labels[label].after(eqn)
        self.leaks.append(flow.Leak('a scale', 'scale', origin))
    args = [x.number for x in values[count:]]
    law = eqn.params['law']
    if None in args:
      args = [self._unknown_number(eqn)] * 2
    one = lambda n: self.table.of('scale', (n, law), args)
    return [x._replace(number=one(n)) for n, x in enumerate(values[:count])]

  def _contribution(self, eqn, values):
    count, batched = eqn.params['count'], eqn.params['batched']
    *values, step = values
    joined = flow.passed(eqn, flow.joined(values))
    out, group = [], (*self.path, id(eqn))
    # One of public numbers still tells who is present.
    terms: frozenset[Term] = frozenset({(group, None, self.of_clients)})
    if flow.DATA in joined.labels:
      terms = self._terms(eqn, group, values, joined)
    scale = step.number
    if scale is None or scale.op != 'scale' or scale.params[0]:
      terms = frozenset()  # of a grid that was not made by `grid.make`
    for leaf, value in enumerate(values):
      axes = tuple(range(sum(mapped[leaf] for *_, mapped in batched)))
      if value.rows and value.rows.axes:
        axes = value.rows.axes
      of_shard = self.shards > 0 and self.unit == 'client'
      part = Part(leaf, terms, axes, scale, None, of_shard)
      out.append(value._replace(part=part if terms else None))
    return out[:count]

  def _terms(self, eqn, group, values, joined):
    """Return whose the contribution is; rows of several clients are a leak."""
    batched, data = eqn.params['batched'], []
    for leaf, value in enumerate(values):
      if flow.DATA in value.labels:
        own = tuple(range(sum(mapped[leaf] for *_, mapped in batched)))
        named = all(is_lane for is_lane, *_ in batched)
        data.append((value.rows, own, named))
    fits = lambda x, own, named: (
      x is not None and (named if x.axes == () else x.axes == own)
    )
    whose = {(x.span, x.loops) for x, *_ in data if x is not None}
    if len(whose) != 1 or not all(fits(*x) for x in data):
      label = flow.MIXED if flow.MIXED in joined.labels else flow.DATA
      origin = joined.labels[label]
      self.leaks.append(flow.Leak('a contribution', flow.MIXED, origin))
      return frozenset({(group, None, ())})
    return frozenset({(group, *whose.pop())})

  def _drawn(self, eqn, values):
    count = eqn.params['count']
    key, *scale = values[count:]
    fixed = [
      x.number.params[0] if x.number and x.number.op == 'scale' else -1
      for x in scale
    ]
    same = len({x.number.args for x in scale if x.number}) == 1
    known = key.number if key.number and fixed == [0, 1, 2] and same else None
    ndim = eqn.invars[count].aval.ndim
    out = []
    for leaf, value in enumerate(values[:count]):
      noise = Noise(known, leaf) if known else None
      axes = tuple(range(ndim))
      part = Part(noise=noise, axes=axes, scale=scale[0].number)
      out.append(Value(value.labels, value.rows, part if noise else None))
    return out

  def _published(self, eqn, values):
    for place, value in zip(eqn.params['places'], values, strict=True):
      for label in {flow.DATA, flow.NOISE} & value.labels.keys():
        origin = value.labels[label].after(eqn)
        self.leaks.append(flow.Leak(place, label, origin))
    return values

  def _trusted(self, eqn, values):
    self.trusted.append((eqn.params['reason'], flow.where(eqn)))
    if not eqn.params['rows']:
      return [flow.PUBLIC._replace(number=x.number) for x in values]
    return [self._by_row(x, y) for x, y in zip(values, eqn.invars, strict=True)]

  def _by_row(self, value, var):
    if flow.DATA not in value.labels:
      return value
    found = rows.Rows((0,), (0, var.aval.shape[0]), self.of_clients)
    labels = {flow.DATA: value.labels[flow.DATA]}
    return value._replace(labels=labels, rows=found)

  def _released(self, eqn, values):
    joined = flow.passed(eqn, flow.joined(values))
    if flow.DATA in joined.labels:
      self._check_release(eqn, values, joined.labels)
    elif flow.NOISE in joined.labels:
      self._check_noise(eqn, values, joined.labels)
    public = lambda n: flow.PUBLIC._replace(number=self._unknown_number(eqn, n))
    return [public(n) for n in range(len(values))]

  def _check_release(self, eqn, values, labels):
    leak = lambda place, label=flow.DATA: self.leaks.append(
      flow.Leak(place, flow.DATA, labels[label])
    )
    if flow.NOISE not in labels:
      return leak('a release')
    parts = [x.part for x in values]
    whole = all(x and x.terms and x.noise and not x.of_shard for x in parts)
    if whole:
      whole = len({x.terms for x in parts}) == 1
      whole = whole and len({x.leaf for x in parts}) == len(parts)
    if not whole:
      order = flow.CHANGED, flow.MIXED, flow.DATA
      label = next(x for x in order if x in labels)
      return leak('a release other than as a sum of contributions', label)
    self._check_noise(eqn, values, labels)
    scale = parts[0].scale
    clip_norm, noise_multiplier = scale.args
    law = dict(scale.params[1])
    # Noise of each client counts as that of the honest ones together.
    honest = 1.0 if law['shares'] > 1 else law['honest']
    self.releases.append(Release(
      self._times(eqn, parts), clip_norm, noise_multiplier, honest,
      flow.where(eqn),
    ))  # fmt: skip

  def _times(self, eqn, parts):
    """Return how often one client is in such a release."""
    own = {x for part in parts for *_, loops in part.terms for x in loops}
    lengths = [n for loop, n in self.scans.items() if loop not in own]
    if None in lengths:
      raise flow.InterferenceError(
        f'{flow.where(eqn)} releases in a loop whose length is not known: use '
        'jax.lax.scan.'
      )
    batched = eqn.params['batched']
    copies = [size for is_lane, size, _ in batched if not is_lane]
    return math.prod(lengths) * math.prod(copies)

  def _check_noise(self, eqn, values, labels):
    """Check that noise is secret, of this round and step, and used once."""
    loops = {*self.scans} | ({numbers.ROUND} if self.in_rounds else set())
    for n, value in enumerate(values):
      if value.part is None or value.part.noise is None:
        continue
      noise = value.part.noise
      key, axes = noise.key, range(eqn.invars[n].aval.ndim)
      fault = ''
      if not key.secret:
        fault = 'a release'
      elif missing := loops - key.fresh:
        same = 'round' if numbers.ROUND in missing else 'step'
        fault = f'a release, which draws the same noise in every {same}'
      elif not {*value.part.axes} <= key.fresh:
        fault = 'a release, which draws one noise for several releases'
      elif noise in self.used:
        fault = 'a release, which draws one noise for several releases'
      del axes
      self.used[noise] = eqn
      if fault:
        label = flow.DATA if flow.DATA in labels else flow.NOISE
        self.leaks.append(flow.Leak(fault, label, labels[label]))


_LAYOUT = (
  'broadcast_in_dim', 'by_client', 'convert_element_type', 'copy', 'pvary',
  'reshape', 'reshard', 'sharding_constraint', 'squeeze', 'transpose',
)  # fmt: skip


def _part_of(value: Value) -> Part | None:
  is_zero = value.number is not None and value.number.zero and not value.labels
  return ZEROS if is_zero and value.part is None else value.part


def _is_ids(number):
  """Return whether a value is the ids of the clients of a cohort."""
  while number is not None and number.op in ('broadcast_in_dim', 'reshard'):
    number = number.args[0]
  return number is not None and number.op == 'distinct'


def _anew(value, var):
  """Return a value whose rows are counted from the first on."""
  if value.rows is None or len(value.rows.axes) != 1:
    return value
  span = 0, var.aval.shape[value.rows.axes[0]]
  return value._replace(rows=value.rows._replace(span=span))


def _earlier(path):
  return ('earlier', path)


def _overlap(x: Term, y: Term) -> bool:
  """Return whether some client may be in both terms."""
  if x[1] is not None and y[1] is not None:
    (a, b), (c, d) = x[1], y[1]
    if b <= c or d <= a:
      return False
  # A step of a scan over clients, and the steps before it, have no client in
  # common.
  pairs = zip(x[2], y[2], strict=False)
  return not any(a == _earlier(b) or b == _earlier(a) for a, b in pairs)


def _is_collective(eqn) -> bool:
  """Return whether it combines values of several shards."""
  named = any(type(e).__name__ == 'NamedAxisEffect' for e in eqn.effects)
  return named and eqn.primitive.name not in ('pvary', 'pcast')
