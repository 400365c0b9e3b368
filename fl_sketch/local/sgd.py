"""Local steps: one client's batches -> its pseudo-gradient."""

from collections.abc import Callable

from fl_sketch.models import losses as losses_lib
from fl_sketch.rounds import keys as keys_lib
from fl_sketch.rounds.algorithm import Local, LossFn, StatefulLocal
from fl_sketch.utils.types import Key, Tree
import jax
import jax.numpy as jnp
import optax


def sgd(
  loss_fn: LossFn,
  client_lr: jax.Array,
  *,
  local_steps: int | None = None,
  weight_decay: float = 0.0,
  proximal: jax.Array | float | None = None,
  optimizer: optax.GradientTransformation | None = None,
  keep_state: bool = False,
  clip: float | None = None,
) -> Local:
  r"""K steps of SGD; the pseudo-gradient is received minus final parameters.

  :math:`u \leftarrow u - \eta (\nabla f(u; B_k) + \lambda u + c + \mu (u - w))`
  from :math:`u = w`, and :math:`w - u` at the end; c is the drift correction.

  >>> local = sgd(lambda w, x: 0.5 * jnp.sum((w - x) ** 2), 0.5)
  >>> moved, _ = local(jnp.zeros(1), jnp.ones((2, 1)), None, None)
  >>> moved.tolist()
  [-0.75]

  Args:
    loss_fn: (params, batch) -> f32[]. An argument `key`, as for dropout, gets
      another key in every step of every client and round.
    client_lr: eta; has no effect with an optimizer.
    local_steps: K >= 1, over the batches in turn; None: one for each batch.
    weight_decay: lambda.
    proximal: mu, of a proximal term :math:`\mu \|u - w\|^2 / 2` of the loss.
    optimizer: makes the step from the bracket, by its own rate; None: SGD.
    keep_state: return a `StatefulLocal`, which keeps the optimizer's state.
    clip: the largest norm of a gradient, over all arrays; longer ones shrink.

  Batches have leaves [steps, batch, ...]; no step is made on padding, a batch
  that is a dict whose 'mask' is 0.
  """
  if local_steps is not None and local_steps < 1:
    raise ValueError(f'{local_steps=} must be >= 1.')
  slope = _value_and_grad(loss_fn, clip)
  keeps = keep_state and optimizer is not None

  def descend(grad, state, theta):
    if optimizer is None:
      move = lambda p, g: p - client_lr * (g + weight_decay * p)
      return jax.tree.map(move, theta, grad), state
    grad = jax.tree.map(lambda g, p: g + weight_decay * p, grad, theta)
    updates, state = optimizer.update(grad, state, theta)
    return optax.apply_updates(theta, updates), state

  def local(params, batches, key, correction, state=None) -> tuple[Tree, ...]:
    if state is None and optimizer is not None:
      state = optimizer.init(params)
    steps = local_steps or jax.tree.leaves(batches)[0].shape[0]
    turns, batch_of = in_turn(batches, steps)

    def step(carry, inputs):
      (theta, state), (turn, draw) = carry, inputs
      batch = batch_of(turn)
      loss, grad = slope(theta, batch, **draw)
      if correction is not None:
        grad = jax.tree.map(jnp.add, grad, correction)
      if proximal is not None:
        pull = lambda g, p, start: g + proximal * (p - start)
        grad = jax.tree.map(pull, grad, theta, params)
      after = descend(grad, state, theta)
      if (mask := mask_of(batch)) is None:
        return after, (loss, jnp.ones_like(loss))
      filled = (mask > 0).any()
      after = jax.tree.map(lambda p, q: jnp.where(filled, p, q), after, carry)
      return after, (loss, filled.astype(loss.dtype))

    inputs = turns, draws(loss_fn, key, steps)
    (theta, state), (losses, filled) = jax.lax.scan(
      step, (params, state), inputs, length=steps
    )
    moved = jax.tree.map(jnp.subtract, params, theta)
    mean = (losses * filled).sum() / jnp.maximum(filled.sum(), 1)
    result = moved, {'train_loss': mean}
    return (*result, state) if keeps else result

  if optimizer is not None and keep_state:
    return StatefulLocal(optimizer.init, local)
  return local


def mask_of(batch: Tree) -> jax.Array | None:
  """Return which samples are there; None if all are."""
  return batch.get('mask') if isinstance(batch, dict) else None


def steps_made(batches: Tree, local_steps: int | None) -> jax.Array:
  """Count the steps that `sgd` makes on a client's batches, f32[].

  >>> batches = {'mask': jnp.array([[1, 1], [1, 0], [0, 0]])}
  >>> float(steps_made(batches, None)), float(steps_made(batches, 5))
  (2.0, 4.0)
  """
  count = jax.tree.leaves(batches)[0].shape[0]
  steps = jnp.arange(count if local_steps is None else local_steps)
  if (mask := mask_of(batches)) is None:
    return jnp.float32(steps.size)
  filled = (mask > 0).reshape(count, -1).any(1)
  return filled[steps % count].sum().astype(jnp.float32)


def gradient(
  loss_fn: LossFn, *, weight_decay: float = 0.0, clip: float | None = None
) -> Local:
  r"""One gradient of all batches together, in place of the pseudo-gradient.

  :math:`\nabla f(w; B_1 \cup \ldots \cup B_K) + \lambda w`. The loss is a mean
  over the batch; arguments are as of `sgd`. A correction has no effect.

  >>> local = gradient(lambda w, x: 0.5 * jnp.mean((w[None] - x) ** 2))
  >>> local(jnp.zeros(1), jnp.ones((2, 3, 1)), None, None)[0].tolist()
  [-1.0]
  """

  def local(params, batches, key, correction):
    batch = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batches)
    draw = jax.tree.map(lambda x: x[0], draws(loss_fn, key, steps=1))
    loss, grad = _value_and_grad(loss_fn, clip)(params, batch, **draw)
    decay = lambda g, p: g + weight_decay * p
    return jax.tree.map(decay, grad, params), {'train_loss': loss}

  return local


def _value_and_grad(loss_fn, clip):
  slope = jax.value_and_grad(loss_fn)
  if clip is None:
    return slope
  scale = optax.clip_by_global_norm(clip)

  def clipped(*args, **draw):
    loss, grad = slope(*args, **draw)
    return loss, scale.update(grad, optax.EmptyState())[0]

  return clipped


def draws(loss_fn: LossFn, key: Key | None, steps: int) -> dict[str, Key]:
  """Return the keys of a loss's draws in each step; {} if it takes none."""
  if key is None or not losses_lib.takes_key(loss_fn):
    return {}
  return {'key': jax.vmap(keys_lib.step_key, (None, 0))(key, jnp.arange(steps))}


def in_turn(
  batches: Tree, steps: int
) -> tuple[Tree, Callable[[jax.Array], Tree]]:
  """Return inputs of a scan over `steps`, and input -> batch, cyclically."""
  count = jax.tree.leaves(batches)[0].shape[0]
  if steps == count:
    return batches, lambda batch: batch
  if count == 1:  # avoids slicing inside the loop
    only = jax.tree.map(lambda x: x[0], batches)
    return None, lambda _: only
  at = lambda x, k: jax.lax.dynamic_index_in_dim(x, k % count, keepdims=False)
  batch_of = lambda k: jax.tree.map(lambda x: at(x, k), batches)
  return jnp.arange(steps), batch_of
