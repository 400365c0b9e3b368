"""Advise a compressor for a number of bytes, from a few measured updates.

The noise that it adds to an adaptive server's steps: that of an estimate D of g
is D - g, taken to be white and independent over rounds. Ours.
"""

from collections.abc import Mapping
import dataclasses
import itertools
from typing import Any, NamedTuple

from fl_sketch import algorithms, codecs
from fl_sketch.codecs import rotation
from fl_sketch.rounds import keys as keys_lib
from fl_sketch.rounds.algorithm import run_first_round
from fl_sketch.runs import config as config_lib
from fl_sketch.runs.build import OwnProblem, build
from fl_sketch.runs.method import algorithm_options
from fl_sketch.utils import checks, registry
from fl_sketch.utils.centroids import lloyd_max
from fl_sketch.utils.types import Tree
import jax
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
import numpy as np

_FORMATS = None, 1, 2, 3, 4  # bits of an entry; None is float32


class Choice(NamedTuple):
  """A compressor of both directions, and its noise on the mean x of updates."""

  sketch: str  # as in a config, such as 'block_srht(size=60)'
  codec: str | None  # likewise
  downlink_codec: str | None  # likewise
  up: int  # bytes of a client's payload
  down: int  # bytes of the broadcast
  alpha: float  # E||D - x||^2 / ||x||^2 of the estimate D of x
  cosine: float  # see `step_cosine`

  @property
  def compressor(self) -> str:
    """The text of the uplink, for `distributed.mean_over`."""
    parts = [self.sketch if self.sketch != 'identity' else None, self.codec]
    return ' | '.join(filter(None, parts)) or 'dense'


@config_lib.checked()
def advise_compression(
  config: Mapping[str, Any] | config_lib.Config,
  uplink_bytes: int | None = None,
  data_dir: str | None = None,
  problem: OwnProblem | None = None,
  **options: Any,
) -> list[Choice]:
  """Compare compressors for the updates that a config's first cohort sends.

  They are computed at the first parameters by the config's local work.
  `options` are those of `advise_gradients`, other arguments those of `build`.

  >>> c = {'rounds': 1, 'cohort': 3, 'model': 'linear'}
  >>> best, *_ = advise_compression(c, 65, downlink_bytes=65)
  >>> best.up, best.down, best.sketch, best.codec, best.downlink_codec
  (65, 65, 'block_srht(size=488)', 'eden(bits=1, rotate=False)', 'eden(bits=1)')

  Raises ConfigError if a budget is too small, or clients send no updates.
  """
  updates = _updates(config, data_dir, problem)
  return advise_gradients(updates, uplink_bytes, **options)


def advise_gradients(
  grads: Tree,
  uplink_bytes: int | None = None,
  *,
  downlink_bytes: int | None = None,
) -> list[Choice]:
  """Compare compressors within budgets of bytes, by the noise of a step.

  With P the mean square of n updates, S the square of their mean, and b entries
  sent of d, the noise of the uplink is

  * d / b - 1 for tables in float32;
  * d / b - 1 + (d / b) omega P / (n S) and more for tables in few bits, whose
    clients share a rotation: see `correlated_omega`;
  * ((d / b) (1 + omega) - 1) P / (n S) for updates in few bits.

  A downlink in few bits multiplies 1 + alpha by its 1 + omega. Choices that
  another one beats in bytes and noise are left out. The others are sorted by
  falling cosine (two digits), then by bytes. Pass the `compressor` of a choice
  to `distributed.mean_over`; for its ``both_ways`` set both budgets.

  grads: leaves [workers, ...]. Budgets are of a client and round, 4 or more;
  None: no limit.

  >>> grads = {'w': jax.random.normal(jax.random.key(0), (4, 800))}
  >>> advise_gradients(grads, 36)[0].compressor
  'block_srht(size=256) | eden(bits=1, rotate=False)'
  """
  budgets = {'uplink_bytes': uplink_bytes, 'downlink_bytes': downlink_bytes}
  for name, size in budgets.items():
    if size is not None:
      checks.at_least(name, checks.count(name, size), 4)
  flat = jax.vmap(lambda tree: ravel_pytree(tree)[0].astype(jnp.float32))
  updates = np.asarray(flat(grads))
  choices = _candidates(updates, uplink_bytes, downlink_bytes)
  order = lambda c: (-round(c.cosine, 2), c.up + c.down)
  return sorted(_worthwhile(choices), key=order)


def _candidates(updates, uplink_bytes, downlink_bytes):
  """Return tables and coded updates that use the budgets in full."""
  d, choices = updates.shape[1], []
  gram = updates @ updates.T / np.square(updates.sum(0)).sum()
  norms = np.sqrt(np.outer(*[np.diag(gram)] * 2))

  def add(op, size, up, down):  # a table's size, (bits, entries) of each way
    codec, back = _eden(size, *up), _eden(size, *down)
    sent = _nbytes(*up, rotated=op == 'identity'), _nbytes(*down)
    noise = _omega(codec, size) * np.trace(gram)
    if op != 'identity':
      noise, op = table_alpha(d, size), f'{op}(size={size})'
      if codec is not None:
        omegas = correlated_omega(up[0], gram / norms)
        noise += float((norms * omegas).sum() * d / size)
        codec = f'eden(bits={up[0]}, rotate=False)'
    alpha = float((1 + noise) * (1 + _omega(back, size)) - 1)
    choices.append(Choice(op, codec, back, *sent, alpha, step_cosine(alpha)))

  for send, receive in itertools.product(_FORMATS, repeat=2):
    up = send, _fitting(send, uplink_bytes, d)
    down = receive, _fitting(receive, downlink_bytes, d)
    b = min(_fitting(send, uplink_bytes, d, rotated=False), down[1])
    if b > 0:
      kind = 'block_cyclic' if send is None else 'block_srht'
      add(kind, b, (send, b), (receive, b))
    if all(n > 0 and (bits or n == d) for bits, n in (up, down)):
      add('identity', d, up, down)
  return choices


