"""DP-SGD as local work: example-level, local DP for a client's samples."""

import functools

from fl_sketch.local.sgd import mask_of
from fl_sketch.models import losses as losses_lib
from fl_sketch.privacy.mechanisms import sums
from fl_sketch.rounds import keys as keys_lib
from fl_sketch.rounds.algorithm import Local, LossFn
import jax
import jax.numpy as jnp


def private_sgd(
  loss_fn: LossFn,
  client_lr: jax.Array | float,
  clip_norm: jax.Array | float,
  noise_multiplier: jax.Array | float,
  *,
  expected_batch: int,
  microbatch: int | None = 16,
  weight_decay: float = 0.0,
) -> Local:
  r"""SGD in which every step is a Gaussian mechanism on the client's samples.

  :math:`u \leftarrow u - \eta \left( \frac1B \left( \sum_{z \in B_k}
  \mathrm{clip}(\nabla f(u; z), C) + \xi_k \right) + \lambda u \right)` with
  :math:`\xi_k \sim \mathcal{N}(0, (\sigma C)^2 I)`, eta = `client_lr`, C =
  `clip_norm`, sigma = `noise_multiplier`, lambda = `weight_decay` and B =
  `expected_batch` >= 1, the batch_size of the batches' draw.

  Source: Song et al., ICML 2023, arXiv:2210.08371, algorithms 2 and 3,
  corrected: gradients of samples are clipped, since a Lipschitz mean does not
  bound them, and divided by the expected B: a Poisson batch's size is private.

  >>> loss = lambda w, batch: jnp.mean((w - batch['x']) ** 2) / 2
  >>> local = private_sgd(loss, 0.5, 9.0, 0.0, expected_batch=2)
  >>> batches = {'x': jnp.ones((1, 3)), 'mask': jnp.array([[1, 1, 0]])}
  >>> local(jnp.float32(0), batches, jax.random.key(0), None)[0].round(6)
  Array(-0.5, dtype=float32)

  The loss is (params, batch) -> f32[], a mean over a batch without its 'mask';
  its argument `key` is the same for all samples of a step. Gradients of
  `microbatch` samples are in memory at once; None: of all.

  Batches are a dict with leaves [steps, max_batch, ...], whose 'mask' marks
  samples present, else a ValueError; the key is the client's secret one.
  'train_loss', the mean over them, has no noise: it must not leave the client.

  Guarantees:
    Sensitivity: without the noise, one sample more moves a step by at most
      client_lr * clip_norm / expected_batch, whatever it holds.
    Noise: of standard deviation client_lr * noise_multiplier * clip_norm /
      expected_batch in each coordinate of each step, an empty one included,
      independent between the steps, keys and parameters.
    Denominator: does not depend on which samples are present.
  """
  if not expected_batch >= 1:
    raise ValueError(f'{expected_batch=} must be >= 1; use the batch_size.')
  takes_key = losses_lib.takes_key(loss_fn)

  def noisy_sum(key, k, *args):
    step_loss = loss_fn
    if takes_key:
      step_loss = functools.partial(loss_fn, key=keys_lib.step_key(key, k))
    fn = sums.noisy_gradient_sum(
      step_loss, max_norm=clip_norm, noise_multiplier=noise_multiplier,
      microbatch_size=microbatch,
    )  # fmt: skip
    return fn(jax.random.fold_in(key, k), *args)

  def local(params, batches, key, correction):
    if correction is not None:
      raise ValueError('A correction has no privacy analysis; pass None.')
    if (mask := mask_of(batches)) is None:
      raise ValueError(
        "private_sgd requires batches with a 'mask'; a config sets "
        "batch_order='poisson'."
      )
    present = mask > 0
    samples = {name: x for name, x in batches.items() if name != 'mask'}

    def step(theta, inputs):
      k, batch, mask = inputs
      total, losses = noisy_sum(key, k, theta, batch, mask)

      def move(p, g):
        moved = p - client_lr * (g / expected_batch + weight_decay * p)
        return moved.astype(p.dtype)

      theta = jax.tree.map(move, theta, total)
      return theta, jnp.where(mask, losses, 0).sum()

    steps = jnp.arange(present.shape[0])
    theta, losses = jax.lax.scan(step, params, (steps, samples, present))
    moved = jax.tree.map(jnp.subtract, params, theta)
    mean = losses.sum() / jnp.maximum(present.sum(), 1)
    return moved, {'train_loss': mean}

  return local
