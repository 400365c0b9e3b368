"""Reconstruct inputs from the message of a client."""

from collections.abc import Callable
import functools
from typing import NamedTuple

from fl_sketch import local as local_work, sketches
from fl_sketch.attacks import objectives
from fl_sketch.rounds.algorithm import Local, LossFn
from fl_sketch.utils import checks, fields
from fl_sketch.utils.types import Batch, Key, Params, Tree
import jax
import jax.numpy as jnp
import optax


class Reconstruction(NamedTuple):
  """The result of an attack."""

  x: jax.Array  # f32[batch, ...], the inputs of the lowest objective
  labels: jax.Array  # of x; as passed, or int32[batch]
  objective: jax.Array  # f32[], at x
  objectives: jax.Array  # f32[tries], of every restart with every candidate
  trace: jax.Array  # f32[tries, steps], the objective before every step


def view(
  loss_fn: LossFn,
  *,
  local: Local | None = None,
  sketch: sketches.Sketch | None = None,
) -> Callable[[Params, Batch, Key | None], Tree]:
  """Build (params, batch, key of the sketch) -> the message of a client.

  The batch has leaves [samples, ...]. `local` is by default
  `local.gradient(loss_fn)`; derivatives go through all steps of
  `local.sgd(loss_fn, client_lr, local_steps=K)`. `sketch` None sends the update
  itself.

  >>> message_of = view(lambda w, x: 0.5 * jnp.sum((w[None] - x) ** 2))
  >>> message_of(jnp.zeros(2), jnp.ones((1, 2)), None).tolist()
  [-1.0, -1.0]
  """
  work = local_work.gradient(loss_fn) if local is None else local

  def message_of(params, batch, key):
    batches = jax.tree.map(lambda x: x[None], batch)
    update, _ = work(params, batches, None, None)
    return update if sketch is None else sketch.sketch(key, update)

  return message_of


def reconstruct(
  loss_fn: LossFn, params: Params, observed: Tree,
  like: jax.Array | jax.ShapeDtypeStruct, key: Key, *,
  labels: jax.Array | None = None, candidates: jax.Array | None = None,
  num_classes: int | None = None,
  sketch: sketches.Sketch | None = None, sketch_key: Key | None = None,
  pooled: bool = False, local: Local | None = None,
  redo: Callable[[Tree, Tree], Tree] | None = None,
  objective: str = 'l2', tv: float = 0.0,
  optimizer: str = 'lbfgs', learning_rate: float | None = None,
  steps: int = 300, restarts: int = 1, start_scale: float = 1.0,
  box: tuple[float, float] | None = None,
) -> Reconstruction:  # fmt: skip
  r"""Minimise :math:`D(R \nabla F(w, x), y) + \lambda\,\mathrm{TV}(x)` over x.

  The attacker knows the model w, the sketch R, and how clients work. The
  function is pure: jit it, and vmap it over examples.

  >>> loss_fn = lambda w, batch: 0.5 * jnp.sum((w[None] - batch['x']) ** 2)
  >>> update = jnp.array([-3.0, 4.0])  # the gradient at w = 0 of one sample
  >>> like, y = jax.ShapeDtypeStruct((1, 2), jnp.float32), jnp.zeros(1)
  >>> key = jax.random.key(0)
  >>> guess = reconstruct(loss_fn, jnp.zeros(2), update, like, key, labels=y)
  >>> bool(jnp.allclose(guess.x, -update[None], rtol=1e-5))
  True

  Args:
    loss_fn: (params, {'x': inputs, 'y': labels}) -> f32[].
    params: w, the model that the client received.
    observed: y: a gradient, an update, or a table of ``sketch``.
    like: shape and float dtype of the inputs, [batch, ...].
    key: key[] of the starts.
    labels: known labels, [batch, ...].
    candidates: labels to try, [candidates, batch, ...].
    num_classes: optimise labels, as a softmax over so many classes (DLG).
    sketch: R; None is the identity.
    sketch_key: key[] of the sketch in that round.
    pooled: attack several rounds of the same inputs: ``params``, ``observed``
      and ``sketch_key`` have a leading axis over rounds.
    local: as of `view`.
    redo: (message, observed) -> message: the part of a defence that the
      attacker applies to its guesses, see `defences`.
    objective: D: 'l2', relative, or 'cosine'.
    tv: lambda, the weight of the total variation of images.
    optimizer: name of the search, of `objectives.SEARCHES`.
    learning_rate: of the search; None is its default.
    steps: of the search.
    restarts: number of starts.
    start_scale: standard deviation of the normal starts.
    box: least and largest value of inputs, to which steps are projected.

  Returns the `Reconstruction` of the try with the lowest objective. If that is
  not finite, the attack failed and x is a start.

  Raises ValueError unless exactly one of labels, candidates and num_classes is
  set, and ``observed`` has the shapes of a message.

  Source: Song, Wang, Yu and Zhang, arXiv:2210.08371, section 7; Zhu et al.,
  arXiv:1906.08935 (``num_classes``); Geiping et al., arXiv:2003.14053
  (``objective='cosine'``, ``tv``, ``optimizer='signed_adam'``, ``local``).
  """
  known = [x for x in (labels, candidates, num_classes) if x is not None]
  if len(known) != 1:
    raise ValueError(
      f'Set one of labels, candidates and num_classes, not {len(known)}.'
    )
  if (sketch is None) != (sketch_key is None):
    raise ValueError('Set sketch and sketch_key together, or neither.')
  checks.choice('objective', objective, tuple(objectives.OBJECTIVES))
  checks.choice('optimizer', optimizer, tuple(objectives.SEARCHES))
  fields.check_option('steps', steps, fields.Count)
  fields.check_option('restarts', restarts, fields.Count)
  message_of = view(loss_fn, local=local, sketch=sketch)
  distance = objectives.OBJECTIVES[objective]

  def mismatch(batch, params, observed, sketch_key):
    message = message_of(params, batch, sketch_key)
    expected, actual = (jax.tree.map(jnp.shape, m) for m in (message, observed))
    if expected != actual:
      raise ValueError(
        f'observed has the shapes {actual}, and messages have {expected}.'
      )
    return distance(redo(message, observed) if redo else message, observed)

  def value_fn(unknown, fixed_labels):
    x = unknown['x']
    y = jax.nn.softmax(unknown['y']) if 'y' in unknown else fixed_labels
    one_round = functools.partial(mismatch, {'x': x, 'y': y})
    over_rounds = jax.vmap(one_round) if pooled else one_round
    value = over_rounds(params, observed, sketch_key).mean()
    return value + tv * objectives.total_variation(x) if tv else value

  options = {} if learning_rate is None else {'learning_rate': learning_rate}
  search = objectives.SEARCHES[optimizer](steps, **options)
  if candidates is None:  # one choice, which optimised labels ignore
    candidates = jnp.zeros((1, 1)) if labels is None else labels[None]
  tries = jnp.repeat(candidates, restarts, axis=0)

  def attempt(key, fixed_labels):
    unknown = _start(key, like, num_classes, start_scale)
    fn = lambda unknown: value_fn(unknown, fixed_labels)
    return _minimise(fn, unknown, search, steps, box)

  starts = jax.random.split(key, len(tries)), tries
  unknowns, values, trace = jax.lax.map(
    lambda args: attempt(*args), starts, batch_size=lanes_of(len(tries))
  )
  i = jnp.argmin(jnp.where(jnp.isfinite(values), values, jnp.inf))
  y = jnp.argmax(unknowns['y'][i], -1) if 'y' in unknowns else tries[i]
  return Reconstruction(unknowns['x'][i], y, values[i], values, trace)


