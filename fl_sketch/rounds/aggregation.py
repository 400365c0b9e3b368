"""Average the tables of a cohort: plain, robust, encoded or private mean."""

import dataclasses
from typing import Protocol

from fl_sketch import codecs
from fl_sketch.rounds import chain, comms, error_feedback, keys as keys_lib
from fl_sketch.rounds.robust import KINDS, Rule, group_means
from fl_sketch.utils import checks
from fl_sketch.utils.types import Tree
import jax
import jax.numpy as jnp
import optax


class PrivateMean(Protocol):
  """What means require of ``privacy``: a `private_mean.PrivateMean`."""

  def uplink(self) -> chain.Link:
    """Build the link of one private mean."""
    ...

  def clipped(self, tree: Tree) -> Tree:
    """Return the contribution to the sum, clipped or scaled to the bound."""
    ...

  def normalizing(self) -> 'PrivateMean':
    """Return this mean with all contributions scaled to the bound's norm."""
    ...

  def mean(self, index: int) -> chain.CohortMean:
    """Make one of several private means of a round, with independent noise."""
    ...


def mean_over_cohort(
  *, privacy: PrivateMean | None = None, robust: Rule | None = None,
  codec: codecs.Codec | None = None, decode: comms.Decode | None = None,
  denominator: float | None = None,
) -> chain.Link:  # fmt: skip
  r"""Build the uplink, which averages the clients' payloads by weight.

  `privacy` bounds contributions and adds noise; `robust` replaces the mean. The
  codec encodes all leaves of a client's payload as one vector, with draws of
  that client; of an unbiased codec Q and an operator with orthogonal rows,
  :math:`E\|R^\top Q(R x)\|^2 \leq (1 + \omega) (1 + \alpha) \|x\|^2`.
  `decode` (keys, payload, like) -> tree undoes an earlier link's encoding; the
  denominator is as in `Comm.mean`.

  Raises:
    ValueError: privacy is combined with robust, decode or denominator, or with
      a codec where clients add the noise; or, when the state is initialised,
      the codec cannot encode a client's payload.
  """
  if privacy is not None:
    others = dict(robust=robust, decode=decode, denominator=denominator)
    for name, option in others.items():
      if option is not None:
        raise ValueError(f'{name} has no privacy analysis; unset it.')
    link = privacy.uplink()
  elif robust is not None:
    link = _robust(robust, decode)
  else:
    link = _plain(decode, denominator)
  return link if codec is None else _encoded(codec, link)


def cohort_means(
  count: int, *, privacy: PrivateMean | None = None
) -> tuple[chain.CohortMean, ...]:
  """Build the means of a `chain.exchange`, each with its own private noise."""
  if privacy is not None:
    return tuple(privacy.mean(index) for index in range(count))

  def take(payloads, *, comm, weight, **_):
    mean, up = comm.stacked_mean(payloads, weight)
    return mean, comms.bill(up)

  return (chain.CohortMean(take),) * count


def _plain(decode, denominator) -> chain.Link:
  def update(lane_sum, _, params=None, *, comm, **__):
    mean, up = comm.mean(lane_sum, denominator)
    return mean, comms.bill(up)

  init = lambda params: comms.bill()
  decode = decode or chain.undecoded
  return chain.Link(init, update, chain.UPLINK, decode=decode)


def _encoded(codec, link) -> chain.Link:
  """Add a link in which clients encode the payload of their last link."""
  if link.role != chain.UPLINK or link.attach is not None:
    raise ValueError(
      'codec is not supported with privacy, unless the server adds the '
      'noise to a sum with a fixed bound on what is sent.'
    )

  def attach(encoder):
    sketch = encoder[-1].sketch if encoder else None
    shapes = sketch.zero_table if sketch else lambda params: params
    like = lambda params: jax.eval_shape(shapes, params)
    decoder = error_feedback.decoder(codec)

    def init(params):
      error_feedback.check_codec(codec, like(params))
      return optax.EmptyState()

    update = error_feedback.compress(codec).update_fn
    encode = chain.Link(init, update, chain.CLIENT)

    def decode(keys, payload, params):
      return link.decode(keys, decoder(keys, payload, like(params)), params)

    return (*encoder, encode), dataclasses.replace(link, decode=decode)

  return chain.attached(attach)


def _robust(rule: Rule, decode) -> chain.Link:
  """Apply a rule to means of groups, inside which clients are weighted."""
  checks.choice('robust', rule.kind, tuple(KINDS))
  groups = checks.count('groups', rule.groups)
  membership = lambda key: jnp.arange(groups) == keys_lib.group(key, groups)

  def grouped(keys, payload, like):
    tree = payload if decode is None else decode(keys, payload, like)
    member = membership(keys.client)
    place = lambda x: jnp.where(comms.expand_like(member, x[None]), x[None], 0)
    return jax.tree.map(place, tree)

  link = _plain(grouped, 1.0)

  def update(lane_sum, state, params=None, *, keys, comm, weight, **_):
    sums, state = link.update_fn(lane_sum, state, params, comm=comm)
    members = jax.vmap(membership)(keys.client)
    weights = jax.vmap(comms.weighted)(members, weight).sum(0)
    weights = comm.sum(weights)
    return KINDS[rule.kind](*group_means(sums, weights)), state

  return dataclasses.replace(link, update_fn=update)
