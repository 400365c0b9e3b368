r"""Releases the training loss and the number of participants with noise.

They belong to the release of the updates: the contribution of a client is the
vector :math:`(u / C, (l - L/2) / (L/2), 1)` of its bounded update, its loss
clipped to [0, L] and centred, and a one, with noise of standard deviation
:math:`z_u, z_l, z_n`. Each has norm 1 at most: together their multiplier is z,

.. math:: z^{-2} = z_u^{-2} + z_l^{-2} + z_n^{-2},

where with k releases of updates in a round, :math:`z_u^{-2}` and
:math:`z^{-2}` count k times. That of a count which is released beside a sum is
due to Andrew et al., NeurIPS 2021, arXiv:1905.03871, Theorem 1.
"""

from typing import Any, NamedTuple

from fl_sketch.privacy.mechanisms import grid as grid_lib
from fl_sketch.rounds import client_step, comms, keys as keys_lib, marks
import jax
import jax.numpy as jnp

STATISTICS = 2  # which have equal parts of the share


class Budget(NamedTuple):
  """Privacy budget of two released statistics, and their clipping bound."""

  expected_cohort: float  # divides the sum of losses, whoever takes part
  max_cohort: int  # the largest number of clients in a round
  share: float = 0.05  # of the 1 / z^2 of a round, for both statistics together
  loss_bound: float = 5.0  # L, to which the loss of a client is clipped

  def of_updates(self, noise_multiplier: Any) -> Any:
    """The multiplier of the noise on updates, from that which is accounted.

    >>> round(Budget(9.0, 9).of_updates(1.0), 4)
    1.026
    """
    return noise_multiplier / (1 - self.share) ** 0.5

  def of_statistics(self, noise_multiplier: Any, releases: float) -> Any:
    """The multiplier of the noise on each of the two statistics.

    >>> round(Budget(9.0, 9).of_statistics(1.0, releases=1), 4)
    6.3246
    """
    return noise_multiplier / (self.share * releases / STATISTICS) ** 0.5

  def sentence(self, noise_multiplier: float, releases: int) -> str:
    """Says in a statement what is released and at what price.

    The multiplier is of a round, statistics and all releases of updates.
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
    hp: Any,
    releases: float,
    noise: keys_lib.NoiseKeys,
  ) -> dict[str, jax.Array]:
    """Computes the metrics of a round: a `client_step.Summary`.

    Sums on a grid are exact. The noise multiplier of `hp` is that of updates.

    Guarantees:
      Sensitivity: a client more or less moves each sum, in units of its bound,
      by at most 1, whatever it sends.
    """
    taken = observed.participates
    grid_lib.check_cohort(taken.shape[0], self.max_cohort)
    half = self.loss_bound / 2
    loss = jnp.nan_to_num(observed.metrics['train_loss'], nan=self.loss_bound)
    centred = (jnp.clip(loss, 0, self.loss_bound) - half) / half
    z = hp.noise_multiplier * (1 - self.share) ** 0.5
    z = self.of_statistics(z, releases)
    grid = grid_lib.make(
      clip_norm=1.0, noise_multiplier=z, clients=self.max_cohort
    )
    sent = jnp.stack([centred, jnp.ones_like(centred)], axis=1)
    integers = jnp.where(taken[:, None], grid_lib.encode(sent, grid), 0)
    total = comms.sum_exactly(integers)
    total = total + grid_lib.noise(keys_lib.metrics_key(noise), total, grid)
    losses, count = marks._released(grid_lib.decode(total, grid))
    mean = losses / self.expected_cohort
    return {'train_loss': half * (1 + mean), 'participants': count}


def nothing(*_: Any) -> dict[str, jax.Array]:
  """A `client_step.Summary` that leaves all statistics out."""
  return {}
