"""Differentially private aggregation: clip each contribution, sum, add noise.

Bounding a contribution, adding contributions up and adding Gaussian noise are
one link. What is bounded is the payload itself, so a table is clipped after it
was sketched: the other order, clip, sketch, add noise, cannot be built. It
would be wrong by the operator norm of the sketch, about sqrt(d / b), since a
public sketch stretches some update by as much.
"""

from collections.abc import Callable
import functools
import math
from typing import Any, NamedTuple

from fl_sketch.privacy import mechanisms, secure_aggregation, types
from fl_sketch.rounds import aggregation, chain, comms, transforms as t
from fl_sketch.rounds.algorithm import Hyper
from fl_sketch.utils import checks
import jax
import jax.numpy as jnp

_TAIL = 10.9  # standard deviations that `gaussian_noise` does not reach


class Draw(NamedTuple):
  """Which draw of noise is asked for.

  Attributes:
    key: key[], secret, of this draw alone.
    client: int32[], the id of the client that adds it; None is the server.
    index: 0, or which of several noisy sums of a round it is for; 1 for the
      count of norms of 'quantile'.
  """

  key: jax.Array
  client: jax.Array | None = None
  index: int = 0


Noise = Callable[[Draw, Any, Any], Any]  # (draw, like, stddev) -> noise


def gaussian(draw: Draw, like: Any, stddev: jax.Array | float) -> Any:
  """Draws the noise of a `Release`: `mechanisms.gaussian_noise`."""
  return mechanisms.gaussian_noise(draw.key, like, stddev)


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
    noise: (draw, like, stddev) -> the noise to add, leaves like `like`. Any
      but `gaussian` is for reference trajectories with known noise: nothing
      bounds the releases, whose number is infinite, and no epsilon is stated.
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
  noise: Noise = gaussian

  def at(self, hp: Hyper) -> 'PrivateMean':
    """The mechanism under hyperparameters, for `mean_over_cohort(privacy=)`.

    Args:
      hp: ``clip_norm`` C and ``noise_multiplier`` z.

    Raises:
      ValueError: one of the two lacks, or a choice does not exist.
    """
    if hp.clip_norm is None or hp.noise_multiplier is None:
      raise ValueError('Expected clip_norm and noise_multiplier with privacy.')
    checks.choice('bound', self.bound, (*mechanisms.BOUNDS, 'quantile'))
    checks.choice('trust', self.trust, types.TRUSTS)
    checks.positive('expected_cohort', self.expected_cohort)
    if self.min_honest is not None:
      checks.count('min_honest', self.min_honest)
    return PrivateMean(self, hp)


class QuantileState(NamedTuple):
  """State of a bound that follows a quantile; all of it has been released."""

  clip_norm: jax.Array
  bill: comms.Bill


