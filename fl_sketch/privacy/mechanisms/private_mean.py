"""Differentially private means: clip each contribution, sum, add noise.

One link bounds a payload, rounds it to a grid, sums integers and adds discrete
Gaussian noise. A table is therefore clipped after it was sketched. The other
order would be wrong by the operator norm of the sketch, about sqrt(d / b).
"""

import abc
import dataclasses
import functools
from typing import Any, ClassVar, NamedTuple

from fl_sketch.accounting import correlation as correlation_lib, types
from fl_sketch.privacy.mechanisms import (
  banded_noise,
  clipping,
  grid as grid_lib,
  quantile_bound,
  secure_aggregation,
)
from fl_sketch.rounds import chain, comms, keys as keys_lib, marks
from fl_sketch.rounds.algorithm import Hyper
from fl_sketch.rounds.unchecked import unchecked
from fl_sketch.utils import checks
from fl_sketch.utils.types import Key, Payload
import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class Release(abc.ABC):
  """Public settings of one private mean; subclasses say who adds the noise.

  Raises ValueError for a setting out of its range.
  """

  expected_cohort: float  # divisor of the sum, whoever takes part
  bound: str = 'clip'  # or 'normalize'
  per_leaf: bool = False  # bound every leaf of a contribution by itself
  max_cohort: int | None = None  # of the grid; None: 4 x expected_cohort + 64

  trust: ClassVar[types.Trust]
  bounds: ClassVar[tuple[str, ...]] = tuple(clipping.BOUNDS)

  def __post_init__(self):
    checks.choice('bound', self.bound, self.bounds)
    checks.positive('expected_cohort', self.expected_cohort)
    if self.max_cohort is not None:
      checks.count('max_cohort', self.max_cohort)

  def with_hyper(self, hp: Hyper) -> 'PrivateMean':
    """Return the mechanism with hyperparameters, for `mean_over_cohort`.

    Raises ValueError if hp lacks the clip norm C or the noise multiplier z.
    """
    if hp.clip_norm is None or hp.noise_multiplier is None:
      raise ValueError('privacy requires clip_norm and noise_multiplier.')
    return PrivateMean(self, hp)

  @property
  def clients(self) -> int:
    """Largest number of contributions to a sum."""
    return self.max_cohort or int(4 * self.expected_cohort) + 64

  @abc.abstractmethod
  def shares(self) -> tuple[int, float]:
    """Return how many add noise, and how many of them give it all of z."""


@dataclasses.dataclass(frozen=True)
class CentralRelease(Release):
  """Central DP: the server sees contributions and adds the noise."""

  # bound='quantile' clips to a quantile of the norms, and needs count_stddev.
  count_stddev: float | None = None  # noise on how many norms are within it
  quantile: float = 0.5  # its target
  quantile_lr: float = 0.2  # step size of the bound's logarithm
  before_sketch: bool = False  # bound updates, and add noise to them
  # Of the noise over rounds; None: independent. It requires the same clip norm
  # and noise multiplier (of one draw) in all rounds, since the noise of earlier
  # rounds is drawn again.
  correlation: correlation_lib.Correlation | None = None

  trust: ClassVar[types.Trust] = 'central'
  bounds: ClassVar[tuple[str, ...]] = (*clipping.BOUNDS, 'quantile')

  def __post_init__(self):
    super().__post_init__()
    if len(self.one_sum) > 1:
      raise ValueError(f'{self.one_sum} have no common analysis; set one.')
    if self.bound == 'quantile' and self.count_stddev is None:
      raise ValueError("bound='quantile' requires count_stddev; set it.")

  @property
  def one_sum(self) -> list[str]:
    """Settings that are analysed for one sum of payloads in a round alone."""
    settings = {
      "bound='quantile'": self.bound == 'quantile',
      'before_sketch': self.before_sketch,
      'correlation': self.correlation is not None,
    }
    return [name for name, is_set in settings.items() if is_set]

  def shares(self) -> tuple[int, float]:
    """Return 1, 1: the server adds the noise."""
    return 1, 1


