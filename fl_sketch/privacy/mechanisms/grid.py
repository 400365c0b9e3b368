r"""Puts contributions and noise on one grid of integers, whose sums are exact.

A float32 sum of many clients rounds, so that one client may move it by more
than its bound C (Casacuberta et al., CCS 2022, arXiv:2207.10635). Here each
contribution is rounded towards zero to a multiple of the grid's step, which
makes no norm longer, and what is added up are integers: the same bits in any
order, on any number of devices. Noise is `discrete_gaussian`.

The deviation of the noise in steps, s, and the step are such that
:math:`\sqrt{s^2 - 9} \cdot step \geq z C`. Then the discrete mechanism is, but
for a relative error of 10^-76 in each probability, a post-processing of the
Gaussian mechanism with multiplier z: its account is that of z, to the last
digit. docs/concepts/integers.md has the proof.
"""

from typing import Any, NamedTuple

from fl_sketch.privacy.mechanisms import discrete_gaussian
from fl_sketch.rounds import comms
import jax
import jax.numpy as jnp

_BASES = 1024, 256, 64, 16  # of the noise; smaller ones on coarse grids
_TAIL = 13.3  # standard deviations that noise exceeds once in 10^39 draws
_LEAST_STEP = 1e-36  # below, float32 loses bits
_RANGE = 2.0**31 * (1 - 2.0**-5)  # what sums and noise may need of int32
_LONGEST = 2.0**30  # steps of a contribution
_SLACK = 1 + 4e-6  # what float32 may add to a norm of C, and take from noise
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
  r"""Makes a fine grid on which no sum leaves int32.

  Sums take up to :math:`n C / step` steps, noise 13 of its deviations. It is as
  coarse as can be if even that is more than asked for: `least_multiplier` says
  where. The step is NaN where none is loud enough for `rounding`.

  >>> grid = make(clip_norm=1.0, noise_multiplier=2.0, clients=50)
  >>> bool(grid.step < 1e-6)
  True

  Args:
    clip_norm: C, f32[]; bound on the norm of a contribution.
    noise_multiplier: z, f32[], of the sum; 0 is no noise.
    clients: n, the largest number of contributions.
    shares: how many add noise to the sum: one, the server, or every client.
    honest: how many of the shares together have the multiplier z.
    rounding: r, steps by which rounding of the noise lengthens the bound: its
      deviation is then at least :math:`z (C + r \cdot step)`.
    gain: standard deviation of the noise on a sum over that of a draw.
  """
  # Contributions and noise may each compute the grid. Apart from what is around
  # it, it is the same program, and has the same bits.
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
  return Grid(step, z > 0, multiple, base)


def check_cohort(lanes: int, clients: int) -> None:
  """Refuses a cohort whose sum might leave the grid.

  Raises ValueError if the shards have more lanes than clients the grid was
  made for, padding to whole shards apart. With several processes there are more
  lanes than clients, since each process has some for its own: then the sampler
  alone sees to it.
  """
  if jax.process_count() > 1:
    return
  cohort = comms.slots(lanes)[1]
  if cohort > clients + comms.shards() - 1:
    raise ValueError(
      f'clients={cohort} exceed max_cohort={clients}, for which the grid of '
      'the sum was made; raise max_cohort.'
    )


def least_multiplier(clients: int, shares: int = 1, honest: float = 1) -> float:
  """Returns the least multiplier that the noise of a grid can have.

  Noise of a smaller one has too few steps. Arguments as of `make`.

  >>> least_multiplier(65_537) < 0.04
  True
  """
  base = _base(clients, honest)
  share = base * clients / (_RANGE - _TAIL * shares**0.5 * base)
  return share * honest**0.5


def _base(clients, honest) -> int:
  """Returns the base of the noise: the larger one needs 4096 steps of C."""
  room = _RANGE / (4 * clients * honest**0.5)
  return next((base for base in _BASES if base <= room), _BASES[-1])


def encode(tree: Any, grid: Grid) -> Any:
  """Rounds a contribution towards zero to the grid: uint32, two's complement.

  A complex array becomes `Parts`. The grid was made for a bound of their norm.

  >>> grid = Grid(jnp.float32(0.5), jnp.array(True), jnp.int32(1), 16)
  >>> encode(jnp.array([-1.2, 0.4, 0.6]), grid).astype(jnp.int32)
  Array([-2,  0,  1], dtype=int32)
  """

  def real(x):
    steps = jnp.trunc(x.astype(jnp.float32) / grid.step)
    # Never wrapped, though no contribution of a bounded norm is as long.
    steps = jnp.clip(jnp.nan_to_num(steps), -_LONGEST, _LONGEST)
    return steps.astype(jnp.int32).astype(jnp.uint32)

  def one(x):
    parts = jnp.iscomplexobj(x)
    return Parts(real(x.real), real(x.imag)) if parts else real(x)

  return jax.tree.map(one, tree)


def noise(key: jax.Array, like: Any, grid: Grid) -> Any:
  """Draws the noise of one sum, or of one share: uint32, two's complement.

  The key[] is secret; `like` is of `encode`, or shapes. Zeros without noise.
  """
  drawn = discrete_gaussian.draw(key, like, grid.base, grid.multiple)
  keep = lambda x: jnp.where(grid.noisy, x, 0).astype(jnp.uint32)
  return jax.tree.map(keep, drawn)


def numbers(like: Any) -> int:
  """Counts the integers of a contribution, or of its code; complex is two.

  >>> numbers((jnp.zeros(3), jnp.zeros((2, 2), jnp.complex64)))
  11
  """
  count = lambda x: x.size * (2 if jnp.iscomplexobj(x) else 1)
  return sum(map(count, jax.tree.leaves(like)))


def decode(total: Any, grid: Grid, scale: jax.Array | float = 1.0) -> Any:
  """Converts a sum on the grid to float32, or complex64, times a scale.

  >>> grid = Grid(jnp.float32(0.5), jnp.array(True), jnp.int32(1), 16)
  >>> decode(jnp.array([2**32 - 3, 4], jnp.uint32), grid)
  Array([-1.5,  2. ], dtype=float32)
  """
  unit = grid.step * scale
  real = lambda x: x.astype(jnp.int32).astype(jnp.float32) * unit

  def one(x):
    parts = isinstance(x, Parts)
    return jax.lax.complex(real(x.real), real(x.imag)) if parts else real(x)

  return jax.tree.map(one, total, is_leaf=lambda x: isinstance(x, Parts))
