r"""Byzantine-robust aggregation (median of group means) for streamed sums.

A running sum hides single tables. So clients are assigned to random groups,
fresh every round; the tables of a group are averaged, :math:`m_1, \ldots, m_G`,
and a rule that tolerates outliers replaces the mean of these means. A byzantine
client corrupts one group: a minority of the groups that are not empty may be
corrupt. A round holds G tables for every client that a shard works on at once.
"""

from typing import NamedTuple

from fl_sketch.rounds import comms
from fl_sketch.utils.types import Tree
import jax
import jax.numpy as jnp

STEPS = 32  # of Weiszfeld
_SMOOTHING = 1e-6  # least distance of Weiszfeld, in median distances


class Rule(NamedTuple):
  """A byzantine-robust rule that replaces the mean over the cohort."""

  kind: str  # 'geometric_median' or 'median', the functions of these names
  groups: int  # number of group means; 1 is the mean itself


def geometric_median(points: Tree, present: jax.Array) -> Tree:
  r"""Minimise :math:`\sum_g \|m_g - v\|` over v.

  Weiszfeld's iteration, from `median`: each step is a weighted mean of the
  points with weights :math:`1 / \max(\nu, \|m_g - v\|)`.

  With a share :math:`\alpha < 1/2` of the points byzantine and the others
  within r of any z, it is within
  :math:`r (1 - \alpha) / \sqrt{1 - 2 \alpha}` of z.

  Points have leaves [groups, ...]; `present` bool[groups] selects those that
  count. The result has leaves [...], zeros if no point counts.

  >>> points, present = jnp.array([1.0, 2.0, 1e9]), jnp.ones(3, bool)
  >>> round(float(geometric_median(points, present)), 3)
  2.0

  Source: Pillutla, Kakade, Harchaoui, RFA, arXiv:1912.13445, with clients as
    points and absolute smoothing; groups: Chen, Su, Xu, arXiv:1705.05491,
    Algorithm 2; the bound: Minsker, Bernoulli 2015, arXiv:1308.1334, Lemma 2.1.
  """
  start = median(points, present)
  distances = jnp.where(present, _distances(points, start), jnp.nan)
  least = jnp.clip(_SMOOTHING * jnp.nanmedian(distances), 1e-30, 1e30)

  def step(_, center):
    near = least / jnp.maximum(_distances(points, center), least)
    near = jnp.where(present, near, 0)
    total = near.sum()  # 0 if the squares of all distances overflow
    share = near / jnp.where(total > 0, total, 1)
    mean = lambda x: (comms.expand_like(share.astype(x.dtype), x) * x).sum(0)
    move = lambda x, old: jnp.where(total > 0, mean(x), old)
    return jax.tree.map(move, points, center)

  center = jax.lax.fori_loop(0, STEPS, step, start)
  return jax.tree.map(lambda x: jnp.where(present.any(), x, 0), center)


def median(points: Tree, present: jax.Array) -> Tree:
  """Return the coordinate-wise median, as `geometric_median` of its arguments.

  The median of tables is not the table of any combination of updates, and does
  not commute with the rotation of a table.

  Source: Yin, Chen, Ramchandran, Bartlett, ICML 2018, arXiv:1803.01498,
    Algorithm 1, option I, whose points are clients.
  """

  def middle(x):
    values = jnp.where(comms.expand_like(present, x), x, jnp.nan)
    return jnp.where(present.any(), jnp.nanmedian(values, axis=0), 0)

  return jax.tree.map(middle, points)


KINDS = {rule.__name__: rule for rule in (geometric_median, median)}


def group_means(totals: Tree, weight: jax.Array) -> tuple[Tree, jax.Array]:
  """Divide the groups' sums by their weights: (means, bool[groups] present).

  Groups without weight, or with a sum that is not finite, are absent.
  """
  scale = jnp.where(weight > 0, 1 / jnp.maximum(weight, 1e-38), 0)
  divide = lambda x: x * comms.expand_like(scale.astype(x.dtype), x)
  means = jax.tree.map(divide, totals)
  is_finite = lambda x: jnp.isfinite(x).all(tuple(range(1, x.ndim)))
  finite = map(is_finite, jax.tree.leaves(means))
  present = jnp.all(jnp.stack([weight > 0, *finite]), axis=0)
  return comms.where_present(means, present), present


def _distances(points, center):
  """Return Euclidean distances over all leaves together, f32[groups]."""
  square = lambda x, y: ((x - y[None]) ** 2).sum(tuple(range(1, x.ndim)))
  return jnp.sqrt(sum(jax.tree.leaves(jax.tree.map(square, points, center))))
