"""FedSKETCH: Haddadpour, Karimi, Li, Li, arXiv:2008.04975, Algorithm 5."""

from fl_sketch import local as local_work
from fl_sketch import sketches
from fl_sketch import transforms as t
from fl_sketch.algorithms import base
import optax


def fedsketch_privix(
  local: local_work.Local, hp: base.Hyper, *, sketch: sketches.Sketch
) -> base.Algorithm:
  r"""FedSKETCH with the PRIVIX decoder: a count sketch read by its median.

  :math:`x \leftarrow x - \gamma\,\mathrm{PRIVIX}(\frac1k \sum_j
  \mathrm{CS}(\Delta_j))`, hashes fresh every round. Up and down: rows x cols
  floats. The median of an even number of rows is the mean of the two middle
  values: the lower one of common code is biased, and the paper's experiments
  have 20 and 50 rows. We sample clients before the round, not after.

  Args:
    local: local work.
    hp: hyperparameters; gamma is ``server_lr``.
    sketch: ``sketches.count_sketch(rows, cols)``; rows and cols are the paper's
      t and m.
  """
  return base.federated(
    local,
    t.sketch(sketch),
    t.mean_over_cohort(),
    t.broadcast(),
    t.desketch(sketch),
    optax.scale_by_learning_rate(hp.server_lr),
  )
