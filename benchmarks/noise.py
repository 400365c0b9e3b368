"""Time of exact noise over that of `jax.random.normal`, in one run."""

from functools import partial

from fl_sketch.privacy.mechanisms import chacha20_prng, discrete_gaussian
import jax

from . import timing


def ratios(size: int, repeats: int) -> dict[str, float]:
  """The ratio by each generator, for float32[size]; medians of one run."""
  like, plain = jax.ShapeDtypeStruct((size,), 'float32'), jax.random.key(3)
  keys = {'threefry': plain, 'chacha20': chacha20_prng.of_bytes(bytes(32))}
  draw = jax.jit(lambda key: discrete_gaussian.draw(key, like, 1024, 200))
  normal = jax.jit(lambda key: jax.random.normal(key, (size,)))
  calls = [(normal, plain), *((draw, key) for key in keys.values())]
  base, *times = timing.medians([partial(*call) for call in calls], repeats)
  return {name: t / base for name, t in zip(keys, times, strict=True)}
