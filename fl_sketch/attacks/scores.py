"""Scores of reconstructions, computed on the host."""

from fl_sketch.utils import extras
import numpy as np
import scipy  # its packages load on first use

_MOST_PSNR = 100.0  # dB, of equal images, for which it is infinite


def match(guess: np.ndarray, truth: np.ndarray) -> np.ndarray:
  """Assigns a guess to every sample, int[batch]: least total squared distance.

  A gradient is a mean over its batch and does not depend on its order. Guesses
  and samples are [batch, ...]; non-finite numbers are matched as zeros.

  >>> match(np.array([[0.0], [5.0]]), np.array([[4.0], [1.0]])).tolist()
  [1, 0]
  """
  finite = lambda x: np.nan_to_num(np.float64(x), posinf=0, neginf=0)
  flat = lambda x: finite(x).reshape(len(x), -1)
  squares = np.square(flat(truth)[:, None] - flat(guess)[None]).sum(-1)
  return scipy.optimize.linear_sum_assignment(squares)[1]


def relative_error(guess: np.ndarray, truth: np.ndarray) -> np.ndarray:
  r"""The relative L2 error :math:`\|\hat x - x\| / \|x\|` of every sample."""
  flat = lambda x: np.float64(x).reshape(len(x), -1)
  distance = np.linalg.norm(flat(guess) - flat(truth), axis=1)
  return distance / np.linalg.norm(flat(truth), axis=1)


def score(
  guess: np.ndarray,
  truth: np.ndarray,
  *,
  order: np.ndarray | None = None,
  labels: np.ndarray | None = None,
  true_labels: np.ndarray | None = None,
  success: float = 0.01,
) -> dict[str, np.ndarray]:
  """Matches the guesses of a batch to its samples and scores every sample.

  Both are [batch, ...]; [batch, rows, cols, channels] are images from 0 to 1.
  The order of the guesses is by default that of `match`; their labels, if they
  were guessed, and the true ones are int[batch]. `success` is the largest
  relative error that counts as recovered. Returns {'success', 'relative_error',
  'mse'}, of images also 'psnr' in decibels, at most 100, and 'ssim', of labels
  'label_accuracy'; each f64[batch].

  Source of the structural similarity: Wang et al., IEEE TIP 13(4), 2004.
  """
  order = match(guess, truth) if order is None else order
  guess, truth = np.asarray(guess)[order], np.asarray(truth)
  error = relative_error(guess, truth)
  axes = tuple(range(1, truth.ndim))
  results = {
    'success': np.float64(error < success),
    'relative_error': error,
    'mse': np.square(np.float64(guess) - truth).mean(axes),
  }
  if truth.ndim == 4:
    with extras.needed('attacks'):
      import dm_pix
    pixels = np.clip(guess, 0, 1).astype(np.float32)
    side = min(11, min(truth.shape[1:3]) // 2 * 2 - 1)  # 11: of the paper
    ssim = dm_pix.ssim(pixels, np.float32(truth), filter_size=side)
    psnr = np.minimum(dm_pix.psnr(pixels, np.float32(truth)), _MOST_PSNR)
    results |= {'psnr': np.float64(psnr), 'ssim': np.float64(ssim)}
  if labels is not None:
    right = np.asarray(labels)[order] == np.asarray(true_labels)
    results['label_accuracy'] = np.float64(right)
  return results
