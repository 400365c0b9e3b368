"""Averages the tables of a cohort: plain, robust, encoded or private mean."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from fl_sketch import codecs
from fl_sketch.rounds import chain, comms, error_feedback, keys as keys_lib
from fl_sketch.rounds.robust import KINDS, Rule, group_means
from fl_sketch.utils import checks
import jax
import jax.numpy as jnp
import optax


class CohortMean(NamedTuple):
  """A mean over the cohort that an `Exchange` takes, plain or private."""

  # (payloads [lanes, ...], **extra arguments of a link) -> (mean, its bill)
  take: Callable[..., tuple[Any, comms.Bill]]
  releases: int = 0  # as of a `chain.Transform`
  sensitivity: tuple[Any, ...] = ()
  draws: tuple[Any, ...] = ()


class PrivateMean(Protocol):
  """Type of ``privacy`` of the means, as `privacy.mechanisms` makes it."""

  def uplink(self) -> chain.Uplink | chain.Exchange:
    """The link of one private mean."""
    ...

  def clipped(self, tree: Any) -> Any:
    """The contribution that enters the sum: clipped or scaled to the bound."""
    ...

  def normalizing(self) -> 'PrivateMean':
    """The same mean with every contribution scaled to the norm of the bound."""
    ...

  def mean(self, index: int) -> CohortMean:
    """Makes one of several private means of a round, with independent noise."""
    ...


def mean_over_cohort(
  *, privacy: PrivateMean | None = None, robust: Rule | None = None,
  codec: codecs.Codec | None = None, decode: comms.Decode | None = None,
  denominator: Any = None,
) -> chain.Uplink | chain.Exchange:  # fmt: skip
  r"""The uplink: averages the clients' payloads by weight; the mean is shared.

  Of an unbiased codec Q and an operator with orthogonal rows,
  :math:`E\|R^\top Q(R x)\|^2 \leq (1 + \omega) (1 + \alpha) \|x\|^2`.

  >>> mean_over_cohort().releases
  0

  Each option is left out if None. `privacy` bounds contributions and adds
  noise, and `robust` is a byzantine-robust rule in place of the mean. A codec
  compresses a client's payload, all its leaves as one vector, with draws of its
  own; `decode` (keys, payload, like) -> tree undoes an earlier link's encoding.
  The denominator is as in `comms.uplink_mean`.

  Raises:
    ValueError: privacy is combined with another option but a codec, or a codec
      with privacy whose noise is not the server's; or, when the state is
      initialised, the codec cannot encode a client's payload.
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
) -> tuple[CohortMean, ...]:
  """Builds the means of an `Exchange`, which differ in their private noise."""
  if privacy is not None:
    return tuple(privacy.mean(index) for index in range(count))

  def take(payloads, *, weight, **_):
    mean, up = comms.uplink_stacked_mean(payloads, weight)
    return mean, comms.bill(up)

  return (CohortMean(take),) * count


def _plain(decode, denominator) -> chain.Uplink:
  def update(lane_sum, _, params=None, **__):
    mean, up = comms.uplink_mean(lane_sum, denominator)
    return mean, comms.bill(up)

  marks = {} if decode is None else {'decode': decode}
  return chain.Uplink(lambda params: comms.bill(), update, **marks)


def _encoded(codec, link) -> chain.Uplink:
  """Clients encode the payload of their last link: a table, if it sketches."""
  if not isinstance(link, chain.Uplink) or link.attach is not None:
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

    encode = chain.ClientTransform(init, error_feedback.compress(codec).update)

    def decode(keys, payload, params):
      return link.decode(keys, decoder(keys, payload, like(params)), params)

    return (*encoder, encode), link._replace(decode=decode)

  return chain.attached(attach)


def _robust(rule: Rule, decode) -> chain.Uplink:
  """Applies a rule to means of groups, inside which clients are weighted."""
  checks.choice('robust', rule.kind, tuple(KINDS))
  groups = checks.count('groups', rule.groups)
  membership = lambda key: jnp.arange(groups) == keys_lib.group(key, groups)

  def grouped(keys, payload, like):
    tree = payload if decode is None else decode(keys, payload, like)
    member = membership(keys.client)
    place = lambda x: jnp.where(comms.expand_like(member, x[None]), x[None], 0)
    return jax.tree.map(place, tree)

  link = _plain(grouped, 1.0)

  def update(lane_sum, state, params=None, *, keys, weight, **extra):
    sums, state = link.update(lane_sum, state, params, **extra)
    members = jax.vmap(membership)(keys.client)
    weights = jax.vmap(comms.weighted)(members, weight).sum(0)
    weights = comms.sum_over_shards(weights)
    return KINDS[rule.kind](*group_means(sums, weights)), state

  return link._replace(update=update)
