"""Measures algorithms: bytes, state, and the keys on which they depend."""

from collections.abc import Callable, Mapping
import functools
from functools import partial
from typing import Any, NamedTuple

from fl_sketch import algorithms, codecs, models, rounds as rounds_lib, sketches
from fl_sketch.algorithms import topology
from fl_sketch.local import Task
from fl_sketch.models import lora
from fl_sketch.privacy.mechanisms.private_mean import CentralRelease
from fl_sketch.rounds import client_step, comms, keys as keys_lib, mesh
from fl_sketch.rounds.algorithm import Algorithm, Hyper, run_first_round
from fl_sketch.utils import markdown
from fl_sketch.utils.types import Params
import jax
import jax.numpy as jnp
import numpy as np

_KEYS = 'run', 'round', 'client'
_COUNT = {'sketch': partial(sketches.count_sketch, 5, 20)}
_LINEAR = {'sketch': partial(sketches.block_cyclic, 100)}
_GRAPH = {'graph': partial(topology.ring, 8), 'population': 8}
_RANDOM = {'codec': partial(codecs.rand_k, 10)}
_LARGEST = {'codec': partial(codecs.top_k, 10)}
_QUANTIZED = {'codec': partial(codecs.quantized_top_k, 10, 4, 10)}
_COSINES = {'codec': partial(codecs.dct_top_k, 2, 64)}
_PRIVATE = {'privacy': partial(CentralRelease, 8)}
_K, _STEPS, _ALL = {'k': 10}, {'local_steps': 2}, {'population': 8}
# Options of the calls in the tables; a `partial` stands for what it returns.
EXAMPLES: Mapping[str, Mapping[str, Any]] = {
  'feddyn': _ALL,
  'iterative_sketching': _LINEAR,
  'decentralised': _LINEAR | _GRAPH,
  'fedsketch_privix': _COUNT,
  'fedsketch_heaprix': _COUNT | _K,
  'fedsketchgate': _COUNT | _STEPS,
  'diffsketch': _COUNT,
  'safl': _LINEAR,
  'subspace_sketching': _LINEAR,
  'preconditioned_sketching': _LINEAR,
  'sketched_sgd': _COUNT | _K,
  'fetchsgd': _COUNT | _K,
  'fedcom': _RANDOM,
  'fedcomgate': _RANDOM | _STEPS,
  'scaffold': _STEPS | _ALL,
  'marina': _RANDOM | {'sync_probability': 0.1},
  'ef21': _LARGEST | _ALL,
  'cd_adam': _LARGEST | _ALL,
  'onebit_adam': {'warmup': 2},
  'power_sgd': {'rank': 2},
  'demo': _COSINES,
  'cocktail_sgd': _QUANTIZED | {'mask_ratio': 0.1},
  'ferret': {'size': 100},
  'decomfl': _STEPS,
  'fedkseed': _STEPS | {'pool': 64},
  'dp_fedavg': _PRIVATE,
  'dp_normfedavg': _PRIVATE,
  'private_iterative_sketching': _LINEAR | _STEPS,
}
# Shapes of the toy problem where a vector does not do; see `toy_problem`.
_SHAPES = {
  'power_sgd': {'rows': 25},
  'flora': {'rows': 200, 'rank': 2},
  'fedex': {'rows': 200, 'rank': 2},
}


class Costs(NamedTuple):
  """Costs of one client in one round; floats are of 32 bits."""

  d: int  # numbers of the model that clients train
  up: tuple[int, ...]  # bytes that it sends, distinct values in order
  down: tuple[int, ...]  # bytes of the broadcast, likewise
  client_state: float  # floats of per-client state
  replicated: float  # floats on the server and on clients that redo its step
  server_state: float  # floats on the server alone; no bills, no counters
  held: float | None  # of each lane until the uplink; None is a running sum
  keys: tuple[str, ...]  # the `keys.RoundKeys` on which the run depends


