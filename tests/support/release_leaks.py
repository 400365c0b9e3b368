"""Programs whose noise hides less than epsilon says; laws run over the lists.

Classes: N1 what is announced, N2 one noise twice, N3 releases that are not
counted, N4 a bound or scale from data, N5 rows that mix before the bound, N6
more than a sum after it, N7 and N8 rows of other clients, N9 the secret key.
"""

import functools
from typing import Any, NamedTuple

from fl_sketch.privacy.mechanisms import clipping, grid as grid_lib, sums
from fl_sketch.rounds import marks
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
ALL = jnp.ones(4)
add = functools.partial(
  sums.privatize_sum, mask=ALL, max_norm=1.0, noise_multiplier=2.0
)
MEAN = private.RELEASE.with_hyper(private.HP)
bounded = lambda x: jax.vmap(MEAN.contribution)(x)  # uint32[rows, ...]
total = lambda x: bounded(x).sum(0, dtype=jnp.uint32)
noise = lambda key: grid_lib.noise(key, jnp.zeros(3), MEAN.grid(jnp.zeros(3)))
raw = lambda x: x.astype(jnp.int32).astype(jnp.uint32)
norms = lambda x: jnp.linalg.norm(x, axis=1)
positive = lambda x: (x > 0).sum()
scanned = lambda f, w, n: lax.scan(lambda c, i: (c + f(i), None), w, n)[0]

SEVERAL = 'draws one noise for several releases'
EVERY = 'draws the same noise in every (round|step)'
OFTEN = f'{SEVERAL}|{EVERY}'
SCALE = r'a scale of noise or bound depends on'
SUM = 'reach a release other than as a sum of contributions'
OTHER = 'noise of another bound'
ALONE = f'reach a release|{SEVERAL}|{OTHER}'
KEY = r'\bkey\b'


class Leak(NamedTuple):
  """A program, its class, and what the message must say."""

  of: str
  fn: Any
  match: str
  outputs: Any = 'public'


# Functions of rows that mix them: refused as contribution and as client state.
MIXED = {
  'centred': lambda x: x - x.mean(0),
  'over_the_largest': lambda x: x / norms(x).max(),
  'standardised': lambda x: (x - x.mean(0)) / (x.std(0) + 1),
  'sorted': lambda x: jnp.sort(x, 0),
  'ordered': lambda x: x[jnp.argsort(x[:, 0])],
  'rolled': lambda x: jnp.roll(x, 1, 0),
  'reversed': lambda x: x[::-1],
  'cumulated': lambda x: jnp.cumsum(x, 0),
  'largest_so_far': lambda x: lax.cummax(x, 0),
  'gram': lambda x: x @ x.T,
  'public_mixing': lambda x: jnp.einsum('ij,jk->ik', jnp.ones((4, 4)), x),
  'attention': lambda x: jax.nn.softmax(x @ x.T) @ x,
  'softmax_of_clients': lambda x: jax.nn.softmax(x, 0),
  'one_for_all': lambda x: jnp.broadcast_to(x[0], x.shape),
  'gathered': lambda x: x[jnp.array([0, 0, 1, 2])],
  'neighbour': lambda x: x - jnp.pad(x[1:], ((0, 1), (0, 0))),
  'overwritten': lambda x: x.at[0].set(x[1]),
  'moved_by_slices': lambda x: lax.dynamic_update_slice(x, x[:2], (2, 0)),
  'reshaped': lambda x: x.reshape(3, 4).T,
  'transformed': lambda x: jnp.fft.fft(x, axis=0).real,
  'collective': lambda x: jax.vmap(lambda r: lax.pmean(r, 'c'), axis_name='c')(
    x
  ),
  'running_carry': lambda x: lax.scan(lambda c, r: (c + r, c), x[0] * 0, x)[1],
  'convolved': lambda x: lax.conv_general_dilated(
    x.T[:, None], jnp.ones((1, 1, 3)), (1,), 'SAME'
  )[:, 0].T,
  'by_largest_norm': lambda x: jnp.where(norms(x).max() > 2, x, 0),
  'loop_length': lambda x: lax.fori_loop(0, positive(x), lambda i, c: c / 2, x),
}  # fmt: skip
# One client in several rows.
REPEATED = {
  'repeated': lambda x: jnp.repeat(x, 2, 0),
  'with_itself': lambda x: jnp.concatenate([x, x]),
  'a_row_a_number': lambda x: x.reshape(-1, 1),
  'transposed': lambda x: x.T,
  'pairs': lambda x: (x[:, None] - x).reshape(16, 3),
}


def contributed(f):
  def step(x, key):
    rows = f(x)
    return add(key, rows, mask=jnp.ones(len(rows)))

  return step


def loss_of_all(x, key):
  loss = lambda w, row: ((w - row) ** 2).mean() * x.mean()
  fn = sums.noisy_gradient_sum(loss, max_norm=1.0, noise_multiplier=2.0)
  return fn(key, jnp.zeros(3), x, ALL)[0]


