"""The conformance list: a new operator gets its tests by a line here."""

from collections.abc import Callable, Iterator, Sequence
import contextlib
import functools
import pickle
from typing import Any, NamedTuple

import chex
from fl_sketch import sketches
import jax
import jax.numpy as jnp
import laws
from laws import jit
import numpy as np
import numpy_operators
from reference import flat as vector

KEY = jax.random.key(7)
TREE = {
  'w': jax.random.normal(jax.random.key(0), (6, 8)),
  'b': (jax.random.normal(jax.random.key(1), (15,)), jnp.float32(-2.0)),
}  # 64 numbers


class Facts(NamedTuple):
  """What is known of one operator beside what it states of itself."""

  make: Callable[[int], sketches.Sketch]  # size of the table -> operator
  op: sketches.Sketch  # make(16)
  alpha: float | None  # at d = 64, the constant of the theory, by hand
  orthogonal: bool  # R R^H = (64 / b) I in every draw


def facts(make, alpha, orthogonal=False):
  return Facts(make, make(16), alpha, orthogonal)


count, embedding = sketches.count_sketch, sketches.sparse_embedding
OPERATORS = {
  'identity': facts(lambda b: sketches.identity(), 0.0, orthogonal=True),
  'gaussian': facts(sketches.gaussian, 65 / 16),
  'ams': facts(sketches.ams, 63 / 16),
  'median': facts(lambda b: count(4, b // 4), None),
  'mean': facts(lambda b: count(4, b // 4, combine='mean'), 63 / 16),
  'embedding_1': facts(lambda b: embedding(b, 3, kind='I'), 63 / 16),
  'embedding_2': facts(lambda b: embedding(b, 4), 63 / 16),
  'sampling': facts(sketches.uniform_sampling, 3.0, orthogonal=True),
  'block_cyclic': facts(sketches.block_cyclic, 3.0, orthogonal=True),
  'block_cyclic_4': facts(lambda b: sketches.block_cyclic(b, sparsity=4), 3.75),
  'srht': facts(sketches.srht, 3.0, orthogonal=True),
  'block_srht': facts(
    lambda b: sketches.block_srht(b, block=16), 3.0, orthogonal=True
  ),
  'dct': facts(sketches.dct, 3.0, orthogonal=True),
  'srft': facts(sketches.srft, 64 * 48 / (2 * 16 * 63), orthogonal=True),
}
LINEAR = [n for n in OPERATORS if n != 'median']
KEYED = [n for n in OPERATORS if n != 'identity']
# An operator for each way in which the code works. Twins are fast for every
# operator; other laws, which twins imply for like code, are fast for these.
STRUCTURES = {
  'gaussian': 'dense columns',
  'median': 'sparse columns, under a median',
  'sampling': 'rows of the identity',
  'block_cyclic_4': 'blocks of coordinates, in several copies',
  'srht': 'a fast transform',
  'block_srht': 'transforms of blocks',
  'srft': 'a complex transform, and complex tables',
}
# Where desketch must be linear, a mean takes the place of the median.
LINEAR_STRUCTURES = {*STRUCTURES, 'mean'} - {'median'}

law = functools.partial(laws.law, group='operator')
each = law(OPERATORS, fast=OPERATORS)
each_structure = law(OPERATORS, fast=STRUCTURES)
each_keyed_structure = law(KEYED, fast=STRUCTURES)
each_linear_structure = law(LINEAR, fast=LINEAR_STRUCTURES)
LANES = 256


@functools.cache
def _lanes(name):
  op = OPERATORS[name].op

  def one(key_data, x):
    return table_and_back(op, jax.random.wrap_key_data(key_data), x)

  return jit(jax.vmap(one))


def lanes(name: str, keys: jax.Array, xs: np.ndarray):
  """Tables and estimates of f32[n, d] under key[n], or one key[]."""
  return in_lanes(_lanes(name), LANES, keys, xs)


def in_lanes(program: Callable[..., Any], size: int, keys: jax.Array, xs: Any):
  """Runs program(key data u32[size, 2], f32[size, d]) over keys and rows."""
  xs = np.float32(xs)
  data = np.broadcast_to(jax.random.key_data(keys), (len(xs), 2))
  parts = []
  for at in range(0, len(xs), size):
    rows = (x[at : at + size] for x in (data, xs))
    full = [np.resize(x, (size, *x.shape[1:])) for x in rows]
    parts.append(jax.device_get(program(*full)))
  join = lambda *part: np.concatenate(part)[: len(xs)]
  return jax.tree.map(join, *parts)


@functools.cache
def matrix(name: str, seed: int = 7) -> tuple[np.ndarray, np.ndarray]:
  """R [b, 64] of one draw, and what is read of the columns, f64[64, 64]."""
  tables, estimates = lanes(name, jax.random.key(seed), np.eye(64))
  wide = np.result_type(tables.dtype, np.float64)
  return tables.reshape(64, -1).T.astype(wide), estimates.T.astype(np.float64)


def twin(op: sketches.Sketch, d: int, key: jax.Array = KEY) -> np.ndarray:
  """R of one draw by the NumPy client, [..., d]: a matrix, one a row of it."""
  options = dict(vars(op))
  registered = {'I': 'sparse_embedding_1', 'II': 'sparse_embedding_2'}
  name = registered.get(options.pop('kind', None), op.properties.name)
  one = numpy_operators.SKETCHES[name]
  key = np.asarray(jax.random.key_data(key))
  return np.stack([one(key, unit, **options) for unit in np.eye(d)], -1)


def table_and_back(op: sketches.Sketch, key: jax.Array, x: Any) -> Any:
  """The table of a tree, and what is read of it."""
  table = op.sketch(key, x)
  return table, op.desketch(key, table, x)


def stating(op: sketches.Sketch, **facts: Any) -> sketches.Sketch:
  """The operator, which states other properties."""

  class Other(type(op)):
    @property
    def properties(self):
      return super().properties._replace(**facts)

  return Other(**vars(op))


def are_values(makers: Sequence[Callable[[], Any]], names: dict[str, Any]):
  """Asserts that parts are equal, hashed, pickled and printed by value."""
  parts = [make() for make in makers]
  for part, make in zip(parts, makers, strict=True):
    copies = pickle.loads(pickle.dumps(part)), eval(f'{part}', names)
    for same in make(), *copies:
      assert same is not part
      assert same == part
      assert hash(same) == hash(part)
  assert len({*parts}) == len(parts)


@contextlib.contextmanager
def compilations() -> Iterator[list[str]]:
  """Yields a list to which every compilation is added."""
  events = []

  def listen(name, seconds, **_):
    if name.endswith('jaxpr_to_mlir_module_duration'):
      events.append(name)

  jax.monitoring.register_event_duration_secs_listener(listen)
  yield events
  jax.monitoring.unregister_event_duration_listener(listen)


def normal_like(seed: int, tree: Any) -> Any:
  """Independent normals, complex ones too, in the shapes of a tree."""
  leaves, treedef = jax.tree.flatten(tree)
  keys = jax.random.split(jax.random.key(seed), len(leaves))
  draw = lambda k, x: jax.random.normal(k, x.shape, x.dtype)
  return treedef.unflatten(map(draw, keys, leaves))


def dot(x: Any, y: Any) -> float:
  """The real inner product of two trees."""
  return float(np.vdot(vector(x), vector(y)).real)


def structure(op: sketches.Sketch) -> Any:
  """Shapes and dtypes of tables and estimates; returns the table."""
  rest = {
    'b': [jnp.float32(2.0), jnp.zeros((0, 3)), np.ones(5, np.float32)],
    'c': 0.5,
  }
  w = jnp.ones((8, 9), jnp.bfloat16)
  tree = rest | {'w': w}
  like = jax.eval_shape(lambda t: jax.tree.map(jnp.asarray, t), tree)

  @jit
  def tables(key, w, wide):
    table = op.sketch(key, rest | {'w': w})
    same = op.sketch(key, rest | {'w': wide})
    return table, same, op.desketch(key, table, like)

  table, same, out = tables(KEY, w, w.astype(jnp.float32))
  chex.assert_trees_all_equal_shapes_and_dtypes(table, op.zero_table(tree))
  chex.assert_trees_all_equal(
    op.zero_table(like), jax.tree.map(jnp.zeros_like, table)
  )
  chex.assert_trees_all_equal_shapes_and_dtypes(out, like)
  # bfloat16 leaves are accumulated in float32.
  chex.assert_trees_all_equal(table, same)
  return table


def two_shards(fn: Callable[..., Any], split=(False, True)) -> Callable:
  """`fn` over two devices, between which some of its arguments are split."""
  return jax.shard_map(
    fn,
    mesh=jax.make_mesh((2,), ('shard',), (jax.sharding.AxisType.Auto,)),
    in_specs=tuple(jax.P('shard') if each else jax.P() for each in split),
    out_specs=jax.P('shard'),
  )


def mean_and_error(draws: Any) -> tuple[np.ndarray, np.ndarray]:
  """Over the first axis: means, and their standard errors."""
  draws = np.asarray(draws, np.float64)
  return draws.mean(0), draws.std(0) / np.sqrt(len(draws))


def both(op: sketches.Sketch, like: Any = TREE) -> Callable[..., Any]:
  """Sketch and desketch: (key, tree) -> estimate."""
  return lambda key, x: op.desketch(key, op.sketch(key, x), like)
