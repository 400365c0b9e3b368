"""Scores of reconstructions, computed on the host."""

from fl_sketch.utils import extras
import numpy as np
import scipy  # its packages load on first use

_MOST_PSNR = 100.0  # dB, for equal images


def match(guess: np.ndarray, truth: np.ndarray) -> np.ndarray:
  """Assign a guess to every sample, int[batch]: least total squared distance.

  Guesses and samples are [batch, ...]; non-finite numbers count as zeros.

  >>> match(np.array([[0.0], [5.0]]), np.array([[4.0], [1.0]])).tolist()
  [1, 0]
  """
  finite = lambda x: np.nan_to_num(np.float64(x), posinf=0, neginf=0)
  flat = lambda x: finite(x).reshape(len(x), -1)
  squares = np.square(flat(truth)[:, None] - flat(guess)[None]).sum(-1)
  return scipy.optimize.linear_sum_assignment(squares)[1]


def relative_error(guess: np.ndarray, truth: np.ndarray) -> np.ndarray:
  r"""Return :math:`\|\hat x - x\| / \|x\|` of every sample."""
  flat = lambda x: np.float64(x).reshape(len(x), -1)
  distance = np.linalg.norm(flat(guess) - flat(truth), axis=1)
  return distance / np.linalg.norm(flat(truth), axis=1)


def score(
  guess: np.ndarray, truth: np.ndarray, *, order: np.ndarray | None = None,
  labels: np.ndarray | None = None, true_labels: np.ndarray | None = None,
  success: float = 0.01,
) -> dict[str, np.ndarray]:  # fmt: skip
  """Match the guesses of a batch to its samples and score every sample.

  Both are [batch, ...]; [batch, rows, cols, channels] are images from 0 to 1.
  `order` of the guesses is by default that of `match`; `success` is the largest
  relative error that counts as recovered. Returns {'success', 'relative_error',
  'mse'}, of images also 'psnr' in decibels and 'ssim' (Wang et al., IEEE TIP
  13(4), 2004), of labels int[batch] 'label_accuracy'; each f64[batch].
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