def by_length(w, x, key):
  more = lambda c: (c[0] + 1, c[1] + add(random.fold_in(key, c[0]), x))
  return lax.while_loop(lambda c: c[1][0] < 9, more, (0, w))[1]


def finish(noisy):
  return marks.released(grid_lib.decode(noisy, MEAN.grid(noisy)))


cut = lambda key: random.wrap_key_data(random.key_data(key) & 1)
short = lambda key: random.key(random.bits(key) % 4096)
quiet = private.RELEASE.with_hyper(
  private.HP._replace(noise_multiplier=jnp.float32(0.1))
)
CALLS = {
  # N2
  'scan': Leak('N2', lambda w, x, key: scanned(
    lambda a: add(key, a * x), w, jnp.arange(3.0)), EVERY),
  'fori_loop': Leak('N2', lambda w, x, key: lax.fori_loop(
    0, 3, lambda i, c: add(key, x - c), w), EVERY),
  'one_fold_in_scan': Leak('N2', lambda w, x, key: scanned(
    lambda a: add(random.fold_in(key, 7), a * x), w, jnp.arange(3.0)), EVERY),
  'half_index': Leak('N2', lambda w, x, key: scanned(
    lambda i: add(random.fold_in(key, i // 2), x * i), w, jnp.arange(4)),
    OFTEN),
  'index_of_inner_loop': Leak('N2', lambda w, x, key: scanned(
    lambda a: scanned(lambda i: add(random.fold_in(key, i), a * x), w,
      jnp.arange(2)), w, jnp.arange(3.0)), EVERY),
  'mapped': Leak('N2', lambda x, key: jax.vmap(
    lambda a: add(key, a * x))(jnp.arange(3.0)), OFTEN),
  'difference': Leak('N2', lambda x, key: add(key, 2 * x) - add(key, x),
    SEVERAL),
  'other_shape': Leak('N2', lambda x, key: (
    add(key, x), add(key, x[:, :2])), SEVERAL),
  'equal_folds': Leak('N2', lambda x, key: add(random.fold_in(key, 1), x) + add(
    random.fold_in(key, 1), -2 * x), SEVERAL),
  'equal_splits': Leak('N2', lambda x, key: add(random.split(key)[0], x) + add(
    random.split(key)[0], -2 * x), SEVERAL),
  'both_branches_and_after': Leak('N2', lambda i, x, key: add(key, x) + lax.cond(
    i > 0, lambda: add(key, -2 * x), lambda: jnp.zeros(3)), SEVERAL),
  'opposite_signs': Leak('N2', lambda x, key: finish(
    total(x) + noise(key) - noise(key)), ALONE),
  'one_number': Leak('N2', lambda x, key: finish(total(x) + noise(key)[0]),
    ALONE),
  'published_noise': Leak('N2', lambda x, key: (
    finish(total(x) + noise(key)), noise(key)), f'{KEY}|{SEVERAL}'),
  # N3
  'while': Leak('N3', by_length, 'releases|while'),
  # N4
  'median_bound': Leak('N4', lambda x, key: add(
    key, x, max_norm=jnp.median(norms(x))), SCALE),
  'mean_bound': Leak('N4', lambda x, key: add(
    key, x, max_norm=norms(x).mean()), SCALE),
  'largest_bound': Leak('N4', lambda x, key: add(
    key, x, max_norm=norms(x).max()), SCALE),
  'first_bound': Leak('N4', lambda x, key: add(
    key, x, max_norm=norms(x)[0]), SCALE),
  'multiplier_of_data': Leak('N4', lambda x, key: add(
    key, x, noise_multiplier=1 / norms(x).max()), SCALE),
  'multiplier_of_count': Leak('N4', lambda x, y, key: add(
    key, x, mask=y, noise_multiplier=2 / y.sum()), SCALE),
  'chosen_multiplier': Leak('N4', lambda x, key: add(
    key, x, noise_multiplier=jnp.where(x.sum() > 0, 2.0, 0.0)), SCALE),
  'mean_gradient_bound': Leak('N4', lambda w, x, key: sums.noisy_gradient_sum(
    lambda w, row: ((w - row) ** 2).mean(), max_norm=norms(x).mean(),
    noise_multiplier=2.0)(key, w, x, ALL)[0], SCALE),
  'bound_of_state': Leak('N4', lambda s, x, key: add(
    key, x, max_norm=norms(s).max()), SCALE),
  'bound_in_loop': Leak('N4', lambda x, key: lax.fori_loop(0, 2, lambda i, c: (
    add(random.fold_in(key, i), x, max_norm=c[1]), norms(x).mean()),
    (jnp.zeros(3), 1.0))[0], SCALE),
  # N5
  'loss_of_all': Leak('N5', loss_of_all, 'of other clients reach a contr'),
  # N6
  'no_noise': Leak('N6', lambda x: finish(total(x)), 'reach a release'),
  'no_bound': Leak('N6', lambda x, key: finish(
    grid_lib.encode(x, MEAN.grid(x)).sum(0, dtype='uint32') + noise(key)), SUM),
  'clipped_alone': Leak('N6', lambda x, key: jax.vmap(
    lambda r: clipping.clip_by_l2_norm(r, 1.0)[0])(x).sum(0) + 2 *
    random.normal(key, (3,)), 'x reach the result'),
  'raw_integers': Leak('N6', lambda x, key: MEAN.released(
    total(x) + raw(x[0]), key), SUM),
  'twice_the_sum': Leak('N6', lambda x, key: MEAN.released(
    total(x) + total(x), key), SUM),
  'shifted': Leak('N6', lambda x, key: MEAN.released(total(x) << 1, key), SUM),
  'times_weight': Leak('N6', lambda x, y, key: MEAN.released(
    (bounded(x) * raw(y)[:, None]).sum(0, dtype='uint32'), key), SUM),
  'squared': Leak('N6', lambda x, key: MEAN.released(
    (bounded(x) * bounded(x)).sum(0, dtype='uint32'), key), SUM),
  'over_coordinates': Leak('N6', lambda x, key: MEAN.released(
    bounded(x).sum(dtype='uint32')[None], key), SUM),
  'largest': Leak('N6', lambda x, key: MEAN.released(bounded(x).max(0), key),
    SUM),
  'mean_before_noise': Leak('N6', lambda x, y, key: MEAN.released(
    total(x) // raw(y.sum()), key), SUM),
  'selected_sum': Leak('N6', lambda x, key: MEAN.released(
    jnp.where(x.sum() > 0, total(x), 0), key), SUM),
  'branch_of_sums': Leak('N6', lambda x, key: MEAN.released(lax.cond(
    x.sum() > 0, total, lambda x: 2 * total(x), x), key), SUM),
  'selected_by_others': Leak('N6', lambda x, key: MEAN.released(jnp.where(
    (norms(x) >= norms(x).max())[:, None], bounded(x), 0).sum(
    0, dtype='uint32'), key), SUM),
  'cut_bits': Leak('N6', lambda x, key: MEAN.released(
    (bounded(x) & 255).sum(0, dtype='uint32'), key), SUM),
  'two_sums': Leak('N6', lambda x, key: MEAN.released(
    total(x) + total(-3 * x), key), SUM),
  'rows_again': Leak('N6', lambda x, key: MEAN.released(
    jnp.concatenate([bounded(x)] * 2).sum(0, dtype='uint32'), key), SUM),
  'looped_sum': Leak('N6', lambda x, key: MEAN.released(lax.fori_loop(
    0, 5, lambda i, c: c + total(x), jnp.zeros(3, 'uint32')), key), SUM),
  'bounded_apart': Leak('N3', lambda x, key: MEAN.released(
    [total(x), total(x * x)], key), f'{SUM}|{OTHER}'),
  'halves_bounded_apart': Leak('N3', lambda x, key: MEAN.released(
    jnp.concatenate([total(x[:, :1]), total(x[:, 1:])]), key),
    f'{SUM}|{OTHER}'),
  'quiet_noise': Leak('N4', lambda x, key: quiet.released(total(x), key),
    OTHER),
  'small_noise': Leak('N6', lambda x, key: finish(
    total(x) + noise(key) // 10), ALONE),
  'masked_noise': Leak('N6', lambda x, key: finish(
    total(x) + jnp.where(x.sum() > 0, noise(key), 0)), ALONE),
  'noise_on_a_part': Leak('N6', lambda x, key: finish(
    total(x) + noise(key).at[0].set(0)), ALONE),
  'repeated_noise': Leak('N2', lambda x, key: finish(
    total(x) + jnp.repeat(noise(key)[:1], 3)), ALONE),
  # N7
  'sum_as_row': Leak('N7', lambda s: s.sum(0), 'of other clients', 'client'),
  'row_of_data': Leak('N7', lambda s, x: s + x.sum(0), 'of other clients',
    'client'),
  # N9
  'key_in_rows': Leak('N9', lambda s, key: s + random.normal(key, s.shape),
    KEY, 'client'),
  'bits_of_key': Leak('N9', lambda key: random.bits(key) & 1, KEY),
  'one_bit': Leak('N9', lambda x, key: add(cut(key), x), KEY),
  'twelve_bits': Leak('N9', lambda x, key: add(short(key), x), KEY),
  'key_of_data': Leak('N9', lambda x: add(random.key(raw(x.sum())), x),
    'reach a release'),
  'key_by_data': Leak('N9', lambda x, key: add(
    random.fold_in(key, raw(x.sum())), x), f'reach a|{SCALE}'),
  'public_key': Leak('N9', lambda i, x: add(random.key(i), x),
    'reach a release'),
  # Mixed rows
  **{f'{k}_rows': Leak('N5', contributed(f), 'of other clients reach a contri')
    for k, f in MIXED.items()},
  **{f'{k}_state': Leak('N8', lambda s, f=f: f(s), 's of other clients reach the result',
    'client') for k, f in MIXED.items()},
  **{f'{k}_rows': Leak('N5', contributed(f), 'reach a (contribution|release)')
    for k, f in REPEATED.items()},
}  # fmt: skip
