"""What attacks are made of: views, objectives, defences, scores."""

import functools

import chex
from fl_sketch import attacks, local as local_work, sketches
from fl_sketch.attacks import defences, objectives, scores
from fl_sketch.privacy.mechanisms import clipping
import jax
import jax.numpy as jnp
import numpy as np
from operators import vector
from papers.song.attacks import victims
import pytest
from scipy import signal, stats

KEY = jax.random.key(0)


def normal(seed, *shape):
  draws = np.random.default_rng(seed).normal(size=shape)
  return draws.astype(np.float32)


MESSAGE = {'w': normal(0, 6, 8), 'b': normal(1, 16)}


def length(tree):
  return np.linalg.norm(vector(tree))


def descend(w, x, y, client_lr, steps=1):
  """The update of a client with a tanh layer."""
  start = w = np.asarray(w, float)
  for _ in range(steps):
    t = np.tanh(x @ w)
    w = w - client_lr * x.T @ ((t - y) * (1 - t**2)) / len(x)
  return start - w


def test_views_are_what_clients_send():
  w, x, y = normal(0, 5, 3), normal(1, 4, 5), normal(2, 4, 3)
  op = sketches.gaussian(8)
  sgd = functools.partial(local_work.sgd, victims.tanh_loss, 0.3)
  options = {
    'gradient': {},
    'three steps': {'local': sgd(local_steps=3)},
    'sketched': {'sketch': op, 'local': sgd(local_steps=3)},
  }

  @jax.jit
  def all_views():
    view, batch = attacks.view, {'x': x, 'y': y}
    send = lambda options: view(victims.tanh_loss, **options)(w, batch, KEY)
    sent = {name: send(kind) for name, kind in options.items()}
    return sent, op.sketch(KEY, sent['three steps'])

  sent, table = all_views()
  close = functools.partial(np.testing.assert_allclose, rtol=2e-5, atol=1e-6)
  close(sent['gradient'], descend(w, x, y, 1.0))
  close(sent['three steps'], descend(w, x, y, 0.3, steps=3))
  close(sent['sketched'], table)


def test_objectives_by_hand():
  guess = {'a': jnp.array([3.0, 0.0]), 'b': jnp.array([1.0 + 1.0j])}
  observed = {'a': jnp.array([0.0, 4.0]), 'b': jnp.array([1.0 - 2.0j])}
  # Squares 9 + 2, 16 + 5 and, of the difference, 25 + 9; Re of (1 + i) with
  # the conjugate of 1 - 2i is -1.
  l2 = objectives.relative_l2(guess, observed)
  cosine = objectives.cosine(guess, observed)
  np.testing.assert_allclose(l2, 34 / 21, rtol=1e-6)
  np.testing.assert_allclose(cosine, 1 + 1 / np.sqrt(11 * 21), rtol=1e-6)
  assert l2.dtype == cosine.dtype == jnp.float32


def test_total_variation_by_hand():
  x = jnp.array([[0.0, 1.0, 3.0], [1.0, 1.0, 0.0]]).reshape(1, 2, 3, 1)
  down, right = (1 + 0 + 3) / 3, (1 + 2 + 0 + 1) / 4
  value = objectives.total_variation(x)
  np.testing.assert_allclose(value, down + right, rtol=1e-6)


def test_noise_has_the_length_that_is_asked_for():
  message = [sketches.srft(8).sketch(KEY, MESSAGE), MESSAGE['b']]

  @jax.jit
  def noise(seed, scale):
    sent = defences.noise(scale).apply(jax.random.key(seed), message)
    return jax.tree.map(jnp.subtract, sent, message)

  for scale in (0.01, 3.0):
    xi, other = (vector(noise(seed, scale)) for seed in (0, 1))
    expected = scale * length(message)
    np.testing.assert_allclose(np.linalg.norm(xi), expected, rtol=1e-4)
    assert np.linalg.norm(xi - other) > expected


@pytest.mark.parametrize('name', ['clip', 'normalize'])
def test_bounds_and_what_attackers_redo_of_them(name):
  @jax.jit
  def sent_and_redone(max_norm):
    defence = defences.bound(name, max_norm)
    redo = lambda message: defence.redo(message, None)
    # Along the message itself nothing that is scaled moves.
    slope = jax.jvp(redo, (MESSAGE,), (MESSAGE,))[1]
    return defence.apply(KEY, MESSAGE), redo(MESSAGE), slope

  for max_norm in (0.5, 1e3):
    sent, redone, slope = sent_and_redone(max_norm)
    scaled = name == 'normalize' or max_norm < length(MESSAGE)
    expected = max_norm if scaled else length(MESSAGE)
    np.testing.assert_allclose(length(sent), expected, rtol=1e-5)
    chex.assert_trees_all_close(redone, sent, rtol=1e-5)
    still = 0 if scaled else length(MESSAGE)
    np.testing.assert_allclose(length(slope), still, atol=1e-5 * max_norm)


