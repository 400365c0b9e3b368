r"""Byzantine-robust aggregation (median of group means) for streamed sums.

A running sum of tables shows no client's table, and a server that sees tables
has no coordinates to vote on. So clients fall into random groups, fresh every
round; the tables of a group are averaged, :math:`m_1, \ldots, m_G`, and a rule
that tolerates some bad points takes the place of the mean of the means. A
byzantine client spoils one group, hence fewer of them than half the groups that
are not empty spoil nothing. A round holds G tables instead of one, times the
lanes that are worked on at once.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from fl_sketch.rounds import comms
import jax
import jax.numpy as jnp

STEPS = 32  # of Weiszfeld; each costs no more than a sum over the groups
_SMOOTHING = 1e-6  # of a typical distance: nearer is not told apart


class Rule(NamedTuple):
  """What takes the place of the mean over the cohort; public.

  Attributes:
    kind: 'geometric_median' or 'median', the functions of these names.
    groups: how many means it is taken over; 1 is the mean itself.
  """

  kind: str
  groups: int


def geometric_median(points: Any, present: jax.Array) -> Any:
  r"""The point of the least sum of distances, :math:`\sum_g \|m_g - v\|`.

  By steps of Weiszfeld, each of them a weighted mean of the points with weights
  :math:`1 / \max(\nu, \|m_g - v\|)`. So the result is a convex combination: of
  tables it is the table of that combination of updates, which is what a linear
  sketch allows, and distances of tables are about those of updates. They start
  from `median`, which byzantine points cannot move far: from the mean it would
  take as many more steps as they are far.

  With a share :math:`\alpha < 1/2` of the points byzantine and the others
  within r of any z, it is within
  :math:`r (1 - \alpha) / \sqrt{1 - 2 \alpha}` of z.

  >>> points, present = jnp.array([1.0, 2.0, 1e9]), jnp.ones(3, bool)
  >>> round(float(geometric_median(points, present)), 3)
  2.0

  Args:
    points: leaves [groups, ...].
    present: bool[groups], which of them count.

  Returns:
    Leaves [...]; zeros where none counts.

  Source: Pillutla, Kakade, Harchaoui, RFA, arXiv:1912.13445, whose points are
    clients; of groups: Chen, Su, Xu, arXiv:1705.05491, Algorithm 2.
    Our smoothing is relative. The bound: Minsker, Bernoulli 2015,
    arXiv:1308.1334, Lemma 2.1.
  """
  start = median(points, present)
  typical = jnp.nanmedian(
    jnp.where(present, _distances(points, start), jnp.nan)
  )
  least = jnp.clip(_SMOOTHING * typical, 1e-30, 1e30)

  def step(_, center):
    near = least / jnp.maximum(_distances(points, center), least)
    near = jnp.where(present, near, 0)
    total = near.sum()  # 0 if the squares of all distances overflow
    share = near / jnp.where(total > 0, total, 1)
    mean = lambda x: (comms.beside(share.astype(x.dtype), x) * x).sum(0)
    move = lambda x, old: jnp.where(total > 0, mean(x), old)
    return jax.tree.map(move, points, center)

  found = jax.lax.fori_loop(0, STEPS, step, start)
  return jax.tree.map(lambda x: jnp.where(present.any(), x, 0), found)


def median(points: Any, present: jax.Array) -> Any:
  """The median of every coordinate by itself: the median of means.

  Robust, but of tables it is the table of no combination of updates, so that a
  desketch estimates something that nobody sent, and of a rotated table another
  thing than of the update.

  >>> points, present = jnp.array([1.0, 2.0, 1e9]), jnp.ones(3, bool)
  >>> float(median(points, present))
  2.0

  Args:
    points: leaves [groups, ...].
    present: bool[groups], which of them count.

  Returns:
    Leaves [...]; zeros where none counts.

  Source: Yin, Chen, Ramchandran, Bartlett, ICML 2018, arXiv:1803.01498,
    Algorithm 1, option I, whose points are clients.
  """

  def middle(x):
    known = jnp.where(comms.beside(present, x), x, jnp.nan)
    return jnp.where(present.any(), jnp.nanmedian(known, axis=0), 0)

  return jax.tree.map(middle, points)


KINDS: dict[str, Callable[[Any, jax.Array], Any]] = {
  'geometric_median': geometric_median,
  'median': median,
}


def group_means(totals: Any, weight: jax.Array) -> tuple[Any, jax.Array]:
  """Sums of the groups, leaves [groups, ...] -> (their means, which count).

  Groups without weight, or with a sum that is not finite, do not count.
  """
  scale = jnp.where(weight > 0, 1 / jnp.maximum(weight, 1e-38), 0)
  means = jax.tree.map(
    lambda x: x * comms.beside(scale.astype(x.dtype), x), totals
  )
  finite = [
    jnp.isfinite(x).all(tuple(range(1, x.ndim))) for x in jax.tree.leaves(means)
  ]
  present = jnp.all(jnp.stack([weight > 0, *finite]), axis=0)
  keep = lambda x: jnp.where(comms.beside(present, x), x, 0)
  return jax.tree.map(keep, means), present


def _distances(points, center):
  """f32[groups], Euclidean, over all leaves together."""
  square = lambda x, y: ((x - y[None]) ** 2).sum(tuple(range(1, x.ndim)))
  squares = jax.tree.map(square, points, center)
  return jnp.sqrt(sum(jax.tree.leaves(squares)))