@dataclasses.dataclass(frozen=True)
class DistributedRelease(Release):
  """Distributed DP: each client adds a share of the noise to a secure sum."""

  # Clients whose noise is sure to be in the sum; None: all expected ones.
  min_honest: int | None = None
  neighbours: int | None = None  # that share masks with a client; None: all

  trust: ClassVar[types.Trust] = 'secure_aggregation'

  def __post_init__(self):
    super().__post_init__()
    if self.min_honest is not None:
      checks.count('min_honest', self.min_honest)

  def shares(self) -> tuple[int, float]:
    """Return the largest cohort and its honest clients."""
    return self.clients, self.min_honest or self.expected_cohort


@dataclasses.dataclass(frozen=True)
class LocalRelease(Release):
  """Local DP: every client adds all of the noise."""

  trust: ClassVar[types.Trust] = 'local'

  def shares(self) -> tuple[int, float]:
    """Return the largest cohort and 1: each noise has all of z."""
    return self.clients, 1


class PrivateMean(NamedTuple):
  r"""Contributions -> :math:`(\sum_i [y_i]_C + z C \xi) / r`.

  One client moves the sum by at most C, whatever it sends. The law of central
  noise does not depend on who takes part.
  """

  release: Release
  hp: Hyper

  def normalizing(self) -> 'PrivateMean':
    """Return the mean of contributions that are scaled to norm C."""
    release = dataclasses.replace(self.release, bound='normalize')
    return self._replace(release=release)

  @property
  def correlation(self) -> correlation_lib.Correlation | None:
    """The correlation of the server's noise over rounds, if any."""
    release = self.release
    is_central = isinstance(release, CentralRelease)
    return release.correlation if is_central else None

  @property
  def marks(self) -> dict[str, Any]:
    """The marks of a link that makes this release.

    The sensitivity is that of the first round where it follows a quantile.
    """
    sensitivity = (self.hp.clip_norm,)
    return {'releases': 1, 'sensitivity': sensitivity, 'draws': ('sum',)}

  @property
  def _bound(self) -> str:  # one that follows a quantile clips
    return 'normalize' if self.release.bound == 'normalize' else 'clip'

  def clipped(self, tree: Payload) -> Payload:
    """Clip or normalise a client's contribution."""
    bound = clipping.BOUNDS[self._bound]
    return bound(tree, self.hp.clip_norm, per_leaf=self.release.per_leaf)[0]

  def grid(self, like: Payload) -> grid_lib.Grid:
    """Return the grid of such contributions, their sum and its noise."""
    release, hp = self.release, self.hp
    # `Release.with_hyper` checks that they are given.
    assert hp.clip_norm is not None
    assert hp.noise_multiplier is not None
    shares, honest = release.shares()
    rounding, gain = 0.0, 1.0
    if (noise := self.correlation) is not None:
      rounding, gain = noise.rounding(grid_lib.numbers(like)), noise.gain
    return grid_lib.make(
      clip_norm=hp.clip_norm, noise_multiplier=hp.noise_multiplier,
      clients=release.clients, shares=shares, honest=honest,
      rounding=rounding, gain=gain,
    )  # fmt: skip

  def uplink(self) -> chain.Link:
    """Return the link of one private mean."""
    release = self.release
    if not isinstance(release, CentralRelease):
      take = self.mean(0).take
      update = lambda payloads, _, params=None, **extra: take(payloads, **extra)
      init = lambda params: comms.bill()
      return chain.Link(init, update, chain.EXCHANGE, **self.marks)
    if release.bound == 'quantile':
      return quantile_bound.uplink(self)
    if release.before_sketch:
      return self._before_sketch()
    return self._running_sum(lambda mean, keys, up: (mean, comms.bill(up)))

  def mean(self, index: int) -> chain.CohortMean:
    """Return one of several private means of a round, by `index`."""
    release = self.release
    if isinstance(release, CentralRelease) and release.one_sum:
      raise ValueError(
        f'{release.one_sum} requires one sum of payloads in a round; use '
        'another algorithm.'
      )
    take = functools.partial(self._take, index)
    return chain.CohortMean(take, **self.marks)._replace(draws=(index,))

  def contribution(self, payload: Payload) -> Payload:
    """Bound a client's payload and round it to the grid."""
    assert self.hp.clip_norm is not None  # as `Release.with_hyper` checks
    return grid_lib.contribution(
      payload, self.grid(payload), self.hp.clip_norm, bound=self._bound,
      per_leaf=self.release.per_leaf,
    )  # fmt: skip

  def released(self, total: Payload, key: Key) -> Payload:
    """Add the server's noise to a sum on the grid, uint32, and divide it.

    The key is secret and of this draw alone.
    """
    noise = grid_lib.noise(key, total, self.grid(total))
    return self._mean(jax.tree.map(jnp.add, total, noise))

  def released_in(
    self, total: Payload, keys: keys_lib.RoundKeys, noise: keys_lib.NoiseKeys
  ) -> Payload:
    """Do the same in a round, with noise that may be correlated over rounds."""
    if (correlation := self.correlation) is None:
      return self.released(total, noise.server)
    grid = self.grid(total)
    drawn = banded_noise.draw(keys.round_index, noise, total, grid, correlation)
    return self._mean(jax.tree.map(jnp.add, total, drawn))

  def _mean(self, total):
    scale = 1 / self.release.expected_cohort
    return grid_lib.decode(marks.released(total), self.grid(total), scale)

  def _within(self, sent):
    """Return the contribution of a real client as it is, or 0 if too long."""
    norm, by_leaf = self.hp.clip_norm, self.release.per_leaf
    assert norm is not None
    return grid_lib.within(sent, self.grid(sent), norm, per_leaf=by_leaf)

  def _take(self, index, payloads, *, comm, weight, noise, **_):
    release, fold = self.release, lambda key: jax.random.fold_in(key, index)
    grid_lib.check_cohort(weight.shape[0], release.clients, comm)
    size = comms.nbytes(jax.tree.map(lambda x: x[0], payloads))
    sums = jax.vmap(self.contribution)(payloads)
    if isinstance(release, CentralRelease):
      total = comm.sum_lanes(
        comms.where_present(sums, weight > 0), self._within
      )
      return self.released(total, fold(noise.server)), comms.bill(size)
    grid = self.grid(sums)
    share = lambda key, x: grid_lib.noise(fold(key), x, grid)
    shares = unchecked(jax.vmap(share))(noise.client, sums)
    sums = jax.tree.map(jnp.add, sums, shares)
    if isinstance(release, DistributedRelease):
      total, bill = secure_aggregation.secure_sum(
        sums, weight > 0, comm, release.neighbours
      )
    else:
      total = comm.sum_lanes(comms.where_present(sums, weight > 0))
      bill = comms.bill(size)
    return self._mean(total), bill

  def _running_sum(self, finish) -> chain.Link:
    """Bound contributions and add them up one by one, as they come."""

    def update(lane_sum, _, params=None, *, keys, noise, comm, weight, **extra):
      del params, extra
      grid_lib.check_cohort(weight.shape[0], self.release.clients, comm)
      total = comm.sum(lane_sum.total)
      return finish(self.released_in(total, keys, noise), keys, lane_sum.nbytes)

    decode = lambda keys, payload, like: self.contribution(payload)
    init, noise = lambda params: comms.bill(), self.correlation
    epoch = None if noise is None else noise.rounds
    return chain.Link(
      init, update, chain.UPLINK, decode=decode, epoch=epoch, **self.marks
    )

  def _before_sketch(self) -> chain.Link:
    """Bound updates, and add noise to all coordinates before the sketch."""
    # Clients send tables, whose sum with the table of the noise is, by
    # linearity, the table of the noisy mean of updates that is computed here.

    def attach(encoder):
      if not encoder or encoder[-1].sketch is None:
        raise ValueError('before_sketch requires a sketch of the updates.')
      link = encoder[-1]

      def finish(mean, keys, up):
        del up
        key = keys_lib.hash_key(keys, link.hash_rounds)
        table = link.sketch.sketch(key, mean)
        return table, comms.bill(comms.nbytes(table))

      return encoder[:-1], self._running_sum(finish)

    return chain.attached(attach)
