"""Non-interference: clients' data reach public values through noise alone.

The jaxpr of a round says where every number goes. Clients' data (batches,
weights, ids, client state) are followed from arguments to results. They end
only in a release: a sum to which each client adds one contribution within C,
with noise of that C that no other release or round has.

The check believes the arithmetic of clipping, rounding and drawing inside of
`privacy.mechanisms`, and does not see what the host does between rounds, or
whether arrays in the function's closure are public.
"""

from collections.abc import Callable, Sequence
import inspect
import math
from typing import Any

from fl_sketch import rounds
from fl_sketch.privacy.noninterference import (
  certificate,
  flow,
  numbers,
  parts,
  releases,
  rows,
)
from fl_sketch.rounds import comms, marks
from fl_sketch.utils.types import Key, Tree
import jax
import numpy as np

PUBLIC, DATA, CLIENT, NOISE = 'public', 'data', 'client', 'noise'
POOL = 'pool'  # data of all clients, of which each has indices of its own
ROUNDS = 'rounds'  # data with an axis of rounds before that of clients
_LABELS = {
  PUBLIC: (), DATA: (flow.DATA,), CLIENT: (flow.DATA,), NOISE: (flow.NOISE,),
  POOL: (flow.DATA,), ROUNDS: (flow.DATA,),
}  # fmt: skip
_FORBIDDEN = {
  PUBLIC: (flow.DATA, flow.NOISE), CLIENT: (flow.MIXED, flow.NOISE), DATA: (),
  NOISE: (flow.DATA,),
}  # fmt: skip
_TEXT = {
  flow.DATA: 'lets {argument} reach {place} without noise',
  flow.NOISE: 'lets the secret key {argument} reach {place}',
  flow.MIXED: 'lets {argument} of other clients reach {place} of a client',
  flow.SCALE: 'has a scale of noise or bound that depends on {argument}',
}


def check(
  fn: Callable[..., Any],
  *args: Any,
  inputs: tuple[Tree, ...],
  outputs: Tree = PUBLIC,
  name: str | None = None,
  result: Sequence[str] = (),
) -> int:
  """Check that a function's public results have clients' data by noise alone.

  Nothing is computed or compiled; arguments may be shapes, as of `eval_shape`.
  Returns in how many places the program adds noise to a sum and releases it.

  >>> from fl_sketch.privacy.mechanisms import sums
  >>> bounds = {'max_norm': 1.0, 'noise_multiplier': 1.0}
  >>> step = lambda w, x, key: w + sums.privatize_sum(
  ...   key, x, jax.numpy.ones(3), **bounds)
  >>> args = jax.numpy.zeros(2), jax.numpy.ones((3, 2)), jax.random.key(0)
  >>> kinds = 'public', 'data', 'noise'
  >>> check(step, *args, inputs=kinds)
  1
  >>> check(lambda w, x, key: w + x.sum(0), *args, inputs=kinds)
  Traceback (most recent call last):
  ...
  fl_sketch.privacy.noninterference.flow.InterferenceError: ...

  Kinds are a prefix of the arguments or results, as in_axes of `jax.vmap`.
  `inputs`: 'public'; 'data' of clients; 'client', the state of one client a
  row; 'noise', the secret key. `outputs`: 'public' must have neither data nor
  the key, 'client' no data that were summed over clients; 'data' may have all.
  Messages have the `name` of the function and of what it returns, `result`.

  Raises InterferenceError at a leak, with the result, the data and the last
  line of the program between them; or at an unknown operation.
  """
  walk = releases.Proof()
  _walk(walk, fn, args, inputs, outputs, name, result)
  return sum(x.times for x in parts.of_one(walk.shown.releases))


def trust(tree: Tree, reason: str, *, rows: bool = False) -> Tree:
  """Declare a value public, for a reason that stands in the statement of a run.

  It is for what no rule shows, such as a bound that was proved by hand. With
  `rows`, leaves are declared to have a row of one client each, on axis 0.
  """
  return marks.trusted(tree, reason, rows)


def _walk(walk, fn, args, inputs, outputs, name, result):
  """Type the program of a function; raise InterferenceError at a leak."""
  names = inspect.signature(fn).bind(*args).arguments
  paths = [x for name, arg in names.items() for x in _paths(arg, name)]
  kinds = jax.tree.leaves(jax.tree.broadcast(inputs, args))
  # A jitted function is traced once, for the check and for its compilation.
  program = (fn if hasattr(fn, 'trace') else jax.jit(fn)).trace(*args)
  avals = program.jaxpr.in_avals
  values = [_argument(walk, *x) for x in zip(paths, kinds, avals, strict=True)]
  shapes = program.out_info
  found = walk.run(program.jaxpr, values)
  given = [*zip(paths, kinds, strict=True)]
  kinds = jax.tree.leaves(jax.tree.broadcast(outputs, shapes))
  named = zip(
    result or ['the result'], shapes if result else [shapes], strict=True
  )
  places = [x for part, tree in named for x in _paths(tree, part)]
  leaks = list(walk.leaks)
  for path, kind, value in zip(places, kinds, found, strict=True):
    forbidden = [x for x in _FORBIDDEN[kind] if x in value.labels]
    if kind == CLIENT and flow.DATA in value.labels and not forbidden:
      if value.rows is None or value.rows.axes != (0,):
        leaks.append(flow.Leak(path, flow.MIXED, value.labels[flow.DATA]))
    leaks += [flow.Leak(path, x, value.labels[x]) for x in forbidden]
  if leaks:
    named = name or getattr(fn, '__name__', 'the function')
    texts = list(dict.fromkeys(f'{named} {_sentence(leak)}' for leak in leaks))
    more = f' ({len(texts) - 1} more such places.)' if len(texts) > 1 else ''
    raise flow.InterferenceError(texts[0] + more)
  results = [*zip(places, kinds, strict=True)]
  return certificate.Round(program.jaxpr, walk, given, results)