def toy_problem(
  d: int = 1000, *, rows: int | None = None, rank: int | None = None
) -> tuple[Params, rounds_lib.Cohort]:
  """Makes least squares: params f32[d] and a cohort of all 8 clients.

  With `rows` params are a matrix; with `rank` too its factors, of d numbers.
  """
  shape = (d,)
  if rows is not None:
    shape = rows, d // rows if rank is None else d // rank - rows
  centres = np.random.default_rng(0).standard_normal((8, 2, 1, *shape))
  ids, weight = np.arange(8, dtype=np.int32), np.ones(8, np.float32)
  cohort = rounds_lib.Cohort(ids, weight, centres.astype(np.float32))
  params = jnp.zeros(shape)
  if rank is not None:
    options = {'rank': rank, 'targets': ('*',), 'parts': lora.Adapter._fields}
    params = lora.lora(params, jax.random.key(0), **options).trainable
  return params, cohort


def quadratic(params: Params, batch: jax.Array) -> jax.Array:
  """Half the mean squared distance of f32[...] to those of f32[batch, ...]."""
  params = lora.merge(params, 1.0)
  return 0.5 * jnp.sum((params[None] - batch) ** 2) / len(batch)


def measure(
  make: Callable[[Any], Algorithm],
  params: Params,
  cohort: rounds_lib.Cohort,
  *,
  rounds: int = 16,
  hp: Hyper | None = None,
) -> Costs:
  """Measures an algorithm by some rounds, and again with one key changed.

  Bytes are those of the bills; a key is read if the final state differs. The
  cohort is the whole population, in the order of ids, and `params` are of
  32-bit floats. Rare events need many `rounds`. `hp`: rates 0.1, little noise.
  Raises ValueError if the run diverges.

  >>> make = algorithms.make('fedavg', quadratic)
  >>> measure(make, *toy_problem(d=10)).up
  (40,)
  """
  rate, one, little = map(jnp.float32, (0.1, 1, 0.01))
  hp = hp or Hyper(rate, rate, clip_norm=one, noise_multiplier=little)
  play = _player(make, params, cohort, rounds)
  shifts = {name: jnp.uint32(0) for name in _KEYS}
  state, metrics = jax.device_get(play((hp, shifts)))
  if metrics['rejected_clients'].any() or not metrics['finite'].all():
    raise ValueError(f'The run of {rounds=} is not finite; use lower rates.')
  read = []
  for name in _KEYS:
    other, _ = play((hp, shifts | {name: jnp.uint32(1)}))
    same = jax.tree.map(np.array_equal, state, other)
    read += [] if all(jax.tree.leaves(same)) else [name]
  distinct = lambda sizes: tuple(dict.fromkeys(sizes.tolist()))
  client_state, server_state = _split((state.encode, state.protocol))
  _, replicated = _split(state.server)
  algorithm = make(hp)
  return Costs(
    d=models.num_params(params),
    up=distinct(metrics['uplink_bytes']),
    down=distinct(metrics['downlink_bytes']),
    client_state=comms.nbytes(client_state) / 4 / len(cohort.ids),
    replicated=comms.nbytes(replicated) / 4,
    server_state=comms.nbytes(server_state) / 4,
    held=None if algorithm.decode else _held(algorithm, params, cohort),
    keys=tuple(read),
  )


def _player(make, params, cohort, rounds):
  """Builds (hp, shifts of the keys) -> (state, metrics of all rounds)."""
  make_shifted = lambda hp: _shifted(make(hp[0]), hp[1])
  round_fn = rounds_lib.run_round(make_shifted, mesh.cohort_mesh(1))

  def play(hp):
    algorithm = make_shifted(hp)
    state = rounds_lib.init(algorithm, params, len(cohort.ids))
    keys = [jax.random.key(0)]
    if algorithm.releases:
      keys += [None, jax.random.key(1)]
    step = lambda state, _: round_fn(hp, state, cohort, *keys)
    return jax.lax.scan(step, state, length=rounds)

  # Compiling takes longer than running.
  return jax.jit(play, compiler_options={'xla_backend_optimization_level': 0})


