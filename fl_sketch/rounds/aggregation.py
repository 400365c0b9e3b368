"""The uplink of tables without privacy: which mean, and of what is sent."""

from typing import Any

from fl_sketch import codecs, sketches
from fl_sketch.rounds import (
  error_feedback as feedback,
  robust as robust_lib,
  transforms as t,
)
import jax
import optax


def mean_over_cohort(
  op: sketches.Sketch,
  *,
  robust: robust_lib.Rule | None = None,
  codec: codecs.Codec | None = None,
) -> tuple[Any, ...]:
  r"""Links from a client's table to the mean of the cohort's tables.

  With a codec Q, of which each client draws its own, fewer bytes go up than a
  table has. It is decoded before it is added to the sum, and what the server
  broadcasts is the mean as it is. Of an unbiased Q and an operator with
  orthogonal rows, :math:`E\|R^\top Q(R x)\|^2 \leq (1 + \omega) (1 + \alpha)
  \|x\|^2`.

  Args:
    op: whose tables they are.
    robust: what takes the place of the mean; None is the mean.
    codec: of all numbers of a table as one; None sends them as they are.

  Raises (when their state is made):
    ValueError: the codec cannot encode such a table.
  """

  def mean(decode):
    if robust is None:
      return t.mean_over_cohort(decode=decode)
    return robust_lib.mean_over_cohort(robust, decode=decode)

  if codec is None:
    return (mean(None),)
  like, read = lambda x: jax.eval_shape(op.like, x), feedback.decoder(codec)

  def init(params):
    feedback.check_codec(codec, like(params))
    return optax.EmptyState()

  encode = t.ClientTransform(init, feedback.compress(codec).update)
  return encode, mean(lambda keys, sent, x: read(keys, sent, like(x)))
