"""The task of a client, from which algorithms build local work."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fl_sketch.local.optimizers import Optimizer
from fl_sketch.local.private_sgd import private_sgd
from fl_sketch.local.sgd import gradient, sgd
from fl_sketch.rounds.algorithm import Hyper, Local
import jax


class Task(NamedTuple):
  """The loss of a client, and how many steps of which optimizer it makes.

  Algorithms that are registered as 'task' or 'slopes' never get a `local`.
  """

  loss_fn: Any  # (params, batch) -> f32[]; None if `local` is set
  local_steps: int | None = None  # K; None: one for each batch
  weight_decay: float = 0.0  # added to gradients, times the parameters
  expected_batch: int | None = None  # divisor of private steps; else None
  optimizer: Optimizer | None = None  # of the steps; None: SGD
  clip: float | None = None  # the largest norm of a gradient; None: no bound
  local: Callable[[Hyper], Local] | None = None  # replaces all methods' work

  def steps(
    self, hp: Hyper, *, proximal: jax.Array | float | None = None
  ) -> Local:
    """Build local steps; see `local.sgd`."""
    if self.local is not None:
      return self.local(hp)
    optimizer = self.optimizer
    return sgd(
      self.loss_fn, hp.client_lr, local_steps=self.local_steps,
      weight_decay=self.weight_decay, proximal=proximal, clip=self.clip,
      optimizer=optimizer and optimizer.make(hp.client_lr),
      keep_state=optimizer is not None and optimizer.keep_state,
    )  # fmt: skip

  def gradient(self, hp: Any = None) -> Local:
    """Build one gradient; see `local.gradient`. Only `local` reads `hp`."""
    if self.local is not None:
      return self.local(hp)
    options = {'weight_decay': self.weight_decay, 'clip': self.clip}
    return gradient(self.loss_fn, **options)

  def private_steps(self, hp: Hyper) -> Local:
    """Build steps with noise; see `local.private_sgd`."""
    if self.local is not None:
      return self.local(hp)
    clip, noise, batch = hp.clip_norm, hp.noise_multiplier, self.expected_batch
    if clip is None or noise is None or batch is None:
      raise ValueError(
        'Private steps require clip_norm, noise_multiplier and expected_batch.'
      )
    return private_sgd(
      self.loss_fn, hp.client_lr, clip, noise, expected_batch=batch,
      weight_decay=self.weight_decay,
    )  # fmt: skip
