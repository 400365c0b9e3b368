"""Functions whose noise hides less than it should, by the place of the leak."""

import functools
from typing import Any, NamedTuple

from fl_sketch.privacy.mechanisms import clipping, grid as grid_lib, sums
import jax
from jax import lax, random
import jax.numpy as jnp
import private_cases as private

# Arguments of a program by their names: kind and value.
ARGS = {
  'w': ('public', jnp.zeros(3)), 'i': ('public', jnp.int32(0)),
  'x': ('data', jnp.ones((4, 3))), 'y': ('data', jnp.ones(4)),
  's': ('client', jnp.ones((4, 3))), 'key': ('noise', private.SECRET),
}  # fmt: skip
add = functools.partial(
  sums.privatize_sum, mask=jnp.ones(4), max_norm=1.0, noise_multiplier=2.0
)
MEAN = private.RELEASE.with_hyper(private.HP)
grid = lambda: MEAN.grid(jnp.zeros(3))
QUIET = private.RELEASE.with_hyper(
  private.HP._replace(noise_multiplier=jnp.float32(0.1))
)
rows = lambda x: jax.vmap(MEAN.contribution)(x)  # uint32[rows, ...]
total = lambda x: x.sum(0, dtype=jnp.uint32)
once = lambda x: total(rows(x))
noise = lambda key: grid_lib.noise(key, jnp.zeros(3), grid())
raw = lambda x: x.astype(jnp.int32).astype(jnp.uint32)
norms = lambda x: jnp.linalg.norm(x, axis=1)
fold, select = random.fold_in, jnp.where


def scan(f, n=3):
  """The sum of f over n steps."""
  step = lambda c, i: (c + f(i), None)
  return lax.scan(step, jnp.zeros(3), jnp.arange(n))[0]


def finish(noisy):
  return MEAN._mean(noisy)


def by_length(w, x, key):
  more = lambda c: (c[0] + 1, c[1] + add(fold(key, c[0]), x))
  return lax.while_loop(lambda c: c[1][0] < 9, more, (0, w))[1]


def loss_of_all(w, x, key):
  loss = lambda w, row: ((w[None] - row) ** 2).mean() * x.mean()
  fn = sums.noisy_gradient_sum(loss, max_norm=1.0, noise_multiplier=2.0)
  return fn(key, w, x, jnp.ones(4))[0]


def loss_bound_of_all(w, x, key):
  loss = lambda w, row: ((w[None] - row) ** 2).mean()
  bounds = {'max_norm': norms(x).mean(), 'noise_multiplier': 2.0}
  return sums.noisy_gradient_sum(loss, **bounds)(key, w, x, jnp.ones(4))[0]