class PrivateMean(NamedTuple):
  r"""Contributions -> :math:`(\sum_i [y_i]_C + z C \xi) / r`.

  Guarantees:
    Sensitivity: one client moves the sum by at most C, whatever it sends.
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
    known = self.release.noise is gaussian
    count = 1 if known else math.inf
    return {'releases': count, 'sensitivity': (self.hp.clip_norm,)}

  def clipped(self, tree: Any) -> Any:
    """Clips or normalises a client's contribution before it is added up."""
    name = 'normalize' if self.release.bound == 'normalize' else 'clip'
    bound = mechanisms.BOUNDS[name]
    return bound(tree, self.hp.clip_norm, per_leaf=self.release.per_leaf)[0]

  def uplink(self) -> chain.Uplink | chain.Exchange:
    """The link of one private mean, for `mean_over_cohort`."""
    release = self.release
    if release.before_sketch:
      return self._before_sketch()
    if release.bound == 'quantile':
      return _quantile_mean(self)
    if release.trust == 'central':
      return self._central()
    take = self.mean(0).take

    def update(payloads, _, params=None, **extra):
      del params
      return take(payloads, **extra)

    return chain.Exchange(lambda params: comms.bill(), update, **self.marks)

  def mean(self, index: int) -> aggregation.CohortMean:
    """Makes one of several private means of a round, by ``index``."""
    if self.release.bound == 'quantile' or self.release.before_sketch:
      raise ValueError(
        f'Expected a fixed bound={self.release.bound!r} on what is sent, and '
        f'before_sketch={self.release.before_sketch} to be False, here.'
      )
    take = functools.partial(self._take, index)
    return aggregation.CohortMean(take, **self.marks)

  def stddev(self) -> jax.Array:
    """Standard deviation of the noise on the mean, f32[]."""
    return self._stddev_of_sum() / self.release.expected_cohort

  def _stddev_of_sum(self) -> jax.Array:
    multiplier, clip_norm = self.hp.noise_multiplier, self.hp.clip_norm
    assert multiplier is not None  # as `Release.at` has checked
    assert clip_norm is not None
    return multiplier * clip_norm

  def _with_noise(self, mean, key, index=0):
    draw = Draw(key, index=index)
    noise = self.release.noise(draw, mean, self.stddev())
    return jax.tree.map(jnp.add, mean, noise)

  def _take(
    self, index, payloads, *, weight, noise, ids=None, lanes_per_step=0, **_
  ):
    release, denominator = self.release, self.release.expected_cohort
    fold = lambda key: jax.random.fold_in(key, index)
    contributions = jax.vmap(self.clipped)(payloads)
    if release.trust == 'central':
      sums = payloads, weight, contributions, denominator
      mean, up = comms.uplink_stacked_mean(*sums)
      mean = self._with_noise(mean, fold(noise.server), index)
      return mean, comms.bill(up)
    honest = 1
    if release.trust == 'secure_aggregation':
      honest = release.min_honest or release.expected_cohort
    stddev = self._stddev_of_sum() / honest**0.5

    def share(key, client, x):
      return release.noise(Draw(fold(key), client, index), x, stddev)

    shares = jax.vmap(share)(noise.client, ids, contributions)
    noisy = jax.tree.map(jnp.add, contributions, shares)
    if release.trust == 'local':
      mean, up = comms.uplink_stacked_mean(
        noisy, weight, denominator=denominator
      )
      return mean, comms.bill(up)
    largest = self.hp.clip_norm + _TAIL * stddev  # no number is beyond it
    tables = jax.tree.map(lambda x: x / largest, noisy)
    graph = {'neighbours': release.neighbours, 'lanes_per_step': lanes_per_step}
    total, *moved = secure_aggregation.secure_sum(
      fold(noise.server), tables, weight, max_abs=1.0, **graph
    )
    scale = largest / denominator
    return jax.tree.map(lambda x: x * scale, total), comms.bill(*moved)

  def _central(self) -> chain.Uplink:
    """Contributions are bounded and added up one by one, as they come."""
    expected = self.release.expected_cohort
    link = aggregation.mean_over_cohort(denominator=expected)
    decode = lambda keys, payload, like: self.clipped(payload)

    def update(lane_sum, state, params=None, *, noise, **extra):
      mean, state = link.update(lane_sum, state, params, **extra)
      return self._with_noise(mean, noise.server), state

    return chain.Uplink(link.init, update, decode=decode, **self.marks)

  def _before_sketch(self) -> chain.Uplink:
    """Bounds updates, and adds the sketch of noise on all coordinates.

    By linearity that is noise on the updates, before they are sketched.
    """
    release = self.release
    if release.bound == 'quantile' or release.trust != 'central':
      raise ValueError(
        f'Expected a fixed bound={release.bound!r}, and '
        f"trust={release.trust!r} 'central', with before_sketch."
      )

    def attach(encoder):
      if not encoder or encoder[-1].sketch is None:
        raise ValueError('Expected a sketch of the updates with before_sketch.')
      sketch = encoder[-1]
      bound = t.stateless(lambda update, *_, **__: self.clipped(update))
      link = aggregation.mean_over_cohort(denominator=release.expected_cohort)

      def update(lane_sum, state, params=None, *, keys, noise, **extra):
        mean, state = link.update(lane_sum, state, params, **extra)
        xi = release.noise(Draw(noise.server), params, self.stddev())
        table = sketch.sketch.sketch(getattr(keys, sketch.hash_key), xi)
        return jax.tree.map(jnp.add, mean, table), state

      uplink = chain.Uplink(link.init, update, **self.marks)
      return (*encoder[:-1], t.per_client(bound), sketch), uplink

    return chain.attached(attach)


def _quantile_mean(private: PrivateMean) -> chain.Exchange:
  r"""The bound follows a quantile of the norms, at a price of its own.

  :math:`C \leftarrow C \exp(-\eta (\tilde b - \gamma))`, where
  :math:`\tilde b` is the noisy share of norms within C. Indicators less 1/2
  have sensitivity 1/2; sum and count together have the multiplier z if the sum
  has :math:`(z^{-2} - (2 \sigma_b)^{-2})^{-1/2}`. Andrew et al., NeurIPS 2021,
  arXiv:1905.03871, Algorithm 1.
  """
  release, hp = private
  sigma, expected = release.count_stddev, release.expected_cohort
  if sigma is None or release.trust != 'central':
    raise ValueError(
      f'Expected count_stddev={sigma} to be set, and '
      f"trust={release.trust!r} 'central', with bound='quantile'."
    )
  spared = jnp.float32(hp.noise_multiplier) ** -2.0 - (2 * sigma) ** -2.0
  sum_multiplier = spared**-0.5  # NaN, and so no finite sum, if sigma is short

  def update(payload, state, params=None, *, weight, noise, **extra):
    del params
    numbers = {'clip_norm': state.clip_norm, 'noise_multiplier': sum_multiplier}
    clip = release._replace(bound='clip')
    take = PrivateMean(clip, hp._replace(**numbers)).mean(0).take
    mean, sent = take(payload, weight=weight, noise=noise, **extra)
    norms = jax.vmap(lambda x: mechanisms.clip_by_l2_norm(x, 1.0)[1])(payload)
    centred = (norms <= state.clip_norm) - 0.5
    bits, _ = comms.uplink_stacked_mean(centred, weight, denominator=expected)
    draw = Draw(jax.random.fold_in(noise.server, 1), index=1)
    noisy = bits + release.noise(draw, bits, sigma / expected)
    excess = noisy + 0.5 - release.quantile
    clip_norm = state.clip_norm * jnp.exp(-release.quantile_lr * excess)
    # A bit more, which fills a byte; clients need the bound in the next round.
    more = comms.bill(up=1, down=comms.nbytes(clip_norm))
    return mean, QuantileState(clip_norm, comms.total_bill([sent, more]))

  def init(params):
    del params
    return QuantileState(jnp.float32(hp.clip_norm), comms.bill())

  return chain.Exchange(init, update, **private.marks)
