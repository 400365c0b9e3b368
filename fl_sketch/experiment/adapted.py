"""Freezes the parameters of a problem but for adapters, as `lora` says."""

import functools

from fl_sketch.experiment.config import Config
from fl_sketch.experiment.problem import Problem
from fl_sketch.models import lora
from fl_sketch.rounds.algorithm import OfFrozen, with_hyper
import jax

_A = 0x10FA  # folded into the key of the first parameters


def problem(c: Config, whole: Problem) -> Problem:
  """The problem of training adapters in place of the model.

  Its losses read the others from `Hyper.frozen`. Raises as `models.lora.lora`.
  """
  key = jax.random.fold_in(jax.random.key(c.seed), _A)
  parts = lora.make(**c.lora or {}, params=whole.params, key=key)
  factored = lambda fn: lora.factored(fn, parts.scale)
  merge = lambda params: lora.merge(params, parts.scale)

  def merged(fn):
    @functools.wraps(fn)
    def on_merged(params, *args, **kwargs):
      return fn(merge(params), *args, **kwargs)

    return on_merged

  def of_adapters(part, adapt):
    of = lambda hp: lora.beside(adapt(with_hyper(part, hp)), hp.frozen)
    return OfFrozen(of)

  apply_fn = whole.apply_fn
  return whole._replace(
    params=parts.trainable, frozen=parts.frozen,
    merge=lambda frozen, params: merge(lora.join(frozen, params)),
    loss_fn=of_adapters(whole.loss_fn, factored),
    metrics_fn=of_adapters(whole.metrics_fn, merged),
    apply_fn=None if apply_fn is None else of_adapters(apply_fn, merged),
  )  # fmt: skip
