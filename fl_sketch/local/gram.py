"""Full-batch softmax regression through the Gram matrix: exact and faster SGD.

The gradient of a linear model is a combination of the samples, so gradient
descent from W_0 stays on W_t = a^t W_0 - lr X^T A_t with A_t f32[n, classes]
(X has a constant column for the bias, and a = 1 - lr weight_decay). The steps
can then be made on the n logits of each class, with K = X X^T::

  G_t = (softmax(Z_t) - Y) / n,   Z_{t+1} = a Z_t - lr K G_t,
  A_steps = sum_t a^(steps - 1 - t) G_t.

For n < features / 2 or so that is less work than products with X twice a step.
"""

from fl_sketch.models import losses
from fl_sketch.rounds.algorithm import Local
import jax
from jax import lax
import jax.numpy as jnp
import optax

# Products this small are faster for a few clients at once, even on a CPU.
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

  The `client_lr` and `weight_decay`, f32[], may be traced. See
  `losses.classification` for `label_smoothing`, `losses.preprocess` for `mean`
  and `std`. Batches are a single one, leaves [1, n, ...], used in every step;
  the key is not used; correction must be None. The pseudo-gradient is start
  minus end, 'train_loss' the mean loss before a step.
  """
  if steps < 1:
    raise ValueError(f'{steps=} is below 1; make at least one step.')
  if not 0 <= label_smoothing < 1:
    raise ValueError(f'{label_smoothing=} is not in [0, 1).')

  def local(params, batches, key, correction):
    if correction is not None:
      raise ValueError('gram_sgd does not support a correction; pass None.')
    if jax.tree.map(jnp.ndim, params) != {'dense': {'kernel': 2, 'bias': 1}}:
      tree = jax.tree.map(jnp.shape, params)
      raise ValueError(f'gram_sgd requires params of a Linear, got {tree}.')
    if (count := batches['y'].shape[0]) != 1:
      raise ValueError(f'gram_sgd needs one full batch, got {count} batches.')
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

    # What the steps have in common is computed once, after them: the loop's
    # cost is in the number of its operations, so it is unrolled too.
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