# Functions of rows that mix them: neither contribution nor client state.
MIXED = {
  'centred': lambda x: x - x.mean(0)[None],
  'sorted': lambda x: jnp.sort(x, 0),
  'rolled': lambda x: jnp.roll(x, 1, 0),
  'reversed': lambda x: x[::-1],
  'cumulated': lambda x: jnp.cumsum(x, 0),
  'gram': lambda x: x @ x.T,
  'one_for_all': lambda x: jnp.broadcast_to(x[0], x.shape),
  'overwritten': lambda x: x.at[0].set(x[1]),
  'reshaped': lambda x: x.reshape(3, 4).T,
  'transformed': lambda x: jnp.fft.fft(x, axis=0).real,
  'collective': lambda x: jax.vmap(lambda r: lax.pmean(r, 'c'), axis_name='c')(
    x),
  'carried': lambda x: lax.scan(lambda c, r: (c + r, c), x[0] * 0, x)[1],
  'selected': lambda x: select(norms(x).max() > 2, x, 0),
  'loop_length': lambda x: lax.fori_loop(
    0, x[0, 0].astype(int), lambda _, c: c / 2, x),
  'ordered': lambda x: x[jnp.argsort(x[:, 0])],
  'neighbour': lambda x: x - jnp.pad(x[1:], ((0, 1), (0, 0))),
  'transposed': lambda x: x.T,
  'public_mixing': lambda x: jnp.einsum('ij,jk->ik', jnp.ones((4, 4)), x),
}  # fmt: skip
# One client in several rows.
REPEATED = {
  'repeated': lambda x: jnp.repeat(x, 2, 0),
  'with_itself': lambda x: jnp.concatenate([x, x]),
  'a_row_a_number': lambda x: x.reshape(-1, 1),
}
# Bounds and noise multipliers.
SCALES = {
  'median': lambda x: jnp.median(norms(x)),
  'count': lambda x: 8 / (norms(x) > 1).sum(),
  'choice': lambda x: select(x.sum() > 0, 2.0, 0.5),
  'step': lambda x: lax.fori_loop(0, 3, lambda i, c: x.mean(), 1.0),
}
# What is released in place of a sum of contributions.
SUMS = {
  'unbounded': lambda x, y: total(grid_lib.encode(x, grid())),
  'shifted': lambda x, y: once(x) << 1,
  'weighted': lambda x, y: total(rows(x) * raw(y)[:, None]),
  'over_coordinates': lambda x, y: rows(x).sum(dtype='uint32') * jnp.ones(
    3, 'uint32'),
  'largest': lambda x, y: rows(x).max(0),
  'selected': lambda x, y: select(y.sum() > 2, once(x), 0),
  'branch': lambda x, y: lax.cond(y.sum() > 2, once, lambda x: 2 * once(x), x),
  'longest_alone': lambda x, y: total(
    select((norms(x) >= norms(x).max())[:, None], rows(x), 0)),
  'cut_bits': lambda x, y: total(rows(x) & 255),
  'rows_again': lambda x, y: total(jnp.concatenate([rows(x), rows(x)])),
  'looped': lambda x, y: lax.fori_loop(
    0, 5, lambda i, c: c + once(x), jnp.zeros(3, 'uint32')),
  'halves': lambda x, y: jnp.concatenate([once(x[:, :1]), once(x[:, 1:])]),
  'twice': lambda x, y: once(x) + once(x),
}  # fmt: skip
# What is added to a sum in place of its noise, of a key and data.
NOISES = {
  'none': lambda key, x: 0 * noise(key),
  'one_number': lambda key, x: noise(key)[0],
  'a_part': lambda key, x: noise(key).at[0].set(0),
  'smaller': lambda key, x: noise(key) // 10,
  'masked': lambda key, x: select(x.sum() > 0, noise(key), 0),
}
# Keys that are no secret, or follow from data.
KEYS = {
  'one_bit': lambda key, x: random.wrap_key_data(random.key_data(key) & 1),
  'twelve_bits': lambda key, x: random.key(random.bits(key) % 4096),
  'of_data': lambda key, x: random.key(raw(x.sum())),
  'by_data': lambda key, x: fold(key, raw(x.sum())),
  'chosen': lambda key, x: random.split(key)[raw(x.sum()) % 2],
  'public': lambda key, x: random.key(0),
}
ONE_NOISE = {
  'difference': lambda x, key: add(key, 2 * x) - add(key, x),
  'other_shape': lambda x, key: (add(key, x), add(key, x[:, :2])),
  'splits': lambda x, key: [add(random.split(key)[0], a * x) for a in (1, 2)],
  'branch': lambda x, i, key: add(key, x) + lax.cond(
    i > 0, lambda: add(key, -2 * x), lambda: jnp.zeros(3)),
  'mapped': lambda x, key: jax.vmap(lambda a: add(key, a * x))(jnp.arange(3.0)),
}  # fmt: skip
EVERY_STEP = {
  'scan': lambda x, key: scan(lambda i: add(key, i * x)),
  'fori_loop': lambda w, x, key: lax.fori_loop(
    0, 3, lambda i, c: add(key, x - c[None]), w),
  'narrow_index': lambda x, key: scan(
    lambda i: add(fold(key, i.astype('uint8')), i * x)),
  'half_index': lambda x, key: scan(lambda i: add(fold(key, i // 2), i * x)),
  'inner_index': lambda x, key: scan(
    lambda a: scan(lambda i: add(fold(key, i), a * x))),
  'equal_indices': lambda w, x, key: lax.scan(
    lambda c, i: (c + add(fold(key, i), x), None), w,
    jnp.arange(3) - jnp.cumsum(jnp.ones(3, int)))[0],
  'sum_of_indices': lambda x, key: scan(
    lambda a: scan(lambda i: add(fold(key, a + i), a * x))),
  'zipped': lambda x, key: scan(
    lambda i: add(random.split(key, 2)[i % 2], i * x)),
}  # fmt: skip


class Leak(NamedTuple):
  """A program, what its message must say, and the kind of its result."""

  fn: Any
  match: str
  outputs: str = 'public'


def _leaks(of, fns, match, build=lambda f: f, outputs='public'):
  return {f'{of}-{k}': Leak(build(f), match, outputs) for k, f in fns.items()}


def _summed(f, mean=MEAN):
  return lambda x, y, key: mean.released(f(x, y), key)


SEVERAL, BOUND = 'draws one noise for several rel', 'noise of another bound'
OFTEN = f'{SEVERAL}|draws the same noise in every step|reach a contribution'
SCALE = 'a scale of noise or bound that depends on x'
OTHERS = 'x of other clients reach a contribution'
_mask = lambda x: jnp.ones(len(x))
_added = lambda f: lambda x, key: add(key, f(x), mask=_mask(f(x)))
CALLS = {
  **_leaks('N2-once', ONE_NOISE, OFTEN),
  **_leaks('N2-steps', EVERY_STEP, OFTEN),
  **_leaks('N3-length', {'while': by_length}, 'releases|while'),
  **_leaks('N4-bound', SCALES, SCALE,
    lambda f: lambda x, key: add(key, x, max_norm=f(x))),
  **_leaks('N4-multiplier', SCALES, SCALE,
    lambda f: lambda x, key: add(key, x, noise_multiplier=f(x))),
  **_leaks('N4-loss', {'bound': loss_bound_of_all}, SCALE),
  **_leaks('N4-quiet', {'noise': lambda x, y: once(x)},
    BOUND, functools.partial(_summed, mean=QUIET)),
  **_leaks('N5-rows', MIXED, OTHERS, _added),
  **_leaks('N5-again', REPEATED, 'x.* reach a (contribution|release)', _added),
  **_leaks('N5-loss', {'of_all': loss_of_all}, OTHERS),
  **_leaks('N6-sum', SUMS, f'other than as a sum of contributions|{BOUND}',
    _summed),
  **_leaks('N6-noise', NOISES, f'reach a release|{SEVERAL}|{BOUND}',
    lambda f: lambda x, key: finish(once(x) + f(key, x))),
  **_leaks('N6-clip', {'alone': clipping.clip_by_l2_norm}, 'reach the result',
    lambda f: lambda x, key: jax.vmap(lambda r: f(r, 1.0)[0])(x).sum(0)
    + random.normal(key, (3,))),
  **_leaks('N7-rows', MIXED, 's of other clients reach the result',
    lambda f: lambda s: f(s), 'client'),
  **_leaks('N7-sum', {'rows': lambda s: s.sum(0), 'data': lambda s, x:
    s + x.sum(0)[None]}, 'of other clients reach the result', outputs='client'),
  **_leaks('N9-rows', {'key': lambda s, key: s + random.normal(key, (4, 3))},
    'secret key key reach the result', outputs='client'),
  **_leaks('N9-bits', {'key': lambda key: random.bits(key) & 1, 'noise': lambda
    x, key: (finish(once(x) + noise(key)), noise(key))},
    'secret key key reach the result'),
  **_leaks('N9-key', KEYS, r'key|reach a release',
    lambda f: lambda x, key: add(f(key, x), x)),
}  # fmt: skip
