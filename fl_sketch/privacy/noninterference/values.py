"""A walk that knows clients, numbers and parts of releases of each value."""

import contextlib
from typing import Any

from fl_sketch.privacy.noninterference import flow, numbers, parts, rows
from fl_sketch.privacy.noninterference.flow import Value


class TypedWalk(flow.Walk):
  """A walk that types every value of a program, also in loops and shards."""

  def __init__(self, scans_rounds: bool = False):
    super().__init__()
    self.scans_rounds = scans_rounds  # whether the outermost scan is over them
    self.table = numbers.Table()
    self.scans: dict[Any, int | None] = {}  # around; None: unknown length
    self.of_clients: tuple[Any, ...] = ()  # those over clients
    self.shards = 0  # around
    self.starts: dict[Any, numbers.Where] = {}  # of counters that loops carry

  def constant(self, value):
    """Return the number of a constant."""
    return flow.PUBLIC._replace(number=self.table.literal(value))

  def result(self, eqn, out, values):
    """Return labels, rows, part and number of a result."""
    given, order = [*map(_part_of, values)], values
    if eqn.primitive.name == 'select_n':  # what is chosen comes first
      order = [*values[1:], values[0]]
    value = flow.passed(eqn, flow.joined(order))
    if eqn.primitive.name == 'select_n':
      part = self.selected(values[0], given[1:])
    else:
      part = parts.after(eqn, given)
      self.check_sum(eqn, given, value.labels)
    labels, found = value.labels, None
    if flow.DATA in labels:
      found = self._rows(eqn, out, values)
      labels = labels if found else mixed(labels)
      if part is None and any(x and x.terms for x in given):
        labels = {**labels, flow.CHANGED: labels[flow.DATA]}
    number = self.number(eqn, out, values)
    return Value(labels, found, part, number)

  def check_sum(self, eqn, given, labels):
    """Look at what an operation does to parts."""

  def selected(self, by, given):
    """Return the part that a value chooses."""
    if flow.DATA not in by.labels:
      return parts.selected(given)
    return by.rows and parts.selected(given, by.rows)

  def number(self, eqn, out, values):
    """Return the number of a result."""
    known = [
      x.number or self.unknown(eqn, out, n) for n, x in enumerate(values)
    ]
    return self.table.result(eqn, out, known)

  def unknown(self, eqn, *which):
    """Return a number that is equal to no other."""
    places = numbers.ANY_AXIS | self.scans.keys()
    which = (*self.path, id(eqn), *which)
    return self.table.of('unknown', which, (), varies=places)

  def _rows(self, eqn, out, values):
    found = [x.rows for x in values]
    if is_collective(eqn) or any(
      x.rows is None for x in values if flow.DATA in x.labels
    ):
      return None
    if len(values) > 1 and _is_ids(values[1].number):
      if eqn.primitive.name in ('gather', 'scatter'):
        return rows.by_id(eqn, found)
    return rows.after(eqn, out, found)

  def chosen(self, by, values):
    """Return the value of a result that is one of several."""
    labels = flow.joined(values, [by]).labels
    given = [*map(_part_of, values)]
    part = self.selected(by, given)
    found = [x.rows for x in values if flow.DATA in x.labels]
    # A choice by lanes is of each of them.
    if flow.DATA in by.labels and not (found and by.rows and by.rows.lanes):
      found.append(by.rows)
    plain = {x and x._replace(untouched=False) for x in found}
    if len(plain) > 1 or None in plain:
      labels, plain = mixed(labels), {None}
    if part is None and any(x and x.terms for x in given):
      labels = {**labels, flow.CHANGED: labels[flow.DATA]}
    numbers_of = {x.number for x in values}
    same = len(numbers_of) == 1 and not by.labels
    number = numbers_of.pop() if same else None
    return Value(labels, plain.pop() if plain else None, part, number)

  @contextlib.contextmanager
  def within(self, eqn, values):
    """Enter an inner program: of a shard, of a loop, or of a branch."""
    name, before = eqn.primitive.name, (self.scans, self.of_clients)
    with super().within(eqn, values):
      self.shards += name == 'shard_map'
      if name in ('scan', 'while'):
        self.scans = self.scans | {self.path: eqn.params.get('length')}
      if name == 'scan':
        steps = values[eqn.params['num_consts'] + eqn.params['num_carry'] :]
        if any(x.rows and 0 in x.rows.axes for x in steps):
          self.of_clients = (*self.of_clients, self.path)
      yield
      self.shards -= name == 'shard_map'
    self.scans, self.of_clients = before

  def _call(self, eqn, inner, values, decided):
    if eqn.primitive.name != 'shard_map':
      return super()._call(eqn, inner, values, decided)
    # A shard has rows of its own.
    values = [*map(_anew, values, inner[0].invars)]
    results = super()._call(eqn, inner, values, decided)
    return [*map(_anew, results, eqn.outvars)]

  def _scan(self, eqn, values, decided):
    count = eqn.params['num_consts']
    if self._is_of_clients():  # constants with data are of all clients
      beside = lambda x: x._replace(
        labels=mixed(x.labels), rows=None, part=None
      )
      is_data = lambda x: flow.DATA in x.labels
      consts = [beside(x) if is_data(x) else x for x in values[:count]]
      values = [*consts, *values[count:]]
    results = super()._scan(eqn, values, decided)
    gone = {self.path: None, parts.earlier(self.path): None}
    return [
      x._replace(part=x.part and x.part.in_loops(gone), number=None)
      for x in results
    ]

  def _is_of_clients(self):
    return self.of_clients[-1:] == (self.path,)

  def step_of(self, eqn, value):
    """Return one step of an array, whose axis of steps may be of clients."""
    labels, found = value.labels, value.rows
    if found:
      is_step = 0 in found.axes
      found = found._replace(axes=tuple(a - 1 for a in found.axes if a))
      if is_step:
        found = found._replace(loops=(*found.loops, self.path))
      elif self._is_of_clients():  # all clients, beside one
        labels, found = mixed(labels), None
    number = value.number and self.table.step(value.number, self.path)
    return Value(labels, found, None, number, value.cell)

  def stacked(self, eqn, value):
    """Return what a scan stacks from a value of each step."""
    found = value.rows
    if found:
      first = (0,) if self.path in found.loops else ()
      axes = (*first, *(a + 1 for a in found.axes))
      loops = tuple(x for x in found.loops if x != self.path)
      found = found._replace(axes=axes, loops=loops)
    return Value(value.labels, found)

  def carried(self, eqn, n, old, new):
    """Return the carry of a step: of earlier clients, if it is over clients."""
    place = (*self.path, n)
    if old is None:
      self.starts[place] = new.number.fresh if new.number else frozenset()
      secret = new.number is not None and new.number.secret
      number = self.table.of(
        'carry', place, (), varies=numbers.ANY_AXIS | {self.path}, secret=secret
      )
      return new._replace(part=_part_of(new), number=number)
    before = new.part
    if self._is_of_clients():
      before = before and before.in_loops({self.path: parts.earlier(self.path)})
    labels, found = new.labels, new.rows
    if found and self.path in found.loops:
      labels, found = mixed(labels), None
    last = new._replace(labels=labels, rows=found, part=before)
    number = old.number
    is_chain = numbers.is_chained(new.number, number)
    if is_chain or numbers.counts(new.number, number):
      # Two rounds may count through the same numbers, unless it counts rounds.
      is_own = is_chain or (self.scans_rounds and len(self.scans) == 1)
      fresh = {self.path} | (self.starts[place] if is_own else set())
      number = self.table.of(
        'counter', place, (), fresh=frozenset(fresh), secret=number.secret,
        varies=self.starts[place],
      )  # fmt: skip
    elif new.number is not number:  # it is another key in the next step
      number = self.table.of('carry', (*place, 'any'), (), varies=number.varies)
    return self.chosen(flow.PUBLIC, [old, last])._replace(number=number)


def mixed(labels):
  """Return the labels of data of several clients."""
  return {flow.MIXED: labels[flow.DATA], **labels}


def is_collective(eqn) -> bool:
  """Return whether it combines values of several shards."""
  named = any(type(e).__name__ == 'NamedAxisEffect' for e in eqn.effects)
  return named and eqn.primitive.name not in ('pvary', 'pcast')


def _part_of(value):
  is_zero = value.number is not None and value.number.zero and not value.labels
  return parts.ZEROS if is_zero and value.part is None else value.part


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