def _argument(walk, path, kind, aval) -> flow.Value:
  """Return what is known of an argument: rows of clients are along axis 0."""
  labels = {label: flow.Origin(path) for label in _LABELS[kind]}
  is_round = path == 'state.round' and walk.in_rounds
  varies = frozenset(range(aval.ndim))
  number = walk.table.of(
    'argument', path, (), varies=varies, secret=kind == NOISE,
    fresh=frozenset({numbers.ROUND}) if is_round else numbers.NOWHERE,
  )  # fmt: skip
  whose = None
  axis = 1 if kind == ROUNDS else 0
  if labels and kind != NOISE:
    if kind != POOL and axis < aval.ndim:
      whose = rows.Rows((axis,), (0, aval.shape[axis]), (), True)
    else:
      labels[flow.MIXED] = labels[flow.DATA]
  return flow.Value(labels, whose, number=number)


def check_round(
  round_fn: Callable[..., Any],
  hp: rounds.Hyper,
  state: rounds.FedState,
  cohort: rounds.Cohort,
  key: Key,
  data: Tree,
  noise_key: Key,
  *,
  unit: str = 'client',
  trust: str = 'central',
  metrics: bool = False,
  name: str | None = None,
  budget: float | None = None,
  proved: Callable[[certificate.Round], Any] | None = None,
) -> releases.Shown:
  """Check that a round's public state has clients' data by noise alone.

  The round is of `rounds.run_round` or `scan_rounds`; its arguments may be
  shapes. Clients' data are `data` and the cohort; with unit='sample', ids and
  weights are public. A row of per-client state may have that client's data,
  other state and the parameters none. `metrics` says whether the round's
  metrics may have data without noise; `name` is of the algorithm, in messages.
  `proved` is called with what a certificate is written of.

  Raises InterferenceError as `check` does.
  """
  seen = unit == 'sample' or trust != 'central'
  in_scan = cohort.ids.ndim == 2  # of `rounds.scan_rounds`
  of_data = ROUNDS if in_scan else DATA
  who = PUBLIC if seen else of_data
  cohort_kinds = cohort._replace(
    ids=who, weight=who, batches=of_data, outcome=who
  )
  per_client = lambda x: isinstance(x, comms.PerClient)
  kind = lambda x: CLIENT if per_client(x) else PUBLIC
  kinds = jax.tree.map(kind, state, is_leaf=per_client)
  apart = unit == 'client' and trust != 'central'
  walk = releases.Proof(unit, True, in_scan, apart)
  args = hp, state, cohort, key, data, noise_key
  inputs = PUBLIC, kinds, cohort_kinds, PUBLIC, POOL, NOISE
  outputs = kinds, DATA if metrics else PUBLIC
  names = 'state', 'metrics'
  shown = _walk(walk, round_fn, args, inputs, outputs, name, names)
  if budget is not None:
    count = len(cohort.ids) if in_scan else 1
    _check_budget(walk, hp, count * budget, name)
  if proved is not None:
    proved(shown)
  return walk.shown


def _check_budget(walk, hp, budget, name):
  """Check that all releases of a round cost what is accounted for them."""
  known, spent = numbers_of(hp), 0.0
  found = parts.of_one(walk.shown.releases)
  for release in found:
    z = numbers.value_of(release.noise_multiplier, known)
    if z is None:
      raise flow.InterferenceError(
        f'{name} has a noise multiplier that does not follow from the '
        f'hyperparameters: {release.where}.'
      )
    spent += release.times * release.honest / z**2 if z else math.inf
  if not spent <= budget * (1 + 1e-5):  # also if it is NaN
    count = sum(x.times for x in found)
    raise flow.InterferenceError(
      f'{name} releases {count} times in a round, for {spent:.4g} of '
      f'1 / noise_multiplier^2, of which {budget:.4g} is accounted: '
      f'{walk.shown.releases[-1].where}.'
    )


def numbers_of(hp: rounds.Hyper) -> dict[str, float]:
  """Return hyperparameters by the names of a round's arguments."""
  leaves = zip(_paths(hp, 'hp'), jax.tree.leaves(hp), strict=True)
  return {k: float(x) for k, x in leaves if np.ndim(x) == 0}


def _paths(tree, name) -> list[str]:
  keystr = jax.tree_util.keystr
  return [name + keystr(path) for path, _ in jax.tree.leaves_with_path(tree)]


def _sentence(leak) -> str:
  """Return what leaks, and where: at the last line of a user's file, if any."""
  chain, step = [], leak.origin
  while step.before is not None:
    chain.append(step.eqn)
    step = step.before
  text = _TEXT[leak.label].format(argument=step.argument, place=leak.place)
  for users in True, False:
    for eqn in chain:
      if place := flow.where(eqn, users):
        return f'{text}: {place}, {eqn.primitive.name}.'
  return f'{text}.'
