"""The mean over a cohort: plain, robust, of encoded payloads, or private."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from fl_sketch import codecs
from fl_sketch.rounds import (
  comms,
  error_feedback as feedback,
  keys as keys_lib,
  robust as robust_lib,
  transforms as t,
)
from fl_sketch.utils import checks
import jax
import jax.numpy as jnp
import optax


class CohortMean(NamedTuple):
  """One mean that an `Exchange` takes.

  Attributes:
    take: (payloads, **extra arguments of a link) -> (mean, its bill); payloads
      have leaves [lanes, ...].
    releases: 1 if it adds noise that protects the clients, else 0.
    sensitivity: as of `transforms.Transform`.
  """

  take: Callable[..., tuple[Any, comms.Bill]]
  releases: int = 0
  sensitivity: tuple[Any, ...] = ()


class PrivateMean(Protocol):
  """What the means take as ``privacy``; see `privacy.aggregation.Release`."""

  def uplink(self) -> t.Uplink | t.Exchange:
    """The link of one private mean."""
    ...

  def bounded(self, tree: Any) -> Any:
    """A contribution as it is added up."""
    ...

  def normalizing(self) -> 'PrivateMean':
    """The same with contributions scaled to the bound, short ones up."""
    ...

  def mean(self, index: int) -> CohortMean:
    """One of several private means of a round, each with noise of its own."""
    ...


def mean_over_cohort(
  *,
  privacy: PrivateMean | None = None,
  robust: robust_lib.Rule | None = None,
  codec: codecs.Codec | None = None,
  decode: comms.Decode | None = None,
  denominator: Any = None,
) -> t.Uplink | t.Exchange:
  r"""The uplink: every client's payload -> the weighted mean, shared.

  With a codec Q, of which each client draws its own, fewer bytes go up than a
  table or an update has. It is decoded before it is added to the sum, and what
  the server broadcasts is the mean as it is. Of an unbiased Q and an operator
  with orthogonal rows, :math:`E\|R^\top Q(R x)\|^2 \leq (1 + \omega) (1 +
  \alpha) \|x\|^2`.

  >>> mean_over_cohort().releases
  0

  Args:
    privacy: bounds contributions and adds noise; None is no privacy.
    robust: what takes the place of the mean; None is the mean.
    codec: of what a client sends, of all its numbers as one; None sends them
      as they are.
    decode: (keys, payload, like) -> tree, undoes a non-linear encoding that an
      earlier link made, one client at a time.
    denominator: as in `comms.uplink_sum`.

  Raises:
    ValueError: something else is given beside privacy, whose sensitivity is
      known for plain sums alone; or the codec, when its state is made, cannot
      encode what a client sends.
  """
  if privacy is not None:
    others = {
      'robust': robust,
      'codec': codec,
      'decode': decode,
      'denominator': denominator,
    }
    for name, option in others.items():
      if option is not None:
        raise ValueError(f'Expected {name} to be None with privacy.')
    return privacy.uplink()
  if codec is not None:
    return _encoded(codec, robust)
  if robust is not None:
    return _robust(robust, decode)
  return _plain(decode, denominator)


def cohort_means(
  count: int, *, privacy: PrivateMean | None = None
) -> tuple[CohortMean, ...]:
  """The means of an `Exchange` that takes several.

  Args:
    count: how many; each is taken once a round.
    privacy: as in `mean_over_cohort`; the means differ in their noise.
  """
  if privacy is not None:
    return tuple(privacy.mean(index) for index in range(count))

  def take(payloads, *, weight, **_):
    mean, up = comms.uplink_stacked(payloads, weight)
    return mean, comms.bill(up)

  return (CohortMean(take),) * count


def _plain(decode, denominator) -> t.Uplink:
  def update(lane_sum, _, params=None, **extra):
    del params, extra
    mean, up = comms.uplink_sum(lane_sum, denominator)
    return mean, comms.bill(up)

  marks = {} if decode is None else {'decode': decode}
  return t.Uplink(lambda params: comms.bill(), update, **marks)


def _encoded(codec, robust) -> t.Uplink:
  """Clients encode what their last link sends: a table, if it sketches."""

  def attach(encoder):
    sketch = encoder[-1].sketch if encoder else None
    shapes = sketch.like if sketch else lambda params: params
    like = lambda params: jax.eval_shape(shapes, params)
    read = feedback.decoder(codec)

    def init(params):
      feedback.check_codec(codec, like(params))
      return optax.EmptyState()

    encode = t.ClientTransform(init, feedback.compress(codec).update)
    decode = lambda keys, sent, params: read(keys, sent, like(params))
    return (*encoder, encode), mean_over_cohort(robust=robust, decode=decode)

  return t.attached(attach)


def _robust(rule: robust_lib.Rule, decode) -> t.Uplink:
  """The rule's mean of the means of groups.

  Inside a group clients count by their weights; groups count alike, whatever
  their weights, or else the largest would be the one to spoil. Groups that are
  empty, or whose sum is not finite, are left out.

  Raises:
    ValueError: there is no such rule, or no group.
  """
  checks.choice('robust', rule.kind, tuple(robust_lib.KINDS))
  groups = checks.count('groups', rule.groups)
  membership = lambda key: jnp.arange(groups) == keys_lib.group(key, groups)

  def grouped(keys, payload, like):
    tree = payload if decode is None else decode(keys, payload, like)
    member = membership(keys.client)
    rows = lambda x: jnp.where(comms.beside(member, x[None]), x[None], 0)
    return jax.tree.map(rows, tree)

  link = _plain(grouped, 1.0)

  def update(lane_sum, state, params=None, *, keys, weight, **extra):
    sums, state = link.update(lane_sum, state, params, **extra)
    members = jax.vmap(membership)(keys.client)
    weights, _ = comms.uplink_stacked(members, weight, None, 1.0)
    means = robust_lib.group_means(sums, weights)
    return robust_lib.KINDS[rule.kind](*means), state

  return link._replace(update=update)
