r"""One grid of integers for contributions and noise, whose sums are exact.

Each contribution is rounded towards zero to a multiple of the grid's step,
which makes no norm longer. Sums of integers have the same bits in any order, on
any number of devices. Noise is `discrete_gaussian`, of deviation s steps with
:math:`\sqrt{s^2 - 9} \cdot step \geq z C`: then the mechanism is a
post-processing of the Gaussian mechanism with multiplier z, up to a relative
error of 10^-76 per probability. docs/concepts/integers.md has the proof.
"""

from typing import NamedTuple

from fl_sketch.privacy.mechanisms import discrete_gaussian
from fl_sketch.privacy.mechanisms.clipping import BOUNDS, clip_by_l2_norm
from fl_sketch.rounds import comms, marks
from fl_sketch.utils.types import Key, Tree
import jax
import jax.numpy as jnp

_BASES = 1024, 256, 64, 16  # of the noise; smaller ones on coarse grids
_TAIL = 13.3  # standard deviations that noise exceeds once in 10^39 draws
_LEAST_STEP = 1e-36  # below, float32 loses bits
_RANGE = 2.0**31 * (1 - 2.0**-5)  # what sums and noise may need of int32
_LONGEST = 2.0**30  # steps of a contribution
_SLACK = 1 + 4e-6  # what float32 may add to a norm of C, and take from noise
_MOST = 1 + 1e-5  # of C, what a server takes for the norm of a contribution
_HIDDEN = discrete_gaussian.SMOOTH**2  # of the variance, in steps


class Grid(NamedTuple):
  """The integer grid of a private sum, and its discrete Gaussian noise."""

  step: jax.Array  # f32[], distance of its points; NaN where there is none
  noisy: jax.Array  # bool[], whether there is any noise
  multiple: jax.Array  # int32[], c of `discrete_gaussian.draw`
  base: int  # its b


class Parts(NamedTuple):
  """The parts of complex numbers on a grid, leaves uint32."""

  real: jax.Array
  imag: jax.Array


def make(
  *,
  clip_norm: jax.Array | float,
  noise_multiplier: jax.Array | float,
  clients: int,
  shares: int = 1,
  honest: float = 1,
  rounding: float = 0.0,
  gain: float = 1.0,
) -> Grid:
  r"""Return a fine grid on which no sum leaves int32.

  Sums take up to :math:`n C / step` steps, noise 13 of its deviations. The
  noise is larger than asked for where z is below `least_multiplier`. The step
  is NaN where no grid has room for `rounding`.

  Args:
    clip_norm: C, f32[]; bound on the norm of a contribution.
    noise_multiplier: z, f32[], of the sum; 0: no noise.
    clients: n, the largest number of contributions.
    shares: how many draws of noise a sum has: 1 of the server, or n of clients.
    honest: how many of the shares together have the multiplier z.
    rounding: r, steps by which rounding of the noise lengthens the bound: the
      deviation is then at least :math:`z (C + r \cdot step)`.
    gain: standard deviation of the noise on a sum over that of one draw.
  """
  # Contributions and noise may each compute the grid. Barriers keep the
  # compiler from fusing it with its surroundings, so that its bits are equal.
  numbers = jnp.float32(noise_multiplier), jnp.float32(clip_norm)
  z, clip_norm = jax.lax.optimization_barrier(numbers)
  bound = clip_norm * _SLACK
  base = _base(clients, honest)
  z_share = z / honest**0.5
  tail = _TAIL * shares**0.5 * gain * z_share
  widest = (_RANGE - tail * rounding) / (clients + tail)  # C in steps
  widest = jnp.minimum(widest, _LONGEST)
  target = jnp.square((widest + rounding) * z_share / base)
  square = (jnp.sqrt(jnp.maximum(4 * target - 3, 1)) - 1) / 2
  multiple = jnp.sqrt(square) * (1 - 1e-6)
  multiple = jnp.clip(multiple, 0, discrete_gaussian.most(base))
  multiple = jnp.where(jnp.isnan(multiple), 0, multiple).astype(jnp.int32)
  deviation = discrete_gaussian.stddev(base, multiple.astype(jnp.float32))
  noise = jnp.sqrt(jnp.square(deviation) - _HIDDEN)
  if rounding:  # rounded up, as differences magnify what float32 takes away
    noise = noise * (1 - 1e-6) - rounding * z_share
  of_noise = jnp.where(noise > 0, z_share / noise, jnp.nan)
  step = bound * jnp.maximum(of_noise, 1 / widest)
  step = jnp.where((widest > 0) & (step > _LEAST_STEP), step, jnp.nan)
  step, multiple = jax.lax.optimization_barrier((step, multiple))
  numbers = step, z > 0, multiple
  law = {'base': base, 'shares': shares, 'honest': honest}
  return Grid(*marks.scale(numbers, clip_norm, z, **law), base)