def test_top_k_keeps_k_and_attackers_see_which():
  defence = defences.top_k(5)
  message = defence.apply(KEY, MESSAGE)
  sent, truth = vector(message), vector(MESSAGE)
  kept = np.argsort(-abs(truth))[:5]
  assert set(np.flatnonzero(sent)) == set(kept)
  np.testing.assert_array_equal(sent[kept], truth[kept])
  guess = jax.tree.map(np.cos, MESSAGE)
  redone = vector(defence.redo(guess, message))
  np.testing.assert_array_equal(redone, np.where(sent != 0, vector(guess), 0))


def test_the_gaussian_mechanism_is_its_bound_and_noise_of_z_c():
  """The noise's squares are chi squared; false alarm below 1e-6."""
  c, z, n, message = 0.7, 2.0, 4096, normal(2, 4096)
  bounded, _ = clipping.BOUNDS['clip'](message, c)

  @jax.jit
  def run(z):
    defence = defences.gaussian_mechanism(c, z)
    return defence.apply(KEY, message), defence.redo(message, None)

  for sent in run(0.0):
    np.testing.assert_allclose(sent, bounded, atol=1e-6)
  drawn = (run(z)[0] - bounded) / (z * c)
  low, high = stats.chi2(n).ppf([2e-7, 1 - 2e-7])
  assert low < np.square(drawn).sum() < high
  assert stats.kstest(drawn, 'norm').pvalue > 4e-7


IMAGES = np.random.default_rng(0).uniform(size=(3, 16, 14, 2))


def test_guesses_are_matched_to_samples():
  """Catches errors or labels in the order of the guesses."""
  order, labels = np.array([2, 0, 1]), np.array([7, 8, 9])
  guess = IMAGES[order] + 0.01
  off = 0.01 * np.sqrt(IMAGES[0].size)
  expected = off / np.linalg.norm(IMAGES.reshape(3, -1), axis=1)
  for sent, success, right in ((labels[order], 0.05, 1), (labels, 0.001, 0)):
    options = {'labels': sent, 'true_labels': labels, 'success': success}
    score = scores.score(guess, IMAGES, **options)
    assert score['label_accuracy'].tolist() == [right] * 3
    assert score['success'].tolist() == [right] * 3
    np.testing.assert_allclose(score['relative_error'], expected, rtol=1e-6)
    np.testing.assert_allclose(score['mse'], 1e-4, rtol=1e-6)


def ssim_twin(x, y):
  """Wang et al. 2004: windows of 11 x 11, sigma 1.5, of each channel."""
  offsets = np.arange(-5, 6)
  row = np.exp(-0.5 * (offsets / 1.5) ** 2)
  window = np.outer(row, row) / row.sum() ** 2
  c1, c2 = 0.01**2, 0.03**2
  terms = []
  for channel in range(x.shape[-1]):
    a, b = x[..., channel], y[..., channel]
    mean = lambda z: signal.correlate2d(z, window, mode='valid')
    va, vb = mean(a * a) - mean(a) ** 2, mean(b * b) - mean(b) ** 2
    both = mean(a * b) - mean(a) * mean(b)
    luminance = 2 * mean(a) * mean(b) + c1
    luminance /= mean(a) ** 2 + mean(b) ** 2 + c1
    terms.append((luminance * (2 * both + c2) / (va + vb + c2)).mean())
  return np.mean(terms)


def test_images_are_scored_as_by_numpy():
  noise = np.random.default_rng(1).normal(size=IMAGES.shape)
  guess = IMAGES + np.array([0.0, 0.1, 0.5]).reshape(3, 1, 1, 1) * noise
  score = scores.score(guess, IMAGES)
  pixels = guess.clip(0, 1)
  mse = np.square(pixels - IMAGES).mean((1, 2, 3))
  psnr = [100, *(-10 * np.log10(mse[1:]))]
  np.testing.assert_allclose(score['psnr'], psnr, rtol=1e-4)
  ssim = [ssim_twin(x, y) for x, y in zip(pixels, IMAGES, strict=True)]
  np.testing.assert_allclose(score['ssim'], ssim, atol=1e-3)
  assert score['ssim'][0] == pytest.approx(1)
  assert 0 < score['ssim'][2] < score['ssim'][1] < 0.99


def test_a_guess_that_failed_is_matched_last():
  """Catches a NaN in the assignment, or one that counts as a success."""
  guess = IMAGES.copy()
  guess[1] = np.nan
  score = scores.score(guess[[1, 0, 2]], IMAGES)
  assert score['success'].tolist() == [1, 0, 1]
