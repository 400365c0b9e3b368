"""Advises a compressor for a number of bytes, from a few measured updates."""

from collections.abc import Mapping
import dataclasses
from typing import Any, NamedTuple

from fl_sketch import algorithms, codecs, experiment, sketches
from fl_sketch.experiment import config as config_lib, switching
from fl_sketch.planning import compression_noise
from fl_sketch.rounds import keys as keys_lib
from fl_sketch.rounds.algorithm import run_first_round
from fl_sketch.utils import checks, markdown
import jax
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
import numpy as np

_ENTRY = 4  # bytes of the smallest payload


class Choice(NamedTuple):
  """A compressor, and the noise of the mean x of updates under it."""

  sketch: str | None  # as in a config, such as 'block_srht(size=60)'
  codec: str | None  # likewise
  up: int  # bytes of a client's payload
  down: int  # bytes of the broadcast without `downlink_codec`
  alpha: float  # expected E||D - x||^2 / ||x||^2 of the estimate D of x
  measured: float | None  # the same of the updates at hand; None without draws
  cosine: float  # see `compression_noise.step_cosine`


@config_lib.checked()
def advise_compression(
  config: Mapping[str, Any] | config_lib.Config,
  uplink_bytes: int,
  data_dir: str | None = None,
  problem: Any = None,
  *,
  momentum: float = 0.9,
  draws: int = 8,
) -> list[Choice]:
  r"""Compare compressors that send as many bytes, by the noise of a step.

  The updates of one cohort are computed at the first parameters by the config's
  local work. With P their mean square, S the square of their mean over n
  clients, and b entries:
    float32 tables: alpha = d / b - 1.
    tables in few bits: d / b - 1 + (d / b) omega P / (n S) and more, as clients
      that share a rotation share errors: `compression_noise.correlated_omega`.
    updates in few bits, by rotations of the clients: ((d / b) (1 + omega) - 1)
      P / (n S), at the price of a dense downlink.

  For learning rates there is `papers.chen.curvature.adviser`.

  >>> c = {'rounds': 1, 'cohort': 3, 'model': 'linear'}
  >>> best, *_ = advise_compression(c, 65, draws=0)
  >>> best.up, best.codec
  (65, 'eden(bits=1, num_coordinates=488)')

  Args:
    config: a `Config`, or its fields; its clients make local steps of SGD, or
      of its `local_optimizer`, whatever its algorithm.
    uplink_bytes: of a client and round, 4 or more.
    data_dir: where tensorflow-datasets keeps its files.
    problem: as of `experiment.build`.
    momentum: of the server, for the cosine.
    draws: keys over which the noise is measured; 0 leaves out `measured`.

  Returns:
    The choices, the largest cosine first.

  Raises:
    ConfigError: the config is wrong or private, the bytes are too few, or its
      clients send no updates of the model.
  """
  if checks.count('uplink_bytes', uplink_bytes) < _ENTRY:
    raise ValueError(
      f'{uplink_bytes=} is too little for any compressor; use at least '
      f'{_ENTRY}, of one float32 entry.'
    )
  updates = _updates(config, data_dir, problem)
  choices = []
  for candidate in _candidates(updates.shape[1], uplink_bytes):
    alpha = _alpha(candidate, updates)
    measured = _measure(candidate, updates, draws) if draws else None
    cosine = compression_noise.step_cosine(alpha, momentum)
    choices.append(Choice(*candidate[:4], alpha, measured, cosine))
  return sorted(choices, key=lambda choice: -choice.cosine)


def choices_table(choices: list[Choice]) -> str:
  """Write choices as a Markdown table."""
  formats = '', '', ',', ',', '.3g', '.3g', '.3g'
  cell = lambda x, form: '' if x is None else format(x, form)
  lines = [map(cell, choice, formats) for choice in choices]
  return markdown.table(Choice._fields, lines, left=2)


class _Candidate(NamedTuple):
  """A sketch, a codec, the entries that they send, and the bits of each."""

  sketch: str | None
  codec: str | None
  up: int
  down: int
  op: sketches.Sketch
  encoding: codecs.Codec
  size: int
  bits: int | None


