"""The kinds of links of an algorithm's chain, and the parts of a round.

The kind of a link says where it runs: on one client, in the uplink, in the
broadcast or on the server. Links also carry the noisy releases that they make,
with their sensitivity, which `federated_chain` adds up.
"""

from collections.abc import Callable
import functools
import inspect
from typing import Any, NamedTuple

from fl_sketch import sketches
from fl_sketch.rounds import comms, keys as keys_lib
from fl_sketch.utils.types import Tree
import jax
import optax


class Transform(optax.GradientTransformationExtraArgs):
  """A link of a chain; its `update` takes any of the extra arguments."""

  broadcasts: bool = False  # whether its result is what the clients receive
  releases: int = 0  # number of noisy releases that it makes in a round
  # For each, the L2 norm by which one client can change the sum, f32[].
  sensitivity: tuple[jax.Array, ...] = ()
  # Names of this link's noise draws; unique within a chain.
  draws: tuple[str | int, ...] = ()

  def __new__(cls, init, update, **marks):
    """Make the link; `marks` are its attributes."""
    keys = inspect.signature(update).parameters.get('keys')
    needs_keys = keys is not None and keys.default is keys.empty

    @functools.wraps(update)
    def marked(*args, **extra):
      if needs_keys and 'keys' not in extra:
        raise ValueError(
          'A link of a federated_chain requires keys; in your own training '
          'loop use fl_sketch.distributed.mean_over(axis, compressor).'
        )
      return update(*args, **extra)

    self = super().__new__(cls, init, marked)
    self.__dict__.update(marks)
    # Combinators of optax keep only the function.
    marked.__dict__['link'] = self
    return self

  def _replace(self, **fields):
    """Return the link with other functions or attributes."""
    return type(self)(**self._asdict() | self.__dict__ | fields)


class ClientTransform(Transform):
  """A link that runs on one client, with state of that client."""

  sketch: sketches.Sketch | None = None  # the operator, of a link that sketches
  hash_key: keys_lib.HashKey | None = None  # of that, as of `keys.hash_key`


class Broadcast(Transform):
  """The downlink; clients that receive its result can redo all later links."""

  broadcasts = True


class Uplink(Transform):
  """A mean over the cohort whose payloads are added to a running sum.

  Its `update` takes a `comms.LaneSum`.
  """

  # (keys, payload, like) -> what is summed, one client at a time
  decode: comms.Decode = staticmethod(lambda keys, payload, like: payload)
  # Client links before the uplink -> (these and its own, the uplink after
  # them); None if it has no client links.
  attach: Callable[..., tuple[tuple[Transform, ...], 'Uplink']] | None = None
  # Rounds that share one hash, since noise of one round cancels in the next;
  # None if the noises of rounds are independent.
  epoch: int | None = None
  # Protocol state -> {name: bool[]}: whether a part of the payload travels.
  due: Callable[[Tree], dict[str, jax.Array]] | None = None


def attached(
  attach: Callable[..., tuple[tuple[Transform, ...], Uplink]],
) -> Uplink:
  """Make an uplink that `federated_chain` builds from the client links."""

  def update(*_, **__):
    raise ValueError('This uplink works in a federated_chain alone.')

  return Uplink(optax.init_empty_state, update, attach=attach)


class Exchange(Transform):
  """A link with its own uplinks, one or several, of stacked payloads.

  Payloads, leaves [lanes, ...], are not added to a running sum: a round holds
  those of all lanes. Its `means` are of `aggregation.cohort_means`; their
  releases are those of the link. The `update` takes them by keyword as
  functions (payloads, **extra arguments) -> (mean, bill). It must call each
  once, else tracing raises ValueError: two sums would have the same noise.
  """

  def __new__(cls, init, update, *, means=(), **marks):
    """Make the link; `means` is a sequence of `aggregation.CohortMean`."""

    def counted(updates, state, params=None, **extra):
      calls = [0] * len(means)

      def take(i, payloads, **extra):
        calls[i] += 1
        return means[i].take(payloads, **extra)

      takes = [functools.partial(take, i) for i in range(len(means))]
      result = update(updates, state, params, means=takes, **extra)
      if calls != [1] * len(means):
        raise ValueError(f'{calls=} of means: each must be taken once.')
      return result

    marks = {
      'releases': sum(mean.releases for mean in means),
      'sensitivity': sum((mean.sensitivity for mean in means), ()),
      'draws': sum((mean.draws for mean in means), ()),
    } | marks
    return super().__new__(cls, init, counted if means else update, **marks)


class Chain(NamedTuple):
  """The parts of a chain, attributes of `Algorithm`."""

  encode: optax.GradientTransformationExtraArgs
  protocol: optax.GradientTransformationExtraArgs
  server: optax.GradientTransformationExtraArgs
  decode: comms.Decode | None
  releases: int
  sensitivity: tuple[jax.Array, ...]
  due: Callable[[Tree], dict[str, jax.Array]] | None