def lanes_of(tries: int) -> int | None:
  """Return the batch size of `jax.lax.map`; None runs tries one by one."""
  return None if jax.default_backend() == 'cpu' else tries


def _minimise(value_fn, unknown, search, steps, box):
  """Return the best unknowns, their value, and the value at each step."""
  clip = lambda unknown: {'x': jnp.clip(unknown['x'], *box)} if box else {}
  inside = lambda unknown: unknown | clip(unknown)

  def better(unknown, value, best, least):
    best = optax.tree.where(value < least, unknown, best)
    return best, jnp.fmin(value, least)

  def step(carry, _):
    unknown, state, *best = carry
    value, grad = jax.value_and_grad(value_fn)(unknown)
    best = better(unknown, value, *best)
    updates, state = search.update(
      grad, state, unknown, value=value, grad=grad, value_fn=value_fn
    )
    return (inside(optax.apply_updates(unknown, updates)), state, *best), value

  unknown = inside(unknown)
  start = unknown, search.init(unknown), unknown, jnp.inf
  (last, _, *best), trace = jax.lax.scan(step, start, length=steps)
  return *better(last, value_fn(last), *best), trace


def _start(key, like, num_classes, scale):
  x_key, y_key = jax.random.split(key)
  unknown = {'x': scale * jax.random.normal(x_key, like.shape, like.dtype)}
  if num_classes is not None:
    shape = like.shape[0], num_classes
    unknown['y'] = jax.random.normal(y_key, shape, like.dtype)
  return unknown


def dense_input(kernel_grad: jax.Array, bias_grad: jax.Array) -> jax.Array:
  r"""Return a dense layer's input, from the gradient of one sample.

  :math:`x = \partial_{W_i} L / \partial_{b_i} L`, at the output i with the
  largest bias gradient. Gradients are f32[inputs, outputs] and f32[outputs].
  Geiping et al., arXiv:2003.14053, Proposition 3.1.
  """
  i = jnp.argmax(jnp.abs(bias_grad))
  return kernel_grad[:, i] / bias_grad[i]


def last_layer_label(bias_grad: jax.Array) -> jax.Array:
  r"""Return one sample's label, from the logits' bias gradient f32[classes].

  :math:`\partial_b L = p - e_y` with softmax cross-entropy: its one negative
  number is at the label y. Zhao, Mopuri and Bilen, iDLG, arXiv:2001.02610.
  """
  return jnp.argmin(bias_grad).astype(jnp.int32)
