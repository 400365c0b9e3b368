r"""Noisy releases of the training loss and the number of participants.

They are part of the release of the updates. The contribution of a client is the
vector :math:`(u / C, (l - L/2) / (L/2), 1)` of its bounded update, its loss
clipped to [0, L] and centred, and a one, with noise of standard deviation
:math:`z_u, z_l, z_n`. Each part has norm 1 at most. Together their multiplier
is z,

.. math:: z^{-2} = z_u^{-2} + z_l^{-2} + z_n^{-2},

where :math:`z_u^{-2}` and :math:`z^{-2}` count k times if a round releases
updates k times. Source: Andrew et al., NeurIPS 2021, arXiv:1905.03871, Theorem
1, for a count that is released with a sum.
"""

from typing import NamedTuple, TypeVar

from fl_sketch.privacy.mechanisms import grid as grid_lib
from fl_sketch.rounds import client_step, comms, keys as keys_lib, marks
from fl_sketch.rounds.algorithm import Hyper
import jax
import jax.numpy as jnp

STATISTICS = 2  # with equal parts of the share
_Multiplier = TypeVar('_Multiplier', float, jax.Array)


class Budget(NamedTuple):
  """Privacy budget of two released statistics, and their clipping bound."""

  expected_cohort: float  # divides the sum of losses, whoever takes part
  max_cohort: int  # the largest number of clients in a round
  share: float = 0.05  # of both statistics in the 1 / z^2 of a round
  loss_bound: float = 5.0  # L, to which the loss of a client is clipped

  def of_updates(self, noise_multiplier: _Multiplier) -> _Multiplier:
    """Return the multiplier of the noise on updates, from the accounted one."""
    return noise_multiplier / (1 - self.share) ** 0.5

  def of_statistics(
    self, noise_multiplier: _Multiplier, releases: int
  ) -> _Multiplier:
    """Return the multiplier of the noise on each of the two statistics."""
    return noise_multiplier / (self.share * releases / STATISTICS) ** 0.5

  def sentence(self, noise_multiplier: float, releases: int) -> str:
    """Return the part of a statement about what is released at what price.

    The multiplier is of a round: of statistics and all releases of updates.
    """
    statistics = self.of_statistics(noise_multiplier, releases)
    return (
      'train_loss (that of a client is clipped to '
      f'[0, {self.loss_bound:g}]) and participants are released with noise of '
      f'multiplier {statistics:.4g} each, for {self.share / STATISTICS:.3g} of '
      'the 1 / noise_multiplier^2 of a round each, and updates with '
      f'{self.of_updates(noise_multiplier):.4g} for the rest.'
    )

  def __call__(
    self,
    observed: client_step.Observed,
    comm: comms.Comm,
    hp: Hyper,
    releases: int,
    noise: keys_lib.NoiseKeys | None,
  ) -> dict[str, jax.Array]:
    """Return the metrics of a round: a `client_step.Summary`.

    The noise multiplier of `hp` is that of updates. One client moves each sum
    by at most 1, in units of its bound, whatever it sends.
    """
    assert noise is not None  # the round is private
    taken = observed.participates
    grid_lib.check_cohort(taken.shape[0], self.max_cohort, comm)
    half = self.loss_bound / 2
    loss = jnp.nan_to_num(observed.metrics['train_loss'], nan=self.loss_bound)
    centred = (jnp.clip(loss, 0, self.loss_bound) - half) / half
    z = hp.noise_multiplier * (1 - self.share) ** 0.5
    z = self.of_statistics(z, releases)
    grid = grid_lib.make(
      clip_norm=1.0, noise_multiplier=z, clients=self.max_cohort
    )
    total = []
    for sent in centred, jnp.ones_like(centred):  # each is within 1
      integers = grid_lib.encode(sent, grid)
      bounded = jax.vmap(marks.contribution, (0, None, None))(
        integers, grid.step, 1.0
      )
      total.append(comm.sum_lanes(jnp.where(taken, bounded, 0)))
    drawn = grid_lib.noise(keys_lib.metrics_key(noise), total, grid)
    noisy = [marks.released(x + y) for x, y in zip(total, drawn, strict=True)]
    losses, count = grid_lib.decode(noisy, grid)
    mean = losses / self.expected_cohort
    return {'train_loss': half * (1 + mean), 'participants': count}


def nothing(*_: object) -> dict[str, jax.Array]:
  """Return no metrics: a `client_step.Summary`."""
  return {}
