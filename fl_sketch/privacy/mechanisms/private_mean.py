"""Differentially private aggregation: clip each contribution, sum, add noise.

Bounding a contribution, rounding it to a grid, adding integers up and adding
discrete Gaussian noise are one link. What is bounded is the payload itself, so
a table is clipped after it was sketched: the other order, clip, sketch, add
noise, cannot be built. It would be wrong by the operator norm of the sketch,
about sqrt(d / b), since a public sketch stretches some update by as much.
"""

import functools
import math
from typing import Any, NamedTuple

from fl_sketch.privacy.accounting import correlation as correlation_lib, types
from fl_sketch.privacy.mechanisms import (
  banded_noise,
  given_noise,
  grid as grid_lib,
  quantile_bound,
  secure_aggregation,
  sums,
)
from fl_sketch.rounds import aggregation, chain, comms, keys as keys_lib, marks
from fl_sketch.rounds.algorithm import Hyper
from fl_sketch.rounds.unchecked import unchecked
from fl_sketch.utils import checks
import jax
import jax.numpy as jnp


class Release(NamedTuple):
  """How the contributions of a cohort become one private mean; public.

  Attributes:
    expected_cohort: what the sum is divided by, whoever takes part.
    bound: 'clip', 'normalize', or 'quantile': clip to a bound that follows a
      quantile of the norms.
    trust: 'central' DP: the server sees contributions and adds the noise;
      'secure_aggregation' (distributed DP): it sees their noisy sum, to which
      every client adds a share of it; 'local' DP: every client adds all of it.
    per_leaf: bound every leaf of a contribution by itself.
    before_sketch: bound updates, and add noise as if before they are sketched.
    min_honest: of secure aggregation: clients whose noise is sure to be there;
      None is all that are expected.
    neighbours: of secure aggregation: with how many others a client shares
      masks; None is all.
    quantile: of norms that the bound is to be, for 'quantile'.
    quantile_lr: step size of the bound's logarithm.
    count_stddev: of the noise on how many norms are within the bound.
    noise: None is discrete Gaussian noise on the grid. A function (draw, like,
      stddev) -> noise, leaves like `like`, is for reference trajectories with
      known noise: nothing bounds the releases, whose number is infinite, and no
      epsilon is stated.
    max_cohort: clients whose contributions are added up at most; the grid is
      made for them. None is 4 x expected_cohort + 64.
    correlation: of the noise over rounds, under central DP; None is independent
      noise. Clip norm and noise multiplier, that of one draw, must be the same
      in all rounds: the noise of earlier rounds is drawn again.
  """

  expected_cohort: float
  bound: str = 'clip'
  trust: str = 'central'
  per_leaf: bool = False
  before_sketch: bool = False
  min_honest: int | None = None
  neighbours: int | None = None
  quantile: float = 0.5
  quantile_lr: float = 0.2
  count_stddev: float | None = None
  noise: given_noise.Noise | None = None
  max_cohort: int | None = None
  correlation: correlation_lib.Correlation | None = None

  def with_hyper(self, hp: Hyper) -> 'PrivateMean':
    """The mechanism under hyperparameters, for `mean_over_cohort(privacy=)`.

    Raises ValueError if hp lacks ``clip_norm`` C or ``noise_multiplier`` z, or
    a choice does not exist.
    """
    if hp.clip_norm is None or hp.noise_multiplier is None:
      raise ValueError('privacy requires clip_norm and noise_multiplier.')
    checks.choice('bound', self.bound, (*sums.BOUNDS, 'quantile'))
    checks.choice('trust', self.trust, types.TRUSTS)
    checks.positive('expected_cohort', self.expected_cohort)
    for name in 'min_honest', 'max_cohort':
      if (count := getattr(self, name)) is not None:
        checks.count(name, count)
    own = self.bound == 'quantile' or self.before_sketch or self.noise
    if self.correlation is not None and (own or self.trust != 'central'):
      raise ValueError(
        'Correlated noise requires a fixed bound on what is sent, '
        "trust='central', no before_sketch and no noise function; got "
        f'bound={self.bound!r}, trust={self.trust!r}.'
      )
    return PrivateMean(self, hp)

  @property
  def clients(self) -> int:
    """The largest number of contributions to a sum."""
    return self.max_cohort or int(4 * self.expected_cohort) + 64

  def shares(self) -> tuple[int, float]:
    """How many add noise to a sum, and how many of them add all of it."""
    if self.trust == 'central':
      return 1, 1
    honest = self.min_honest or self.expected_cohort
    return self.clients, honest if self.trust == 'secure_aggregation' else 1