def _shifted(algorithm, shifts) -> Algorithm:
  """The algorithm under keys with the bits `shifts` (by name) flipped."""

  def flip(key, bits):
    data = jax.random.key_data(key) ^ bits
    return jax.random.wrap_key_data(data, impl=jax.random.key_impl(key))

  def shift(x):
    if isinstance(x, keys_lib.RoundKeys):
      changed = {n: flip(getattr(x, n), bits) for n, bits in shifts.items()}
      return x._replace(**changed)
    dtype = getattr(x, 'dtype', None)
    is_key = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
    return flip(x, shifts['client']) if is_key else x

  def shifted(fn):
    return lambda *args, **extra: fn(
      *map(shift, args), **{name: shift(x) for name, x in extra.items()}
    )

  local, decode = algorithm.local, algorithm.decode
  part = lambda x, name: x._replace(**{name: shifted(getattr(x, name))})
  return algorithm._replace(
    local=part(local, 'apply') if hasattr(local, 'apply') else shifted(local),
    encode=part(algorithm.encode, 'update'),
    protocol=part(algorithm.protocol, 'update'),
    server=part(algorithm.server, 'update'),
    decode=None if decode is None else shifted(decode),
  )


def _split(state):
  """(per-client state, all other arrays but for bills and single numbers)."""
  marked = lambda x: isinstance(x, (comms.PerClient, comms.Bill))
  nodes = jax.tree.leaves(state, is_leaf=marked)
  per_client = [x for x in nodes if isinstance(x, comms.PerClient)]
  return per_client, [x for x in nodes if not marked(x) and np.ndim(x)]


def _held(algorithm, params, cohort) -> float:
  """Floats of one client's payload before the protocol sees it."""
  first = functools.partial(jax.tree.map, lambda x: x[0])

  def payload(batches):
    state, correction = rounds_lib.init(algorithm, params, 1), None
    if algorithm.correction is not None:
      correction = algorithm.correction(state.protocol)
    if isinstance(correction, comms.PerClient):
      correction = first(correction.value)
    keys = keys_lib.round_keys(jax.random.key(0), state.round)
    args = params, batches, keys, correction
    moved, _ = run_first_round(algorithm.local, *args)
    return client_step.encode_once(algorithm, moved, params, keys)

  return comms.nbytes(jax.eval_shape(payload, first(cohort.batches))) / 4


def texts(costs: Costs) -> dict[str, str]:
  """Writes each of the costs, in floats of 32 bits.

  >>> texts(Costs(100, (400, 40), (400,), 0, 200, 0, None, ('round',)))['up']
  'd, 10'
  """

  def floats(n):
    if n and n % costs.d == 0:
      return 'd' if n == costs.d else f'{n / costs.d:g} d'
    return f'{n:g}'

  sent = lambda sizes: ', '.join(floats(n / 4) for n in sizes)
  held = 'O(d + b)' if costs.held is None else f'[lanes, {floats(costs.held)}]'
  return {
    'up': sent(costs.up),
    'down': sent(costs.down),
    'each client': floats(costs.client_state),
    'replicated': floats(costs.replicated),
    'server': floats(costs.server_state),
    'held until the uplink': held,
    'keys': ', '.join(costs.keys) or 'none',
  }


def example(name: str) -> dict[str, Any]:
  """Returns the options of the call that stands for an algorithm."""
  options = EXAMPLES.get(name, {})
  built = lambda x: x() if isinstance(x, partial) else x
  return {option: built(x) for option, x in options.items()}


@functools.cache
def of_example(name: str) -> Costs:
  """Measures the costs of the call of `EXAMPLES` on a toy problem."""
  arguments = example(name)
  if algorithms.entry(name).work == 'private_steps':  # noise sends no bytes
    arguments['local'] = Task(quadratic).steps
  else:
    arguments['loss_fn'] = quadratic
  toy = toy_problem(**_SHAPES.get(name, {}))
  return measure(algorithms.make(name, **arguments), *toy)


def table() -> str:
  """Measures all algorithms; writes a row for each as a Markdown table."""
  rows = []
  for name in algorithms.names():
    options = ', '.join(call_texts(EXAMPLES.get(name, {})))
    rows.append({'algorithm': f'`{name}({options})`'} | texts(of_example(name)))
  return markdown.table([*rows[0]], [tuple(row.values()) for row in rows])


def call_texts(example: Mapping[str, Any]) -> list[str]:
  """Options as they stand in a call, a `functools.partial` as its own call.

  >>> call_texts({'k': 3, 'codec': functools.partial(round, 0.5)})
  ['k=3', 'codec=round(0.5)']
  """
  call = lambda x: f'{x.func.__name__}({", ".join(map(repr, x.args))})'
  text = lambda x: call(x) if isinstance(x, functools.partial) else repr(x)
  return [f'{option}={text(x)}' for option, x in example.items()]
