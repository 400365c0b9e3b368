"""The kinds of links of an algorithm's chain, and the parts of a round.

The kind of a link says where it runs: on one client, in the uplink, in the
broadcast or on the server. Links also carry the noisy releases that they make,
with their sensitivity, which `federated_chain` adds up.
"""

from collections.abc import Callable, Sequence
import functools
import inspect
from typing import Any, NamedTuple

from fl_sketch import sketches
from fl_sketch.rounds import comms, keys as keys_lib
import jax
import optax


class Transform(optax.GradientTransformationExtraArgs):
  """A link of a chain; its `update` takes any of the extra arguments."""

  broadcasts: bool = False  # whether its result is what the clients receive
  releases: int = 0  # number of noisy releases that it makes in a round
  # For each, the L2 norm by which one client can change the sum, f32[].
  sensitivity: tuple[Any, ...] = ()
  # Names of the draws of noise that it adds; no two may be the same.
  draws: tuple[Any, ...] = ()

  def __new__(cls, init, update, **marks):
    """Makes the link; `marks` are its attributes."""
    keys = inspect.signature(update).parameters.get('keys')
    needs_keys = keys is not None and keys.default is keys.empty

    @functools.wraps(update)
    def marked(*args, **extra):
      if needs_keys and 'keys' not in extra:
        raise ValueError(
          'This transformation is a link of a federated_chain, which has keys. '
          'In a training loop of your own use '
          'optax.chain(fl_sketch.distributed.mean_over(axis, compressor), ...).'
        )
      return update(*args, **extra)

    self = super().__new__(cls, init, marked)
    self.__dict__.update(marks)
    # Combinators of optax keep only the function.
    marked.__dict__['link'] = self
    return self

  def _replace(self, **fields):
    """The link with other functions or attributes, and all else as it was."""
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
  attach: Callable[..., Any] | None = None
  # Number of rounds, from 0 on, in which tables must have one hash since noise
  # of one round cancels in the next; None if rounds are independent.
  epoch: int | None = None
  # Protocol state -> {name: bool[]}, parts of the payload that need not travel
  # in a round where that is False.
  due: Callable[[Any], dict[str, jax.Array]] | None = None


def attached(attach: Callable[[tuple[Any, ...]], Any]) -> Uplink:
  """An uplink, built by `federated_chain` from the client transformations."""

  def update(*_, **__):
    raise ValueError('This uplink works in a federated_chain alone.')

  return Uplink(optax.init_empty_state, update, attach=attach)


class Exchange(Transform):
  """A link with its own uplinks, one or several, of stacked payloads.

  Payloads have leaves [lanes, ...] and are not added to a running sum, so that
  a round holds those of all lanes. The `means` of the link, private or plain,
  are of `aggregation.cohort_means`, and its releases are theirs. Its `update`
  takes them by keyword as functions (payloads, **extra arguments) -> (mean,
  bill), each to be called once, or the trace raises ValueError: if a mean is
  taken twice, two sums have the same noise.
  """

  def __new__(cls, init, update, *, means: Sequence[Any] = (), **marks):
    """Makes the link."""

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
  sensitivity: tuple[Any, ...]
  due: Callable[[Any], dict[str, jax.Array]] | None


def federated_chain(*links: Any) -> Chain:
  """Splits one chain of links, in the order of the protocol, into its parts.

  Leading `ClientTransform`s become the encoder. If an `Uplink` follows, each
  payload is added to a running sum, so that a round holds O(d + b) numbers
  whatever the cohort. The links after `broadcast()` are the server step, which
  a client that holds the broadcast can redo.

  A plain optax transformation has no place before the uplink: it would see the
  stacked payloads of one shard, and clip or scale them jointly.

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
    kept = getattr(link, 'hash_key', None)
    if epoch is None or kept in (None, 'run'):
      continue
    if kept == 'round' or kept % epoch:
      raise ValueError(
        f"hash_key={kept!r} of a sketch must be 'run', or a multiple of "
        f'{epoch} rounds, over which its noise is correlated: noise does not '
        'cancel in tables of another hash; see '
        'docs/concepts/correlated_noise.md.'
      )


def state_of(state: Any, which: str | type) -> Any:
  """Finds the state of one link, or a field of it, by name instead of place.

  In a `rounds.FedState`, or its `protocol` or `server`; by the type of the
  link's state, the name of that type, or the name of a field, as 'momentum'.

  >>> from fl_sketch.rounds import transforms as t
  >>> links = optax.chain(optax.trace(0.9), t.broadcast())
  >>> state_of(links.init({'w': 0.0}), 'TraceState')
  TraceState(trace={'w': Array(0., dtype=float32, weak_type=True)})
  >>> state_of(links.init({'w': 0.0}), comms.Bill).down
  Array(0, dtype=uint32)

  No such part, or more than one, raises ValueError.
  """
  if isinstance(which, str):
    found = [x for _, x in optax.tree.get_all_with_path(state, which)]
  else:
    is_it = lambda node: isinstance(node, which)
    found = list(filter(is_it, jax.tree.leaves(state, is_leaf=is_it)))
  if len(found) != 1:
    name = which if isinstance(which, str) else which.__name__
    raise ValueError(f'The state has {len(found)} of {name!r}, not one.')
  return found[0]


def _chain(links) -> optax.GradientTransformationExtraArgs:
  chain = optax.chain(*links) if links else optax.identity()
  return optax.with_extra_args_support(chain)


def _marked(tx) -> list[Any]:
  """Unpacks optax combinators into links, with their marks."""
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