def _candidates(d: int, uplink_bytes: int) -> list[_Candidate]:
  b = min(d, uplink_bytes // 4)
  cyclic = sketches.block_cyclic(b), codecs.identity()
  text = f'block_cyclic(size={b})'
  found = [_Candidate(text, None, 4 * b, 4 * b, *cyclic, b, None)]
  for bits in range(1, 5):
    b = min(d, (uplink_bytes - 4) // bits * 8)
    if b > 0:
      up, text = bits * -(-b // 8) + 4, f'eden(bits={bits}, '
      tables = sketches.block_srht(b), codecs.eden(bits, rotate=False)
      updates = sketches.identity(), codecs.eden(bits, num_coordinates=b)
      names = f'block_srht(size={b})', f'{text}rotate=False)'
      found.append(_Candidate(*names, up, 4 * b, *tables, b, bits))
      names = None, f'{text}num_coordinates={b})'
      found.append(_Candidate(*names, up, 4 * d, *updates, b, bits))
  return found


def _alpha(candidate, updates) -> float:
  """Expected noise of the mean, see `advise_compression`."""
  (n, d), bits = updates.shape, candidate.bits
  of_table = compression_noise.table_alpha(d, candidate.size)
  if bits is None:
    return of_table
  products = updates @ updates.T / np.square(updates.mean(0)).sum() / n**2
  if candidate.sketch is None:
    omega = candidate.encoding.omega(d)
    return float(omega * np.trace(products))
  norms = np.sqrt(np.outer(*[np.diag(products)] * 2))
  omegas = compression_noise.correlated_omega(bits, products / norms)
  return of_table + float((norms * omegas).sum() * d / candidate.size)


def _updates(config, data_dir, problem) -> np.ndarray:
  """Return updates of the first cohort, f32[clients, d]."""
  if not isinstance(config, config_lib.Config):
    config = config_lib.Config.from_mapping(config)
  fields = dataclasses.asdict(config) | {'algorithm': 'fedavg'}
  fields, _ = switching.switched(fields, ['algorithm'])
  exp = experiment.build(fields, data_dir, problem)
  own = algorithms.make(
    config.algorithm, exp.loss_fn, **experiment.algorithm_options(config)
  )
  if own(exp.hyper).update_template is not None:
    raise config.refusal(
      '{algorithm}: its clients send no updates of the model that a sketch or '
      'a codec could compress; use another algorithm.'
    )
  cohort = exp.sample(0)
  present = np.flatnonzero(cohort.weight > 0)
  keys = keys_lib.round_keys(jax.random.key(exp.config.key_seed), jnp.int32(0))

  @jax.jit
  def one(hyper, params, data, client, batches):
    own, batches = keys_lib.for_client(keys, client), exp.fetch(data, batches)
    work = exp.make(hyper).local
    moved, _ = run_first_round(work, params, batches, own, None)
    return ravel_pytree(moved)[0].astype(jnp.float32)

  lane_of = lambda i: jax.tree.map(lambda x: x[i], cohort.batches)
  start = exp.hyper, exp.params, exp.data
  return np.stack([one(*start, cohort.ids[i], lane_of(i)) for i in present])


def _measure(candidate, updates, draws) -> float:
  """Mean over keys of ||D - x||^2 / ||x||^2, D the estimate of the mean x."""
  op, codec, mean = candidate.op, candidate.encoding, updates.mean(0)

  @jax.jit
  def error(key, updates):
    def one(lane):
      i, x = lane
      own, y = jax.random.fold_in(key, i), op.sketch(key, x)
      return codec.decode(own, codec.encode(own, y), y)

    decoded = jax.lax.map(one, (jnp.arange(len(updates)), updates))
    estimate = op.desketch(key, decoded.mean(0), mean)
    return jnp.square(estimate - mean).sum()

  keys = jax.random.split(jax.random.key(0), draws)
  errors = [float(error(key, updates)) for key in keys]
  return float(np.mean(errors) / np.square(mean).sum())