class PrivateMean(NamedTuple):
  r"""Contributions -> :math:`(\sum_i [y_i]_C + z C \xi) / r`.

  Guarantees:
    Sensitivity: one client moves the sum by at most C, whatever it sends and
    however many others there are: the sum is one of integers.
    Noise: its law does not depend on who takes part ('central').
  """

  release: Release
  hp: Hyper

  def normalizing(self) -> 'PrivateMean':
    """The same with every contribution scaled to norm C, short ones up."""
    return self._replace(release=self.release._replace(bound='normalize'))

  @property
  def marks(self) -> dict[str, Any]:
    """Marks of a link that makes this release: their number, sensitivity.

    The sensitivity is that of the first round where it follows a quantile.
    """
    count = 1 if self.release.noise is None else math.inf
    own = {'sensitivity': (self.hp.clip_norm,), 'draws': ('sum',)}
    return {'releases': count} | own

  def clipped(self, tree: Any) -> Any:
    """Clips or normalises a client's contribution before it is added up."""
    name = 'normalize' if self.release.bound == 'normalize' else 'clip'
    bound = sums.BOUNDS[name]
    return bound(tree, self.hp.clip_norm, per_leaf=self.release.per_leaf)[0]

  def grid(self, like: Any) -> grid_lib.Grid:
    """The grid of contributions like this one, their sum and its noise."""
    release, hp = self.release, self.hp
    shares, honest = release.shares()
    numbers: Any = {'clip_norm': hp.clip_norm, 'clients': release.clients}
    if (noise := release.correlation) is not None:
      rounding = noise.rounding(grid_lib.numbers(like))
      numbers |= {'rounding': rounding, 'gain': noise.gain}
    z: Any = hp.noise_multiplier  # `Release.with_hyper` checks that it is given
    return grid_lib.make(
      **numbers, noise_multiplier=z, shares=shares, honest=honest
    )

  def uplink(self) -> chain.Uplink | chain.Exchange:
    """The link of one private mean, for `mean_over_cohort`."""
    release = self.release
    if release.bound == 'quantile':
      return quantile_bound.uplink(self)
    if release.before_sketch:
      return self._before_sketch()
    if release.trust == 'central':
      return self._running_sum(lambda mean, keys, up: (mean, comms.bill(up)))
    take = self.mean(0).take
    update = lambda payloads, _, params=None, **extra: take(payloads, **extra)
    return chain.Exchange(lambda params: comms.bill(), update, **self.marks)

  def mean(self, index: int) -> aggregation.CohortMean:
    """Makes one of several private means of a round, by ``index``."""
    if self.release.correlation is not None:
      raise ValueError(
        'Correlated noise supports one sum of payloads in a round; use an '
        'algorithm with one release.'
      )
    if self.release.bound == 'quantile' or self.release.before_sketch:
      raise ValueError(
        f'bound={self.release.bound!r} and before_sketch='
        f'{self.release.before_sketch} are not supported in this algorithm; '
        'use a fixed bound on what is sent.'
      )
    take = functools.partial(self._take, index)
    return aggregation.CohortMean(take, **self.marks)._replace(draws=(index,))

  def stddev(self) -> jax.Array:
    """Standard deviation of the noise on the mean, f32[]."""
    multiplier: Any = self.hp.noise_multiplier
    return multiplier * self.hp.clip_norm / self.release.expected_cohort

  def contribution(self, payload: Any) -> Any:
    """What is added up for a client: its payload, bounded, on the grid."""
    return grid_lib.encode(self.clipped(payload), self.grid(payload))

  def released(self, total: Any, key: jax.Array, index: int = 0) -> Any:
    """Adds the server's noise to a sum of contributions, and divides it.

    The sum is of uint32 arrays on the grid, the key[] secret, of this draw
    alone.
    """
    if (given := self.release.noise) is not None:
      mean = self._mean(total)
      noise = given(given_noise.Draw(key, index=index), mean, self.stddev())
      return jax.tree.map(jnp.add, mean, noise)
    noise = grid_lib.noise(key, total, self.grid(total))
    return self._mean(jax.tree.map(jnp.add, total, noise))

  def released_in(
    self, total: Any, keys: keys_lib.RoundKeys, noise: keys_lib.NoiseKeys
  ) -> Any:
    """The same in a round, whose noise may be correlated with earlier ones."""
    if (correlation := self.release.correlation) is None:
      return self.released(total, noise.server)
    grid = self.grid(total)
    drawn = banded_noise.draw(keys.index, noise, total, grid, correlation)
    return self._mean(jax.tree.map(jnp.add, total, drawn))

  def _mean(self, total):
    scale = 1 / self.release.expected_cohort
    return marks._released(grid_lib.decode(total, self.grid(total), scale))

  def _take(
    self, index, payloads, *, weight, noise, ids=None, clients_per_step=0, **_
  ):
    release, fold = self.release, lambda key: jax.random.fold_in(key, index)
    grid_lib.check_cohort(weight.shape[0], release.clients)
    size = comms.nbytes(jax.tree.map(lambda x: x[0], payloads))
    sums = jax.vmap(self.contribution)(payloads)
    if release.trust != 'central' and release.noise is None:
      grid = self.grid(sums)
      share = lambda key, x: grid_lib.noise(fold(key), x, grid)
      shares = unchecked(jax.vmap(share))(noise.client, sums)
      sums = jax.tree.map(jnp.add, sums, shares)
    moved = (size,)
    if release.trust == 'secure_aggregation':
      graph = release.neighbours, clients_per_step
      masks = fold(noise.server)
      total, *moved = secure_aggregation.secure_sum(masks, sums, weight, *graph)
    else:
      total = comms.sum_exactly(comms.where_present(sums, weight > 0))
    if release.trust == 'central':
      return self.released(total, fold(noise.server), index), comms.bill(size)
    mean = self._mean(total)
    if release.noise is not None:
      draws = given_noise.Draw(jax.vmap(fold)(noise.client), ids, index)
      expected = release.expected_cohort
      stddev = self.stddev() * expected / release.shares()[1] ** 0.5
      mean = given_noise.of_clients(
        release.noise, draws, mean, stddev, weight, expected
      )
    return mean, comms.bill(*moved)

  def _running_sum(self, finish) -> chain.Uplink:
    """Bounds contributions and adds them up one by one, as they come."""

    def update(lane_sum, _, params=None, *, keys, noise, weight, **extra):
      del params, extra
      grid_lib.check_cohort(weight.shape[0], self.release.clients)
      total = comms.sum_over_shards(lane_sum.total)
      return finish(self.released_in(total, keys, noise), keys, lane_sum.nbytes)

    decode = lambda keys, payload, like: self.contribution(payload)
    init, noise = lambda params: comms.bill(), self.release.correlation
    epoch = None if noise is None else noise.rounds
    return chain.Uplink(init, update, decode=decode, epoch=epoch, **self.marks)

  def _before_sketch(self) -> chain.Uplink:
    """Bounds updates, and adds noise on all coordinates before the sketch."""
    # Clients send tables. By linearity the table of the noisy mean of updates
    # is the sum of tables and noise, and simulated as it: the grid has updates.
    if (trust := self.release.trust) != 'central':
      raise ValueError(
        f"before_sketch does not support {trust=}; use trust='central'."
      )

    def attach(encoder):
      if not encoder or encoder[-1].sketch is None:
        raise ValueError('before_sketch requires a sketch of the updates.')
      link = encoder[-1]

      def finish(mean, keys, up):
        del up
        table = link.sketch.sketch(keys_lib.hash_key(keys, link.hash_key), mean)
        return table, comms.bill(comms.nbytes(table))

      return encoder[:-1], self._running_sum(finish)

    return chain.attached(attach)
