"""Find the releases of a private program, and what they need to be private.

Marks say where the mechanisms of `privacy.mechanisms` bound contributions, make
a grid, draw noise and release a sum. A release must be of one contribution of
each client, within the C of the grid of its noise; the noise of a secret key
that depends on the round and on all loops around it, and that no other release
has.
"""

from collections.abc import Callable
import math
from typing import Any, NamedTuple

from fl_sketch.privacy.noninterference import flow, numbers, rows
from fl_sketch.privacy.noninterference.flow import Leak, Value
from fl_sketch.privacy.noninterference.parts import (
  Noise,
  Part,
  Release,
  Term,
  is_of_another_bound,
)
from fl_sketch.privacy.noninterference.values import TypedWalk
from fl_sketch.rounds import marks

# Places of leaks.
_OTHER = 'a release other than as a sum of contributions'
_TWICE = 'a release, which draws one noise for several releases'
_AGAIN = 'a release, which draws the same noise in every {}'
_BOUND = 'a release with noise of another bound'
_SERVER = 'a release with noise of the server, not of each client'


class Shown(NamedTuple):
  """What the walk through a private program found; nothing leaks."""

  releases: list[Release]
  trusted: list[tuple[str, str | None]]  # reasons of `privacy.trust`, and lines
  arrays: list[str]  # that code outside of the library closes over

  def sentences(self) -> list[str]:
    """Return what a statement says of values that are not proved."""
    said = [f'Declared, not proved: {x} ({line}).' for x, line in self.trusted]
    arrays = '; '.join(dict.fromkeys(self.arrays))
    text = f'The program closes over arrays that count as public: {arrays}.'
    return said + [text] * bool(arrays)


