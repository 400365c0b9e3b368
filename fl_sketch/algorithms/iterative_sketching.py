"""Iterative sketching: Song, Wang, Yu, Zhang, ICML 2023, Algorithm 1."""

from fl_sketch import local as local_work
from fl_sketch import sketches
from fl_sketch import transforms as t
from fl_sketch.algorithms import base
import optax


def iterative_sketching(
  local: local_work.Local, hp: base.Hyper, *, sketch: sketches.Sketch
) -> base.Algorithm:
  r"""K local steps, one linear sketch, one de-sketch.

  :math:`w \leftarrow w - \eta_g R_t^\top \frac1n \sum_c R_t \Delta_c` with a
  fresh :math:`R_t` every round. Up and down: b floats.

  The printed line 9 decodes with the operator of the next round, under which
  the loss explodes; we decode with the one that encoded, as the paper's own
  proof (Lemma F.2) does, and apply the last round's sketch too. Our
  pseudo-gradient is received minus returned, the paper's the opposite.

  Args:
    local: local work.
    hp: the practical range of ``server_lr`` is 4 b/d to 1.
    sketch: a linear operator whose desketch is its adjoint.
  """
  return base.federated(
    local,
    t.sketch(sketch),
    t.mean_over_cohort(),
    t.broadcast(),
    t.desketch(sketch),
    optax.scale_by_learning_rate(hp.server_lr),
  )
