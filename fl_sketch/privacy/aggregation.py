"""The private uplink: what a cohort sends -> one noisy mean.

Bounding a contribution, adding contributions up and adding noise are one link.
What is bounded is the payload itself, so a table is clipped after it was
sketched: the other order, clip, sketch, add noise, cannot be built. It would be
wrong by the operator norm of the sketch, about sqrt(d / b), since a public
sketch stretches some update by as much.
"""

from collections.abc import Callable
import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from fl_sketch import codecs, sketches
from fl_sketch.privacy import mechanisms, secure_aggregation, types
from fl_sketch.rounds import (
  aggregation,
  comms,
  robust as robust_lib,
  transforms as t,
)
from fl_sketch.utils import checks
import jax
import jax.numpy as jnp

if TYPE_CHECKING:  # the algorithms import this module
  from fl_sketch.rounds.algorithm import Hyper

_TAIL = 10.9  # standard deviations that `gaussian_noise` does not reach
Aggregate = Callable[..., tuple[Any, comms.Bill]]


class Release(NamedTuple):
  """How the contributions of a cohort become one private mean; public.

  Attributes:
    expected_cohort: what the sum is divided by, whoever takes part.
    bound: 'clip', 'normalize', or 'quantile': clip to a bound that follows a
      quantile of the norms.
    trust: who may see what. 'central': the server sees contributions and adds
      the noise; 'secure_aggregation': it sees their noisy sum, to which every
      client adds its share; 'local': every client adds all of it by itself.
    per_leaf: bound every leaf of a contribution by itself.
    before_sketch: bound updates, and add noise as if before they are sketched.
    min_honest: of secure aggregation: clients whose noise is sure to be there;
      None is all that are expected.
    neighbours: of secure aggregation: with how many others a client shares
      masks; None is all.
    quantile: of norms that the bound is to be, for 'quantile'.
    quantile_lr: step size of the bound's logarithm.
    count_stddev: of the noise on how many norms are within the bound.
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


class QuantileState(NamedTuple):
  """State of a bound that follows a quantile; all of it has been released."""

  clip_norm: jax.Array
  bill: comms.Bill


def mean_over_cohort(hp: 'Hyper', release: Release | None):
  r"""The uplink: contributions -> :math:`(\sum_i [y_i]_C + z C \xi) / r`.

  Args:
    hp: ``clip_norm`` C and ``noise_multiplier`` z.
    release: None is `transforms.mean_over_cohort`, without any privacy.

  Guarantees:
    Sensitivity: one client moves the sum by at most C, whatever it sends.
    Noise: its law does not depend on who takes part ('central').
  """
  if release is None:
    return t.mean_over_cohort()
  _check(hp, release)
  if release.bound == 'quantile':
    return _quantile_mean(hp, release)
  if release.trust == 'central':
    return _central_mean(hp, release)
  send = aggregate(hp, release)

  def update(payload, _, params=None, *, weight, noise, **__):
    del params
    return send(payload, weight, noise=noise)

  return t.Transform(lambda params: comms.bill(), update)


def sketched_mean(
  op: sketches.Sketch,
  hp: 'Hyper',
  release: Release | None,
  *,
  hash_key: str = 'round',
  robust: robust_lib.Rule | None = None,
  codec: codecs.Codec | None = None,
) -> tuple[Any, ...]:
  """Links from pseudo-gradients to the mean of their tables.

  Without `Release.before_sketch`: sketch, bound the table, add up, add noise to
  the table. With it: bound the update, sketch, add up, add the sketch of noise
  on all coordinates, which by linearity is noise before the sketch.

  Args:
    op: a linear operator.
    hp: as in `mean_over_cohort`.
    release: None for no privacy.
    hash_key: as in `transforms.sketch`.
    robust: as in `aggregation.mean_over_cohort`; without privacy only.
    codec: likewise.
  """
  sketch = t.sketch(op, hash_key=hash_key)
  for name, option in {'robust': robust, 'codec': codec}.items():
    if option is not None and release is not None:
      raise ValueError(f'Expected {name} to be None with privacy.')
  if release is None:
    return sketch, *aggregation.mean_over_cohort(op, robust=robust, codec=codec)
  if not release.before_sketch:
    return sketch, mean_over_cohort(hp, release)
  _check(hp, release)
  if release.bound == 'quantile' or release.trust != 'central':
    raise ValueError(
      f'Expected a fixed bound={release.bound!r}, and '
      f"trust={release.trust!r} 'central', with before_sketch."
    )

  def add_noise(mean, params, *, keys, noise, **_):
    xi = mechanisms.gaussian_noise(noise.server, params, _stddev(hp, release))
    own = op.sketch(getattr(keys, hash_key), xi)
    return jax.tree.map(jnp.add, mean, own)

  return (
    t.per_client(t.stateless(lambda u, *_, **__: bounded(hp, release)(u))),
    sketch,
    t.mean_over_cohort(denominator=release.expected_cohort),
    t.stateless(add_noise),
  )


def aggregate(hp: 'Hyper', release: Release | None) -> Aggregate:
  """The private uplink as a function, for protocols with several of them.

  Args:
    hp: as in `mean_over_cohort`.
    release: None for `comms.uplink`.

  Returns:
    A function (payload, weight, *, noise, index=0) -> (mean, its bill). The
    payload has leaves [lanes, ...]; releases of one round differ in ``index``.
  """

  def plain(payload, weight, decoded=None, denominator=None, **_):
    mean, up = comms.uplink(payload, weight, decoded, denominator)
    return mean, comms.bill(up)

  if release is None:
    return plain
  _check(hp, release)
  if release.bound == 'quantile' or release.before_sketch:
    raise ValueError(
      f'Expected a fixed bound={release.bound!r} on what is sent, and '
      f'before_sketch={release.before_sketch} to be False, here.'
    )
  bound, denominator = bounded(hp, release), release.expected_cohort

  def send(payload, weight, *, noise, index=0):
    fold = lambda key: jax.random.fold_in(key, index)
    contributions = jax.vmap(bound)(payload)
    if release.trust == 'central':
      mean, bill = plain(payload, weight, contributions, denominator)
      return _with_noise(mean, hp, release, fold(noise.server)), bill
    honest = 1
    if release.trust == 'secure_aggregation':
      honest = release.min_honest or release.expected_cohort
    stddev = _stddev_of_sum(hp) / honest**0.5
    draw = functools.partial(mechanisms.gaussian_noise, stddev=stddev)
    own = jax.vmap(lambda key, x: draw(fold(key), x))(
      noise.client, contributions
    )
    noisy = jax.tree.map(jnp.add, contributions, own)
    if release.trust == 'local':
      return plain(noisy, weight, denominator=denominator)
    largest = hp.clip_norm + _TAIL * stddev  # no number is beyond it
    total, *moved = secure_aggregation.secure_sum(
      jax.tree.map(lambda x: x / largest, noisy),
      weight,
      fold(noise.server),
      max_abs=1.0,
      neighbours=release.neighbours,
    )
    scale = largest / denominator
    return jax.tree.map(lambda x: x * scale, total), comms.bill(*moved)

  return send


def bounded(hp: 'Hyper', release: Release | None) -> Callable[[Any], Any]:
  """What a client does to its contribution before it is added up."""
  if release is None:
    return lambda tree: tree
  name = 'normalize' if release.bound == 'normalize' else 'clip'
  bound = functools.partial(mechanisms.BOUNDS[name], per_leaf=release.per_leaf)
  return lambda tree: bound(tree, hp.clip_norm)[0]


def _central_mean(hp, release) -> t.Uplink:
  """Contributions are bounded and added up one by one, as they come."""
  bound = bounded(hp, release)
  link = t.mean_over_cohort(
    decode=lambda keys, payload, like: bound(payload),
    denominator=release.expected_cohort,
  )

  def update(payload, state, params=None, *, noise, **extra):
    mean, state = link.update(payload, state, params, **extra)
    return _with_noise(mean, hp, release, noise.server), state

  return t.Uplink(link.init, update, link.decode)


def _quantile_mean(hp, release) -> t.Transform:
  r"""The bound follows a quantile of the norms, at a price of its own.

  :math:`C \leftarrow C \exp(-\eta (\tilde b - \gamma))`, where
  :math:`\tilde b` is the noisy share of norms within C. Indicators less 1/2
  have sensitivity 1/2; sum and count together have the multiplier z if the sum
  has :math:`(z^{-2} - (2 \sigma_b)^{-2})^{-1/2}`. Andrew et al., NeurIPS 2021,
  arXiv:1905.03871, Algorithm 1.
  """
  sigma, expected = release.count_stddev, release.expected_cohort
  if sigma is None or release.trust != 'central':
    raise ValueError(
      f'Expected count_stddev={sigma} to be set, and '
      f"trust={release.trust!r} 'central', with bound='quantile'."
    )
  spared = jnp.float32(hp.noise_multiplier) ** -2.0 - (2 * sigma) ** -2.0
  sum_multiplier = spared**-0.5  # NaN, and so no finite sum, if sigma is short

  def update(payload, state, params=None, *, weight, noise, **_):
    del params
    now = hp._replace(
      clip_norm=state.clip_norm, noise_multiplier=sum_multiplier
    )
    fixed = release._replace(bound='clip')
    mean, sent = aggregate(now, fixed)(payload, weight, noise=noise)
    norms = jax.vmap(lambda x: mechanisms.clip_by_l2_norm(x, 1.0)[1])(payload)
    centred = (norms <= state.clip_norm) - 0.5
    bits, _ = comms.uplink(centred, weight, denominator=expected)
    key = jax.random.fold_in(noise.server, 1)
    noisy = bits + mechanisms.gaussian_noise(key, bits, sigma / expected)
    share = noisy + 0.5
    clip_norm = state.clip_norm * jnp.exp(
      -release.quantile_lr * (share - release.quantile)
    )
    # A bit more, which fills a byte; clients need the bound in the next round.
    more = comms.bill(up=1, down=comms.nbytes(clip_norm))
    return mean, QuantileState(clip_norm, comms.total_bill([sent, more]))

  def init(params):
    del params
    return QuantileState(jnp.float32(hp.clip_norm), comms.bill())

  return t.Transform(init, update)


def _check(hp, release):
  """Refuses what would otherwise be read as something else."""
  if hp.clip_norm is None or hp.noise_multiplier is None:
    raise ValueError('Expected clip_norm and noise_multiplier with privacy.')
  checks.choice('bound', release.bound, (*mechanisms.BOUNDS, 'quantile'))
  checks.choice('trust', release.trust, types.TRUSTS)
  checks.positive('expected_cohort', release.expected_cohort)
  if release.min_honest is not None:
    checks.count('min_honest', release.min_honest)


def _stddev_of_sum(hp):
  return hp.noise_multiplier * hp.clip_norm


def _stddev(hp, release):
  """Of the noise on the mean."""
  return _stddev_of_sum(hp) / release.expected_cohort


def _with_noise(mean, hp, release, key):
  noise = mechanisms.gaussian_noise(key, mean, _stddev(hp, release))
  return jax.tree.map(jnp.add, mean, noise)