def check_cohort(lanes: int, clients: int, comm: comms.Comm) -> None:
  """Raise ValueError if the sum of a cohort might leave the grid.

  Padding to whole shards does not count. With several processes there are more
  lanes than clients, and only the sampler limits the cohort.
  """
  if jax.process_count() > 1:
    return
  cohort = comm.slots(lanes)[1]
  shards = cohort // lanes
  if cohort > clients + shards - 1:
    raise ValueError(
      f'clients={cohort} exceed max_cohort={clients}, the limit of the grid; '
      'raise max_cohort.'
    )


def least_multiplier(clients: int, shares: int = 1, honest: float = 1) -> float:
  """Return the least multiplier that the noise of a grid can have.

  A smaller one would have too few steps. Arguments are as of `make`.
  """
  base = _base(clients, honest)
  share = base * clients / (_RANGE - _TAIL * shares**0.5 * base)
  return share * honest**0.5


def _base(clients, honest) -> int:
  """Return the largest base of the noise for which C has enough steps."""
  room = _RANGE / (4 * clients * honest**0.5)
  return next((base for base in _BASES if base <= room), _BASES[-1])


def encode(tree: Tree, grid: Grid) -> Tree:
  """Round a contribution towards zero to the grid: uint32, two's complement.

  A complex array becomes `Parts`. The norm is within the bound of the grid.

  >>> grid = Grid(jnp.float32(0.5), jnp.array(True), jnp.int32(1), 16)
  >>> encode(jnp.array([-1.2, 0.4, 0.6]), grid).astype(jnp.int32)
  Array([-2,  0,  1], dtype=int32)
  """

  def real(x):
    steps = jnp.trunc(x.astype(jnp.float32) / grid.step)
    # No contribution within the bound is this long; a longer one never wraps.
    steps = jnp.clip(jnp.nan_to_num(steps), -_LONGEST, _LONGEST)
    return steps.astype(jnp.int32).astype(jnp.uint32)

  def encoded(x):
    parts = jnp.iscomplexobj(x)
    return Parts(real(x.real), real(x.imag)) if parts else real(x)

  return jax.tree.map(encoded, tree)


def contribution(
  tree: Tree,
  grid: Grid,
  clip_norm: jax.Array | float,
  *,
  bound: str = 'clip',
  per_leaf: bool = False,
) -> Tree:
  """Bound what a client adds to a sum, and round it to the grid.

  The bound is 'clip' or 'normalize', with its norm C of f32[].
  """
  bounded = BOUNDS[bound](tree, clip_norm, per_leaf=per_leaf)[0]
  return marks.contribution(encode(bounded, grid), grid.step, clip_norm)


def within(
  sent: Tree, grid: Grid, clip_norm: jax.Array | float, *, per_leaf: bool
) -> Tree:
  """Return what a client sent in place of `contribution`; 0 if it is too long.

  The bits of a contribution stay: its norm is within C, up to rounding.
  """
  decoded = decode(sent, grid)
  parts = jax.tree.leaves(decoded) if per_leaf else [decoded]
  norms = jnp.stack([clip_by_l2_norm(x, 1.0)[1] for x in parts])
  fits = norms.max() <= clip_norm * (_MOST / len(parts) ** 0.5)
  return jax.tree.map(lambda x: jnp.where(fits, x, 0), sent)


def noise(key: Key, like: Tree, grid: Grid) -> Tree:
  """Draw the noise of one sum, or of one share: uint32, two's complement.

  The key is secret; `like` is of `encode`, or shapes. Zeros without noise.
  """
  drawn = discrete_gaussian.draw(key, like, grid.base, grid.multiple)
  keep = lambda x: jnp.where(grid.noisy, x, 0).astype(jnp.uint32)
  return marks.drawn(jax.tree.map(keep, drawn), key, grid[:3])


def numbers(like: Tree) -> int:
  """Count the integers of a contribution; complex numbers count two."""
  count = lambda x: x.size * (2 if jnp.iscomplexobj(x) else 1)
  return sum(map(count, jax.tree.leaves(like)))


def decode(total: Tree, grid: Grid, scale: jax.Array | float = 1.0) -> Tree:
  """Convert a sum on the grid to float32, or complex64, times a scale.

  >>> grid = Grid(jnp.float32(0.5), jnp.array(True), jnp.int32(1), 16)
  >>> decode(jnp.array([2**32 - 3, 4], jnp.uint32), grid)
  Array([-1.5,  2. ], dtype=float32)
  """
  unit = grid.step * scale
  real = lambda x: x.astype(jnp.int32).astype(jnp.float32) * unit

  def decoded(x):
    parts = isinstance(x, Parts)
    return jax.lax.complex(real(x.real), real(x.imag)) if parts else real(x)

  return jax.tree.map(decoded, total, is_leaf=lambda x: isinstance(x, Parts))