def federated_chain(*links: optax.GradientTransformation) -> Chain:
  """Split one chain of links, in the order of the protocol, into its parts.

  Leading `ClientTransform`s become the encoder. If an `Uplink` follows, each
  payload is added to a running sum: a round holds O(d + b) numbers whatever the
  cohort. Clients that hold the broadcast can redo the links after `broadcast`.

  >>> from fl_sketch.rounds import aggregation, transforms as t
  >>> clip = t.per_client(optax.clip(1.0))
  >>> uplink = aggregation.mean_over_cohort()
  >>> federated_chain(clip, uplink, t.broadcast()).decode is not None
  True

  Raises:
    ValueError: a link before the uplink is no client link, a client link or
      another uplink stands after it, there is no `broadcast()`, hashes change
      within an `Uplink.epoch`, or two noisy sums have the same noise.
  """
  flat = [link for tx in links for link in _marked(tx)]
  count = 0
  while count < len(flat) and isinstance(flat[count], ClientTransform):
    count += 1
  encode, rest = tuple(flat[:count]), flat[count:]
  if any(isinstance(link, ClientTransform) for link in rest):
    raise ValueError('Put links per client before the uplink.')
  if not rest or not isinstance(rest[0], (Uplink, Exchange)):
    kind = type(rest[0]).__name__ if rest else 'nothing'
    raise ValueError(
      f'The chain has {kind} before a mean over the cohort. Add '
      'aggregation.mean_over_cohort() or an Exchange; wrap an optax '
      'transformation of each client in transforms.per_client.'
    )
  if any(isinstance(link, Uplink) for link in rest[1:]):
    raise ValueError('Put one mean_over_cohort before all shared links.')
  if not any(link.broadcasts for link in rest if isinstance(link, Transform)):
    raise ValueError(
      'The chain has no downlink: add transforms.broadcast() after the uplink.'
    )
  if isinstance(rest[0], Uplink) and rest[0].attach is not None:
    encode, rest[0] = rest[0].attach(encode)
  _check_hashes(encode, getattr(rest[0], 'epoch', None))
  broadcasts = [getattr(link, 'broadcasts', False) for link in rest]
  split = len(rest) - broadcasts[::-1].index(True)
  marked = [x for x in (*encode, *rest) if isinstance(x, Transform)]
  draws = sum((link.draws for link in marked), ())
  if len({*draws}) < len(draws):
    raise ValueError(
      f'Noisy sums of a round have the same noise, {draws=}: their difference '
      'has none. Take privacy.mean(index) with an index for each.'
    )
  return Chain(
    _chain(encode), _chain(rest[:split]), _chain(rest[split:]),
    decode=rest[0].decode if isinstance(rest[0], Uplink) else None,
    releases=sum(link.releases for link in marked),
    sensitivity=sum((link.sensitivity for link in marked), ()),
    due=getattr(rest[0], 'due', None),
  )  # fmt: skip


def _check_hashes(encode, epoch):
  for link in encode:
    hash_key = getattr(link, 'hash_key', None)
    if epoch is None or hash_key in (None, 'run'):
      continue
    if hash_key == 'round' or hash_key % epoch:
      raise ValueError(
        f"hash_key={hash_key!r} of a sketch must be 'run', or a multiple of "
        f'{epoch} rounds: correlated noise cancels in tables of one hash alone.'
      )


def state_of(state: Tree, which: str | type) -> Any:
  """Find the state of one link, or a field of it, by type or name.

  `state` is a `rounds.FedState`, or its `protocol` or `server`; `which` the
  type of the link's state, that type's name, or a field, as 'momentum'. No such
  part, or more than one, raises ValueError.

  >>> from fl_sketch.rounds import transforms as t
  >>> links = optax.chain(optax.trace(0.9), t.broadcast())
  >>> state_of(links.init({'w': 0.0}), comms.Bill).down
  Array(0, dtype=uint32)
  """
  if isinstance(which, str):
    parts = [x for _, x in optax.tree.get_all_with_path(state, which)]
  else:
    is_it = lambda node: isinstance(node, which)
    parts = list(filter(is_it, jax.tree.leaves(state, is_leaf=is_it)))
  if len(parts) != 1:
    name = which if isinstance(which, str) else which.__name__
    raise ValueError(f'The state has {len(parts)} of {name!r}, not one.')
  return parts[0]


def _chain(links) -> optax.GradientTransformationExtraArgs:
  chain = optax.chain(*links) if links else optax.identity()
  return optax.with_extra_args_support(chain)


def _marked(tx) -> list[optax.GradientTransformation]:
  """Unpack optax combinators into links, with their marks."""
  if isinstance(tx, Transform):
    return [tx]
  # `optax.chain` and wrappers such as `optax.masked` keep functions alone.
  closure = inspect.getclosurevars(tx.update).nonlocals
  if 'update_fns' in closure:
    inits = inspect.getclosurevars(tx.init).nonlocals['init_fns']
    pairs = zip(inits, closure['update_fns'], strict=True)
    parts = [optax.GradientTransformationExtraArgs(*pair) for pair in pairs]
    links = [getattr(part.update, 'link', part) for part in parts]
    links = [link for part in links for link in _marked(part)]
    # A chain of plain transformations stays one: so does its state.
    marked = any(isinstance(link, Transform) for link in links)
    return links if marked else [tx]
  wrapped = [x for x in closure.values() if isinstance(x, Transform)]
  if not wrapped:
    return [tx]
  if len(wrapped) > 1 or isinstance(wrapped[0], (Uplink, Exchange)):
    raise ValueError(
      'Means over the cohort must stand outside of optax combinators such as '
      'optax.masked, whose masks do not know sums of payloads.'
    )
  return [wrapped[0]._replace(init=tx.init, update=tx.update)]
