"""What a client minimises, and the local work that an algorithm makes of it."""

from typing import Any, NamedTuple

from fl_sketch.local.optimizers import Optimizer
from fl_sketch.local.private_sgd import private_sgd
from fl_sketch.local.sgd import gradient, sgd
from fl_sketch.rounds.algorithm import Hyper, Local, LossFn


class Task(NamedTuple):
  """The loss of a client, and how many steps of which optimizer it makes.

  An algorithm that is registered with ``work='task'``, or 'slopes', gets it in
  place of local work, which it builds by a method, or by itself from the loss.

  >>> task = Task(lambda w, batch: 0.5 * ((w - batch) ** 2).sum())
  >>> local = task.steps(Hyper(0.5, 1.0), proximal=0.1)

  Attributes:
    loss_fn: (params, batch) -> f32[].
    local_steps: K; None is one step a batch.
    weight_decay: added to gradients, times the parameters.
    expected_batch: divisor of private steps; None elsewhere.
    optimizer: of the steps; None is SGD.
    clip: the largest norm of a gradient; None is any.
  """

  loss_fn: LossFn
  local_steps: int | None = None
  weight_decay: float = 0.0
  expected_batch: int | None = None
  optimizer: Optimizer | None = None
  clip: float | None = None

  def steps(self, hp: Hyper, *, proximal: Any = None) -> Local:
    """Local steps; see `local.sgd`."""
    optimizer = self.optimizer
    return sgd(
      self.loss_fn,
      hp.client_lr,
      local_steps=self.local_steps,
      weight_decay=self.weight_decay,
      proximal=proximal,
      optimizer=optimizer and optimizer.make(hp.client_lr),
      keep=optimizer is not None and optimizer.keep,
      clip=self.clip,
    )

  def gradient(self) -> Local:
    """One gradient; see `local.gradient`."""
    options = {'weight_decay': self.weight_decay, 'clip': self.clip}
    return gradient(self.loss_fn, **options)

  def private_steps(self, hp: Hyper) -> Local:
    """Steps with noise; see `local.private_sgd`."""
    numbers: Any = hp.client_lr, hp.clip_norm, hp.noise_multiplier
    expected: Any = self.expected_batch
    options = {'expected_batch': expected, 'weight_decay': self.weight_decay}
    return private_sgd(self.loss_fn, *numbers, **options)
