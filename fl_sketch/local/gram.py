"""Full-batch softmax regression through the Gram matrix: exact and faster SGD.

Gradient descent from W_0 stays on W_t = a^t W_0 - lr X^T A_t with A_t
f32[n, classes], where X has a constant column for the bias and a = 1 - lr
weight_decay. With K = X X^T the steps are made on the logits Z::

  G_t = (softmax(Z_t) - Y) / n,   Z_{t+1} = a Z_t - lr K G_t,
  A_steps = sum_t a^(steps - 1 - t) G_t.

This is less work than two products with X for n < features / 2 or so.
"""

from fl_sketch.models import losses
from fl_sketch.rounds.algorithm import Local
import jax
from jax import lax
import jax.numpy as jnp
import optax

# Clients to work on at once: on CPUs, too, that is faster for small products.
LANES_PER_STEP = 10


def gram_sgd(
  client_lr: jax.Array | float,
  steps: int,
  *,
  label_smoothing: float = 0.0,
  weight_decay: jax.Array | float = 0.0,
  mean: losses.Scale = 0.0,
  std: losses.Scale = 1.0,
) -> Local:
  """Local work: full-batch gradient steps of `models.Linear`.

  Equal up to rounding to `steps` times theta <- theta - client_lr (gradient +
  weight_decay theta), kernel and bias alike, with `losses.classification`.

  >>> params = {'dense': {'kernel': jnp.zeros((4, 2)), 'bias': jnp.zeros(2)}}
  >>> batches = {'x': jnp.ones((1, 3, 4)), 'y': jnp.zeros((1, 3), int)}
  >>> moved, _ = gram_sgd(0.1, steps=1)(params, batches, None, None)
  >>> moved['dense']['bias']
  Array([-0.05,  0.05], dtype=float32)

  See `losses.classification` for `label_smoothing`, `losses.preprocess` for
  `mean` and `std`. Batches have leaves [1, n, ...]; 'train_loss' is the mean
  loss before a step. Raises ValueError for no step, a correction, or several
  batches.
  """
  if steps < 1:
    raise ValueError(f'{steps=} must be >= 1.')

  def local(params, batches, key, correction):
    if correction is not None:
      raise ValueError('gram_sgd does not support a correction; pass None.')
    if jax.tree.map(jnp.ndim, params) != {'dense': {'kernel': 2, 'bias': 1}}:
      raise ValueError('gram_sgd requires params of models.Linear.')
    count = batches['y'].shape[0]
    if count != 1:
      raise ValueError(f'gram_sgd requires one full batch, got {count}.')
    batch = jax.tree.map(lambda leaf: leaf[0], batches)
    x = losses.preprocess(batch['x'], mean, std)
    x = x.reshape(x.shape[0], -1)
    kernel, bias = params['dense']['kernel'], params['dense']['bias']
    logits = x @ kernel + bias[None]
    targets = jax.nn.one_hot(batch['y'], bias.size, dtype=x.dtype)
    targets = optax.smooth_labels(targets, label_smoothing)
    mask = losses.row_mask(batch, targets[:, 0])[:, None]
    row_weight = mask / jnp.where(mask.sum() > 0, mask.sum(), 1)
    # Rounding of K would add up over the steps: not in bf16 or tf32.
    gram = client_lr * (jnp.matmul(x, x.T, precision=lax.Precision.HIGHEST) + 1)
    shrink = 1 - client_lr * weight_decay

    def step(logits, _):
      shifted = logits - logits.max(1, keepdims=True)
      odds = jnp.exp(shifted)
      norm = odds.sum(1, keepdims=True)
      p = odds / norm
      after = shrink * logits - gram @ (row_weight * (p - targets))
      return after, (p, norm, jnp.sum(targets * shifted, 1, keepdims=True))

    # Sums over the steps follow the loop, whose cost is that of its operations.
    unroll = min(steps, 32)
    _, (p, norm, fit) = lax.scan(step, logits, length=steps, unroll=unroll)
    powers = shrink ** jnp.arange(steps - 1, -1, -1)
    total = row_weight * (jnp.tensordot(powers, p, 1) - powers.sum() * targets)
    loss = row_weight[None] * (jnp.log(norm) - fit)
    # This is 1 - shrink^steps, without cancellation.
    decayed = client_lr * weight_decay * powers.sum()
    moved = {
      'kernel': decayed * kernel + client_lr * (x.T @ total),
      'bias': decayed * bias + client_lr * total.sum(0),
    }
    return {'dense': moved}, {'train_loss': loss.sum() / steps}

  return local