def _nbytes(bits: int | None, entries: int, rotated: bool = True) -> int:
  if bits is None:
    return 4 * entries
  scales = -(-entries // rotation.BLOCK) if rotated else 1
  return bits * -(-entries // 8) + 4 * scales


def _fitting(
  bits: int | None, budget: int | None, d: int, rotated: bool = True
) -> int:
  """Return how many entries, of d, a budget has room for."""
  if budget is None:
    return d
  if bits is None:
    return min(d, budget // 4)
  of_block = bits * rotation.BLOCK // 8 + 4
  blocks, left = divmod(budget, of_block) if rotated else (0, budget)
  return min(d, blocks * rotation.BLOCK + max(left - 4, 0) // bits * 8)


def _eden(d: int, bits: int | None, entries: int) -> str | None:
  part = '' if entries == d else f', num_coordinates={entries}'
  return None if bits is None else f'eden(bits={bits}{part})'


def _omega(text: str | None, d: int) -> float:
  omega = codecs.make(**registry.parse_call(text or 'identity')).omega
  return omega(d) if omega else 0.0


def _worthwhile(choices: list[Choice]) -> list[Choice]:
  """Keep what no other choice beats, and tables in float32 both ways."""
  order = lambda c: (float(f'{c.alpha:.6g}'), c.up + c.down)
  beats = lambda a, b: (
    a.up <= 1.02 * b.up and a.down <= 1.02 * b.down and order(a) < order(b)
  )
  plain, *others = choices
  quiet = [c for c in others if order(c) < order(plain)]
  return [plain, *(c for c in quiet if not any(beats(o, c) for o in quiet))]


def _updates(config, data_dir, problem) -> np.ndarray:
  if not isinstance(config, config_lib.Config):
    config = config_lib.Config.from_mapping(config)
  fields = dataclasses.asdict(config) | {'algorithm': 'fedavg'}
  fields, _ = config_lib.switched(fields, ['algorithm'])
  exp = build(fields, data_dir, problem)
  options = algorithm_options(config)
  make = algorithms.make(config.algorithm, exp.loss_fn, **options)
  if make(exp.hyper).update_template is not None:
    raise config.refusal(
      '{algorithm}: its clients send no updates of the model; use another.'
    )
  cohort = exp.sample(0)
  keys = keys_lib.round_keys(jax.random.key(exp.config.key_seed), jnp.int32(0))

  @jax.jit
  def update_of(hyper, params, data, client, batches):
    client_keys = keys_lib.for_client(keys, client)
    batches = exp.fetch(data, batches)
    local = exp.make(hyper).local
    update, _ = run_first_round(local, params, batches, client_keys, None)
    return ravel_pytree(update)[0].astype(jnp.float32)

  updates = []
  for i in np.flatnonzero(cohort.weight > 0):
    batches = jax.tree.map(lambda x, i=i: x[i], cohort.batches)
    client = exp.hyper, exp.params, exp.data, cohort.ids[i], batches
    updates.append(update_of(*client))
  return np.stack(updates)


def table_alpha(dimension: int, size: int, omega: float = 0.0) -> float:
  r"""Noise in units of :math:`\|g\|^2`: :math:`(d / b)(1 + \omega) - 1`.

  For tables of b numbers from an operator with orthogonal rows, quantised by a
  codec of variance ``omega`` (`codecs.eden`).

  >>> round(table_alpha(1024, 256, 0.5708), 4)
  5.2832
  """
  return dimension / size * (1 + omega) - 1


def correlated_omega(bits: int, correlation: np.ndarray) -> np.ndarray:
  r"""Covariance of two errors of `codecs.eden` under one rotation.

  In units of :math:`\|x\| \|y\|`, for updates whose cosine is rho, f64[...]:
  :math:`\sum_{k \geq 3} (a_k / a_1)^2 \rho^k` (Mehler), with :math:`a_k` the
  coefficients of the quantiser in normalised Hermite polynomials. For one bit
  it is arcsin(rho) - rho; at rho = 1 omega.

  >>> round(float(correlated_omega(1, np.array(0.5))), 4)  # pi / 6 - 1 / 2
  0.0236
  """
  centroids, distortion = lloyd_max(bits)
  levels = np.array(centroids)
  steps = np.array([0.0, *(levels[1:] + levels[:-1]) / 2])
  jumps = np.array([levels[0], *np.diff(levels)])  # half of that at 0
  density = np.exp(-(steps**2) / 2)
  before, now = np.zeros_like(steps), np.ones_like(steps)  # h_{k-2}, h_{k-1}
  rho = np.asarray(correlation, np.float64)
  total, power, first = np.zeros_like(rho), rho, (jumps * density).sum()
  for k in range(1, 400):
    if k % 2 and k > 1:
      total += ((jumps * density * now).sum() / first) ** 2 / k * power
    before, now = now, (steps * now - (k - 1) ** 0.5 * before) / k**0.5
    power = power * rho
  return np.where(rho < 0.999, total, distortion / (1 - distortion))


def step_cosine(alpha: float, momentum: float = 0.9) -> float:
  r"""Cosine of a momentum step with a gradient that stays the same.

  :math:`1 / \sqrt{1 + \alpha (1 - \beta) / (1 + \beta)}`: an exponential mean
  by the momentum beta keeps this share of the energy of fresh noise.

  >>> round(step_cosine(99.0), 2)
  0.4
  """
  return (1 + alpha * (1 - momentum) / (1 + momentum)) ** -0.5
