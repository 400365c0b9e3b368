"""The links of an algorithm's chain, which `algorithm.federated` splits.

The role of a link says where it runs: on one client, in the uplink, in the
broadcast or on the server. Links also carry the noisy releases that they make,
with their sensitivity.
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
from typing import NamedTuple

from fl_sketch import sketches
from fl_sketch.rounds import comms, keys as keys_lib
from fl_sketch.utils.types import Params, Tree
import jax
import jax.numpy as jnp
import optax

Init = optax.TransformInitFn  # params -> state
# (updates, state, params, *, keys, ...) -> (updates, state); see `transforms`
Update = Callable[..., tuple[Tree, Tree]]
CLIENT = 'client'  # on one client, with state of that client
UPLINK = 'uplink'  # a mean over the cohort, which takes a `comms.LaneSum`
EXCHANGE = 'exchange'  # has uplinks of its own, of stacked payloads
SHARED = 'shared'  # on what all clients share
IDENTITY = optax.with_extra_args_support(optax.identity())  # of no link


class Alone(NamedTuple):
  """State of a link in a training loop without clients, as of `optax.chain`."""

  step: jax.Array  # int32[], from which the keys follow
  state: Tree


def undecoded(keys: keys_lib.RoundKeys, payload: Tree, like: Tree) -> Tree:
  """Return the payload, which is added up as it is."""
  del keys, like
  return payload


@dataclasses.dataclass(frozen=True, eq=False)
class Link:
  """One step of an algorithm's chain; make it by a function of this module.

  Attributes:
    init_fn: params -> the link's state in a federated round.
    update_fn: (updates, state, params, *, keys, ...) -> (updates, state), with
      the extra arguments of `transforms`.
    role: `CLIENT`, `UPLINK`, `EXCHANGE` or `SHARED`.
    broadcasts: whether its result is what the clients receive; clients can redo
      all later links.
    releases: number of noisy releases that it makes in a round.
    sensitivity: for each, the L2 norm by which one client can change the sum.
    draws: names of its noise draws; unique within a chain.
    decode: of an uplink, (keys, payload, like) -> what is summed, one client at
      a time.
    attach: of an uplink, client links before it -> (these and its own, the
      uplink after them); None if it has no client links.
    epoch: of an uplink, rounds that share one hash, since noise of one round
      cancels in the next; None if the noises of rounds are independent.
    due: of an uplink, protocol state -> {name: bool[]}: whether a part of the
      payload travels.
    sketch: the operator of a client link that sketches.
    hash_rounds: of that operator, as of `keys.hash_key`.
    by_round: whether its draws follow from the round alone, so that it can also
      be used in a training loop without clients, by `init` and `update`.
  """

  init_fn: Init
  update_fn: Update
  role: str
  broadcasts: bool = False
  releases: int = 0
  sensitivity: tuple[jax.Array, ...] = ()
  draws: tuple[str | int, ...] = ()
  decode: comms.Decode = undecoded
  attach: Callable[..., tuple[tuple['Link', ...], 'Link']] | None = None
  epoch: int | None = None
  due: Callable[[Tree], dict[str, jax.Array]] | None = None
  sketch: sketches.Sketch | None = None
  hash_rounds: int | None = None
  by_round: bool = False

  def init(self, params: Params) -> Alone:
    """Initialise the state of a training loop without clients."""
    if not self.by_round:
      raise ValueError(
        'This link works in `federated` alone; in your own training loop use '
        'fl_sketch.distributed.mean_over(axis, compressor).'
      )
    return Alone(jnp.int32(0), self.init_fn(params))

  def update(
    self, updates: Tree, state: Alone, params: Params | None = None
  ) -> tuple[Tree, Alone]:
    """Do one step, as a transformation of optax, with the keys of seed 0."""
    if params is None:
      raise ValueError('A link requires params: update(grads, state, params).')
    keys = keys_lib.round_keys(jax.random.key(0), state.step)
    updates, new = self.update_fn(updates, state.state, params, keys=keys)
    return updates, Alone(state.step + 1, new)


def attached(attach: Callable[..., tuple[tuple[Link, ...], Link]]) -> Link:
  """Make an uplink that `federated` builds from the client links."""
  return Link(optax.init_empty_state, _no_update, UPLINK, attach=attach)


def _no_update(*_, **__):
  raise ValueError('This uplink works in `federated` alone.')


class CohortMean(NamedTuple):
  """A mean over the cohort that an `exchange` takes, plain or private."""

  # (payloads [lanes, ...], **extra arguments of a link) -> (mean, its bill)
  take: Callable[..., tuple[Tree, comms.Bill]]
  releases: int = 0  # as of a `Link`
  sensitivity: tuple[jax.Array, ...] = ()
  draws: tuple[str | int, ...] = ()


def exchange(
  init: Init, update: Update, *, means: Sequence[CohortMean] = (),
  broadcasts: bool = False,
) -> Link:  # fmt: skip
  """Make a link with its own uplinks, one or several, of stacked payloads.

  Payloads, leaves [lanes, ...], are not added to a running sum: a round holds
  those of all lanes. Its `means` are of `aggregation.cohort_means`; their
  releases are those of the link. The `update` takes them by keyword as
  functions (payloads, **extra arguments) -> (mean, bill). It must call each
  once, else tracing raises ValueError: two sums would have the same noise.
  """

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

  return Link(
    init, counted if means else update, EXCHANGE, broadcasts,
    releases=sum(mean.releases for mean in means),
    sensitivity=sum((mean.sensitivity for mean in means), ()),
    draws=sum((mean.draws for mean in means), ()),
  )  # fmt: skip


def check_hashes(encode: Sequence[Link], epoch: int | None) -> None:
  """Raise ValueError if hashes of client links change within `Link.epoch`."""
  for link in encode:
    rounds = link.hash_rounds
    if epoch is None or link.sketch is None or rounds == 0:
      continue
    if rounds is None or rounds % epoch:
      raise ValueError(
        f'hash_rounds={rounds} of a sketch must be 0 or a multiple of {epoch}: '
        'correlated noise cancels in tables of one hash alone.'
      )


def state_of(state: Tree, which: str | type) -> Tree:
  """Find the state of one link, or a field of it, by type or name.

  `state` is a `rounds.FedState`, or its `protocol` or `server`; `which` the
  type of the link's state, that type's name, or a field, as 'momentum'. No such
  part, or more than one, raises ValueError.

  >>> server = optax.chain(optax.trace(0.9), optax.scale(-1.0))
  >>> state_of(server.init({'w': 0.0}), 'trace')
  {'w': Array(0., dtype=float32, weak_type=True)}
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


def chained(links: Sequence[Link]) -> optax.GradientTransformationExtraArgs:
  """Make one transformation of links."""
  make = optax.GradientTransformationExtraArgs
  made = [make(link.init_fn, link.update_fn) for link in links]
  return optax.chain(*made) if made else IDENTITY


def as_link(tx: Link | optax.GradientTransformation) -> Link:
  """Return a link, or the shared link of a plain transformation of optax."""
  if isinstance(tx, Link):
    return tx
  tx = optax.with_extra_args_support(tx)

  def init(params):
    state = tx.init(params)
    is_link = lambda node: isinstance(node, Alone)
    if any(map(is_link, jax.tree.leaves(state, is_leaf=is_link))):
      raise ValueError(
        'Give links to federated one by one, not inside a combinator of optax '
        'such as optax.chain, which does not pass them keys.'
      )
    return state

  return Link(init, tx.update, SHARED)
