"""Local SGD: one client's batches -> its pseudo-gradient."""

from fl_sketch.rounds.algorithm import Local, LossFn
import jax
import jax.numpy as jnp


def sgd(
  loss_fn: LossFn,
  client_lr: jax.Array,
  *,
  local_steps: int | None = None,
  weight_decay: float = 0.0,
) -> Local:
  r"""K steps of SGD; the pseudo-gradient is received minus final parameters.

  :math:`u \leftarrow u - \eta (\nabla f(u; B_k) + \lambda u + c)` from
  :math:`u = w`, and :math:`w - u` at the end; c is the drift correction.

  >>> local = sgd(lambda w, x: 0.5 * jnp.sum((w - x) ** 2), 0.5)
  >>> moved, _ = local(jnp.zeros(1), jnp.ones((2, 1)), None, None)
  >>> moved.tolist()
  [-0.75]

  Args:
    loss_fn: (params, batch) -> f32[].
    client_lr: f32[], step size.
    local_steps: K; None is one step a batch. If K exceeds the number of
      batches, they are used again in the same order: with one batch that holds
      all of a client's samples this is full-batch gradient descent.
    weight_decay: lambda.

  Returns:
    local(params, batches, key, drift) -> (pseudo-gradient, metrics), where
    batches have leaves [steps, batch, ...]. A batch that is a dict whose 'mask'
    is zero throughout is padding: no step is made on it.

  Raises:
    ValueError: local_steps is below one.
  """
  if local_steps is not None and local_steps < 1:
    raise ValueError(f'Expected {local_steps=} >= 1.')

  def local(params, batches, key, drift):
    del key

    def step(theta, batch):
      loss, grad = jax.value_and_grad(loss_fn)(theta, batch)
      if drift is not None:
        grad = jax.tree.map(jnp.add, grad, drift)
      move = lambda p, g: p - client_lr * (g + weight_decay * p)
      after = jax.tree.map(move, theta, grad)
      if not (isinstance(batch, dict) and 'mask' in batch):
        return after, (loss, jnp.ones_like(loss))
      filled = (batch['mask'] > 0).any()
      after = jax.tree.map(lambda p, q: jnp.where(filled, p, q), after, theta)
      return after, (loss, filled.astype(loss.dtype))

    theta, (losses, filled) = _over_batches(step, params, batches, local_steps)
    moved = jax.tree.map(jnp.subtract, params, theta)
    mean = (losses * filled).sum() / jnp.maximum(filled.sum(), 1)
    return moved, {'train_loss': mean}

  return local


def gradient(loss_fn: LossFn, *, weight_decay: float = 0.0) -> Local:
  r"""One gradient of all batches together, in place of the pseudo-gradient.

  :math:`\nabla f(w; B_1 \cup \ldots \cup B_K) + \lambda w`

  >>> local = gradient(lambda w, x: 0.5 * jnp.mean((w[None] - x) ** 2))
  >>> local(jnp.zeros(1), jnp.ones((2, 3, 1)), None, None)[0].tolist()
  [-1.0]

  Args:
    loss_fn: (params, batch) -> f32[], a mean over the batch.
    weight_decay: lambda.

  Returns:
    local(params, batches, key, drift) -> (gradient, metrics), as `sgd`; there
    must be no drift.
  """

  def local(params, batches, key, drift):
    del key, drift
    batch = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batches)
    loss, grad = jax.value_and_grad(loss_fn)(params, batch)
    decay = lambda g, p: g + weight_decay * p
    return jax.tree.map(decay, grad, params), {'train_loss': loss}

  return local


def _over_batches(step, params, batches, steps):
  """Scans `step` over the batches, again and again until `steps` are done."""
  count = jax.tree.leaves(batches)[0].shape[0]
  if steps is None or steps == count:
    return jax.lax.scan(step, params, batches)
  if count == 1:  # avoids slicing inside the loop
    only = jax.tree.map(lambda x: x[0], batches)
    return jax.lax.scan(lambda p, _: step(p, only), params, length=steps)
  take = lambda x, k: jax.lax.dynamic_index_in_dim(x, k, keepdims=False)
  pick = lambda k: jax.tree.map(lambda x: take(x, k % count), batches)
  return jax.lax.scan(lambda p, k: step(p, pick(k)), params, jnp.arange(steps))
