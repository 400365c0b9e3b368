"""What the server sees: uniform, and it adds up; false alarms below 1e-6."""

import functools

from fl_sketch.privacy.mechanisms import secure_aggregation as sa
from fl_sketch.rounds import keys as keys_lib, mesh as mesh_lib
import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from tests.privacy.test_secure_aggregation import CLIENTS, LANES, SECRET, graph

NUMBERS = 2**14  # enough for chi-square on bytes


def normal(seed):
  """uint32[CLIENTS, NUMBERS], far from uniform."""
  x = np.random.default_rng(seed).normal(size=(CLIENTS, NUMBERS))
  return np.rint(x * 2.0**26).astype(np.int32).astype(np.uint32)


def same(value):
  return np.full((CLIENTS, NUMBERS), value, np.uint32)


@functools.cache
def program(neighbours):
  fn = lambda integers, key: sa.masked(key, integers, neighbours)
  mesh, specs = mesh_lib.cohort_mesh(1), (LANES, jax.P())
  return jax.jit(jax.shard_map(fn, mesh=mesh, in_specs=specs, out_specs=LANES))


def sent(integers, key=SECRET, neighbours=None):
  return jax.tree.map(np.array, program(neighbours)(integers, key))


def p_value(words):
  """The least over the four byte positions, or of numbers like sums of them."""
  data = np.ascontiguousarray(np.ravel(words), np.uint32).view(np.uint8)
  count = functools.partial(np.bincount, minlength=256)
  counts = list(map(count, data.reshape(-1, 4).T))
  return stats.chisquare(counts, axis=1).pvalue.min()


def looks_uniform(words):
  return p_value(words) > 1e-8


@functools.cache
def masks():
  """uint32[i, j, NUMBERS] that i and j draw; drawn here from the definition."""

  def draw(i, j):
    seed = jax.random.fold_in(SECRET, jnp.minimum(i, j))
    seed = jax.random.fold_in(seed, jnp.maximum(i, j))
    return jax.random.bits(jax.random.fold_in(seed, 0), (NUMBERS,), jnp.uint32)

  ids = jnp.arange(CLIENTS)
  both = jax.vmap(jax.vmap(draw, (None, 0)), (0, None))
  return np.asarray(jax.jit(both)(ids, ids))


def view(messages, present, neighbours=None):
  """What the survivors' messages are to a server that knows what it may."""
  opened, adjacent = messages.copy(), graph(neighbours)
  for i in np.flatnonzero(present):
    opened[i] -= masks()[i, i]
    for j in np.flatnonzero(adjacent[i] & ~present):
      opened[i] -= masks()[i, j] if i < j else -masks()[i, j]
  return opened[present]


def test_what_a_message_is_made_of():
  """Table + own mask + those with later slots - those with earlier ones."""
  x = normal(0)
  for neighbours in None, 4:
    before = np.tri(CLIENTS, k=-1, dtype=bool)[:, :, None]
    signed = np.where(before, -masks(), masks())
    used = graph(neighbours) | np.eye(CLIENTS, dtype=bool)
    want = x + (signed * used[:, :, None]).sum(1, dtype=np.uint32)
    got = sent(x, neighbours=neighbours)
    assert got.dtype == np.uint32
    np.testing.assert_array_equal(got, want)


def test_the_check_of_uniformity_has_power():
  rng = np.random.default_rng(0)
  words = rng.integers(2**32, size=NUMBERS, dtype=np.uint32)
  assert looks_uniform(words)
  assert not looks_uniform(normal(0)[0])
  assert not looks_uniform(words // 2)  # 31 random bits
  assert not looks_uniform(np.where(rng.random(NUMBERS) < 0.1, 0, words))


def test_a_message_alone_is_uniform():
  """And that of each leaf has masks of its own."""
  for value in 0, 2**27:
    assert all(map(looks_uniform, sent(same(value), neighbours=2)))
  a, b = sent((same(0), same(0)))
  assert all(map(looks_uniform, a - b))


def test_a_late_message_stays_masked_when_its_pairs_are_revealed():
  late = sent(same(1))[2]
  for j in set(range(CLIENTS)) - {2}:
    late -= masks()[2, j] if 2 < j else -masks()[2, j]
  assert looks_uniform(late)
  np.testing.assert_array_equal(late - masks()[2, 2], same(1)[2])


def test_connected_survivors_show_their_sum_alone():
  """Every other combination of their messages is uniform, whoever drops."""
  x = same(0)
  rng = np.random.default_rng(3)
  for neighbours, gone in (None, 0), (None, 5), (4, 0), (4, 3):
    present = np.ones(CLIENTS, bool)
    present[rng.permutation(CLIENTS)[:gone]] = False
    visible = view(sent(x, neighbours=neighbours), present, neighbours)
    assert not visible.sum(0, dtype=np.uint32).any()
    for _ in range(5):
      factors = 2 * rng.integers(1, 9, (len(visible), 1), np.uint32)
      factors[0] += 1  # all equal is the sum; an odd difference keeps all bits
      assert looks_uniform((factors * visible).sum(0, dtype=np.uint32))


def test_what_public_keys_draw_does_not_unmask():
  """Nor does another round's secret: equal keys show a difference of tables."""
  x = same(0)
  messages = sent(x)
  np.testing.assert_array_equal(messages - sent(same(7)), x - same(7))
  other = jax.random.fold_in(SECRET, 1)
  assert all(map(looks_uniform, messages - sent(x, other)))
  for public in keys_lib.round_keys(jax.random.key(0), 0)[:3]:
    assert all(map(looks_uniform, messages - sent(x, public)))