class Proof(TypedWalk):
  """A walk through a private program that checks and counts its releases.

  `unit` is 'client', or 'sample' where a client adds noise to sums over its
  samples. `in_rounds`: noise must depend on `numbers.ROUND`; `scans_rounds`:
  the outermost scan is over rounds. `apart`: each client draws its own noise,
  as the server is not trusted.
  """

  def __init__(
    self,
    unit: str = 'client',
    in_rounds: bool = False,
    scans_rounds: bool = False,
    apart: bool = False,
  ):
    super().__init__(scans_rounds)
    self.unit, self.in_rounds, self.apart = unit, in_rounds, apart
    self.shown = Shown([], [], [])
    self.used: set[Noise] = set()  # what was released
    self.marks: dict[Any, Callable[..., list[Value]]] = {
      marks.BY_CLIENT: self._by_client, marks.CONTRIBUTION: self._contribution,
      marks.DISTINCT: self._distinct, marks.DRAWN: self._drawn,
      marks.OF_SAME: self._of_same, marks.PUBLISHED: self._published,
      marks.RELEASED: self._released, marks.SAMPLES: self._samples,
      marks.SCALE: self._scale, marks.TRUSTED: self._trusted,
    }  # fmt: skip

  def saved(self):
    """Return what a further pass through a loop starts from."""
    found = self.leaks, *self.shown
    return [*map(len, found)], {*self.used}

  def restore(self, before):
    """Forget what one pass through a loop found."""
    sizes, self.used = before[0], {*before[1]}
    for found, size in zip((self.leaks, *self.shown), sizes, strict=True):
      del found[size:]

  def result(self, eqn, out, values):
    """Return a result; name the arrays that a program of users closes over."""
    for value, var in zip(values, eqn.invars, strict=True):
      if value.number is not None and value.number.op == 'array':
        if not flow.is_of_library(eqn):
          text = f'{var.aval.str_short()} in {flow.where(eqn)}'
          self.shown.arrays.append(text)
    return super().result(eqn, out, values)

  def check_sum(self, eqn, given, labels):
    """Find noise of another grid than that of what it is added to."""
    if eqn.primitive.name == 'add' and is_of_another_bound(*given):
      self.leaks.append(Leak(_BOUND, flow.DATA, labels[flow.DATA]))

  def _apply(self, eqn, values, decided):
    mark = self.marks.get(eqn.primitive)
    if mark is None:
      return super()._apply(eqn, values, decided)
    if not flow.is_of_library(eqn) and mark != self._trusted:
      raise flow.InterferenceError(
        f'{flow.where(eqn)} marks a value as {eqn.primitive.name!r}; only '
        'mechanisms of fl_sketch.privacy may. Use noninterference.trust.'
      )
    return mark(eqn, values)

  def _leak(self, place, labels, eqn, *order):
    label = next(x for x in (*order, flow.DATA, flow.NOISE) if x in labels)
    kind = flow.DATA if flow.DATA in labels else flow.NOISE
    self.leaks.append(Leak(place, kind, labels[label].after(eqn)))

  def _distinct(self, eqn, values):
    return [values[0]._replace(number=self.number(eqn, 0, values))]

  def _by_client(self, eqn, values):
    (value,), axis = values, eqn.params['row_axis']
    if value.rows is None:
      return values
    span, axes = value.rows.span, ()
    if axis is not None:
      axes = (axis + len(self._batched(eqn, 0)),)
      span = span or (0, eqn.invars[0].aval.shape[axes[0]])
    found = rows.Rows(axes, span, value.rows.loops, True, not axes)
    return [value._replace(rows=found)]

  def _of_same(self, eqn, values):
    *values, like = values
    found = like.rows or rows.Rows((), None, self.of_clients)
    lanes = found.lanes or bool(found.axes)
    found = found._replace(axes=(), untouched=True, lanes=lanes)
    data = lambda x: {flow.DATA: x.labels[flow.DATA]}
    is_data = lambda x: flow.DATA in x.labels
    return [Value(data(x), found) if is_data(x) else x for x in values]

  def _samples(self, eqn, values):
    axis, out = len(eqn.params['batched']), []
    for value, var in zip(values, eqn.invars, strict=True):
      if flow.DATA in value.labels:
        whose = value.rows
        if whose is None or not (whose.untouched or whose.axes == (axis,)):
          origin = value.labels.get(flow.MIXED, value.labels[flow.DATA])
          self.leaks.append(Leak('a contribution', flow.MIXED, origin))
        span = 0, var.aval.shape[axis]
        # Samples of other clients are no more of these.
        loops: Any = (*self.of_clients, ('clients', whose and whose.span))
        found = rows.Rows((axis,), span, loops, True)
        labels = {flow.DATA: value.labels[flow.DATA]}
        value = value._replace(labels=labels, rows=found)
      out.append(value)
    return out

  def _scale(self, eqn, values):
    count, law = eqn.params['count'], eqn.params['law']
    for value in values[count:]:  # C and z
      for label in {flow.DATA, flow.NOISE} & value.labels.keys():
        origin = value.labels[label].after(eqn)
        self.leaks.append(Leak('', flow.SCALE, origin))
    args = [x.number or self.unknown(eqn) for x in values[count:]]
    one = lambda n: self.table.of('scale', (n, law), args)
    return [x._replace(number=one(n)) for n, x in enumerate(values[:count])]

  def _contribution(self, eqn, values):
    *values, step, clip_norm = values
    labels = flow.passed(eqn, flow.joined(values)).labels
    # One of public numbers still tells who is present.
    mark: Any = (*self.path, id(eqn))
    whose: Any = (None, self.of_clients)
    if flow.DATA in labels:
      whose = self._clients_of(eqn, values) or whose
    scale = step.number
    if scale.op != 'scale' or scale.args[0] is not clip_norm.number:
      self._leak(_BOUND, labels, eqn)
    of_shard = self.shards > 0 and self.unit == 'client'
    out = []
    for leaf, value in enumerate(values):
      axes = value.rows.axes if value.rows else ()
      axes = axes or self._batched(eqn, leaf)
      terms = frozenset({Term(mark, *whose)})
      part = Part(leaf, terms, axes, scale, None, of_shard)
      out.append(value._replace(part=part))
    return out

  def _batched(self, eqn, leaf):
    """Return the axes of an array over which a mark was mapped."""
    mapped = [is_mapped[leaf] for *_, is_mapped in eqn.params['batched']]
    return tuple(range(sum(mapped)))

  def _clients_of(self, eqn, values):
    """Return whose a contribution is; it must be of one client a row."""
    named = all(is_lane for is_lane, *_ in eqn.params['batched'])
    whose = set()
    for leaf, value in enumerate(values):
      if flow.DATA in value.labels:
        found = value.rows
        own = found and found.axes == self._batched(eqn, leaf)
        alone = found and found.axes == () and named
        whose.add((found.span, found.loops) if own or alone else None)
    if len(whose) == 1 and None not in whose:
      return whose.pop()
    labels = flow.passed(eqn, flow.joined(values)).labels
    origin = labels.get(flow.MIXED, labels[flow.DATA])
    self.leaks.append(Leak('a contribution', flow.MIXED, origin))
    return None

  def _drawn(self, eqn, values):
    count = eqn.params['count']
    if flow.DATA in values[count].labels:
      self._leak('a key of noise', values[count].labels, eqn)
    key, *scale = [x.number for x in values[count:]]
    grid, known = scale[0], False
    if key is not None and grid is not None and grid.op == 'scale':
      law, of = grid.params[1], self.table.of
      known = scale == [of('scale', (n, law), grid.args) for n in range(3)]
    axes = tuple(range(eqn.invars[count].aval.ndim))
    out = []
    for leaf, value in enumerate(values[:count]):
      part = None
      if known and key is not None:
        noise = Noise(key, leaf, {*axes} <= key.fresh)
        part = Part(None, frozenset(), axes, grid, noise)
      out.append(value._replace(part=part, number=None))
    return out

  def _published(self, eqn, values):
    for place, value in zip(eqn.params['places'], values, strict=True):
      for label in {flow.DATA, flow.NOISE} & value.labels.keys():
        origin = value.labels[label].after(eqn)
        self.leaks.append(Leak(place, label, origin))
    return values

  def _trusted(self, eqn, values):
    self.shown.trusted.append((eqn.params['reason'], flow.where(eqn)))
    if not eqn.params['rows']:
      return [flow.PUBLIC._replace(number=x.number) for x in values]
    data = lambda x: {flow.DATA: x.labels[flow.DATA]}
    found = lambda var: rows.Rows((0,), (0, var.aval.shape[0]), self.of_clients)
    return [
      Value(data(x), found(var)) if flow.DATA in x.labels else x
      for x, var in zip(values, eqn.invars, strict=True)
    ]

  def _released(self, eqn, values):
    labels = flow.passed(eqn, flow.joined(values)).labels
    given = [x.part for x in values]
    if flow.DATA in labels and flow.NOISE not in labels:
      self._leak('a release', labels, eqn)
    elif flow.DATA in labels and not _is_whole(given):
      self._leak(_OTHER, labels, eqn, flow.CHANGED, flow.MIXED)
    elif labels:
      if flow.DATA in labels:
        self.shown.releases.append(self._release(eqn, given))
      self._check_noise(eqn, [x.noise for x in given if x and x.noise], labels)
    public = lambda n: flow.PUBLIC._replace(number=self.unknown(eqn, n))
    return [public(n) for n in range(len(values))]

  def _release(self, eqn, given):
    clip_norm, noise_multiplier = given[0].scale.args
    law = dict(given[0].scale.params[1])
    # Noise of each client has the multiplier together with that of others.
    honest = 1.0 if law['shares'] > 1 else law['honest']
    # A client is in one step of a loop over clients.
    own = {x for part in given for term in part.terms for x in term.loops}
    lengths: list[Any] = [n for x, n in self.scans.items() if x not in own]
    if None in lengths:
      raise flow.InterferenceError(
        f'{flow.where(eqn)} releases in a loop whose length is not known: use '
        'jax.lax.scan.'
      )
    copies = [n for is_lane, n, _ in eqn.params['batched'] if not is_lane]
    times = math.prod(lengths) * math.prod(copies)
    where = flow.where(eqn)
    keys = tuple(x.noise.key for x in given)
    clients = next((x[1] for x in own if x[0] == 'clients'), None)
    return Release(
      times, clip_norm, noise_multiplier, honest, where, keys, clients
    )

  def _check_noise(self, eqn, noises, labels):
    """Check that noise is secret, of this round and step, and used once."""
    loops = {loop for loop, n in self.scans.items() if n != 1}
    loops |= {numbers.ROUND} if self.in_rounds else set()
    for noise in noises:
      missing = loops - noise.key.fresh
      if not noise.key.secret:
        self._leak('a release', labels, eqn)
      elif missing:
        word = 'round' if numbers.ROUND in missing else 'step'
        self._leak(_AGAIN.format(word), labels, eqn)
      elif self.apart and 0 not in noise.key.fresh:  # the axis of clients
        self._leak(_SERVER, labels, eqn)
      elif noise in self.used or not noise.each:
        self._leak(_TWICE, labels, eqn)
      self.used.add(noise)


def _is_whole(given) -> bool:
  """Return whether parts are all sums with noise, of one contribution."""
  if not all(x and x.terms and x.noise and not x.of_shard for x in given):
    return False
  leaves = {x.leaf for x in given}
  return len({x.terms for x in given}) == 1 and len(leaves) == len(given)
