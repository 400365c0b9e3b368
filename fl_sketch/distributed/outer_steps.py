"""Outer steps: workers train by themselves and exchange what they moved."""

import functools
from typing import Any, NamedTuple

from fl_sketch.distributed import workers
from fl_sketch.distributed.engine import Mean, PerWorker, is_worker
from fl_sketch.distributed.sharded import axes_of, join, of_leaves, split
from fl_sketch.rounds import axes as axes_lib
from fl_sketch.utils import checks
from fl_sketch.utils.types import Params, Tree
import jax
import jax.numpy as jnp
import optax

# The outer optimizer of DiLoCo.
NESTEROV = optax.sgd(0.7, momentum=0.9, nesterov=True)


class OuterState(NamedTuple):
  """State of `outer`; the anchor is the parameters of the loop."""

  step: jax.Array  # int32[], steps done, the same on all workers
  inner: PerWorker  # the state of a worker's own optimizer
  moved: PerWorker  # anchor - the worker's parameters
  mean: list[Tree]  # by fragment: states of the mean
  late: list[Tree]  # estimates that wait to be applied; [] without a delay
  outer: list[Tree]  # and of the outer optimizer


def outer(
  inner: optax.GradientTransformation,
  outer: optax.GradientTransformation | None,
  mean: Any, *, every: int, fragments: int = 1, delay: int = 0,
  blend: float = 0.0,
) -> optax.GradientTransformationExtraArgs:  # fmt: skip
  r"""Build DiLoCo: H steps of each worker alone, a mean, and an outer step.

  The parameters x of the loop are the anchor, equal on all workers to the last
  bit; worker i is at :math:`x_i = x - m_i`, see `worker_params`. Its gradient
  :math:`g_i` there moves it alone, :math:`m_i \leftarrow m_i -
  \mathrm{inner}(g_i)`. After every H steps :math:`x \leftarrow x +
  \mathrm{outer}(\mathrm{mean}_i\, m_i)`, and :math:`m_i \leftarrow 0`. In all
  other steps the updates are 0, and nothing is sent.

  Streaming: the leaves are dealt to F fragments of about equal size, leaves of
  one size in turn. Fragment f is exchanged at the steps of :math:`\lfloor f H /
  F \rfloor` modulo H, with states of its own, so that a step sends the bytes of
  a fragment at most.

  Delay: what was sent at step t is applied at step :math:`t + \tau`. Workers
  train in between, and a worker keeps a share of where it is by then:
  :math:`x_i \leftarrow \alpha x_i + (1 - \alpha) x` with the new x, which is
  :math:`m_i \leftarrow \alpha (m_i + \mathrm{outer}(\cdot))`.

  Args:
    inner: a worker's optimizer: AdamW, or ``optax.contrib.muon`` (MuLoCo).
    outer: the optimizer of the anchor; None is SGD with rate 0.7 and Nesterov
      momentum 0.9.
    mean: of `mean_over`, with any compressor: :math:`m_i` -> an estimate of
      their mean. The devices of its ``dense_axes`` are one worker: they average
      their gradients in every step.
    every: H.
    fragments: F, at most H.
    delay: tau, less than H. The numbers are those of an exchange beside the
      training; XLA waits for its collectives on a CPU.
    blend: alpha, in [0, 1).

  >>> from fl_sketch.distributed import mean_over
  >>> mean = mean_over('data', 'eden(bits=2)')
  >>> tx = outer(optax.adamw(3e-4), None, mean, every=16, fragments=4)

  Source: Douillard et al., arXiv:2311.08105, Algorithm 1; Douillard et al.,
  Streaming DiLoCo, arXiv:2501.18512; Therien et al., MuLoCo, arXiv:2505.23725.
  """
  check_steps(every, delay, blend)
  checks.count('fragments', fragments)
  if fragments > every:
    raise ValueError(f'{fragments=} exceeds {every=}; use fewer fragments.')
  if not isinstance(mean, Mean):
    raise ValueError(
      'mean must be of distributed.mean_over; chain what follows it into outer.'
    )
  axes, dense = mean.axes, mean.dense_axes
  if outer is None:
    outer = NESTEROV
  specs = mean.specs
  inner, outer, mean = map(optax.with_extra_args_support, (inner, outer, mean))
  own = lambda tree: _mark(tree, axes)
  split_up = lambda tree, params: _split(tree, params, fragments, specs)

  def init(params) -> Any:
    parts = split_up(params, params)
    return OuterState(
      step=jnp.int32(0), inner=own(inner.init(params)),
      moved=own(optax.tree.zeros_like(params)),
      mean=[mean.init(part) for part in parts],
      late=optax.tree.zeros_like(parts) if delay else [],
      outer=[outer.init(part) for part in parts],
    )  # fmt: skip

  def send(f, moved, params, means, late):
    """Average what fragment f has moved by."""
    part, anchor = (split_up(x, params)[f] for x in (moved, params))
    part = axes_lib.local(part, dense)  # the mean takes them over these too
    estimate, means[f] = mean.update(part, means[f], anchor)
    late[f] = optax.tree.cast_like(estimate, anchor)
    return means, late

  def apply(f, moved, params, late, outers):
    """Move fragment f of the anchor; the updates of other leaves are 0."""
    parts = split_up(optax.tree.zeros_like(params), params)
    own_parts = split_up(moved, params)
    anchor = split_up(params, params)[f]
    updates, outers[f] = outer.update(late[f], outers[f], anchor)
    parts[f] = optax.tree.cast_like(updates, anchor)
    share = lambda m, u: (blend * (m + u)).astype(m.dtype)
    keep = share if blend else lambda m, u: jnp.zeros_like(m)  # even of NaN
    own_parts[f] = jax.tree.map(keep, own_parts[f], parts[f])
    return join(parts, params), join(own_parts, params), outers

  # The step is the same on all workers: all take the same branch.
  due = {f * every // fragments: f + 1 for f in range(fragments)}
  due = jnp.array([due.get(i, 0) for i in range(every)])
  each = lambda fn: [functools.partial(fn, f) for f in range(fragments)]
  sends = [lambda _, params, *states: states, *each(send)]

  def wait(moved, params, late, outers):
    return optax.tree.zeros_like(params), moved, outers

  def update(updates, state, params=None, **extra) -> Any:
    if params is None:
      raise ValueError('outer requires params: update(grads, state, params).')
    workers.check_local((*axes, *dense), updates)
    grads = jax.lax.pmean(updates, dense)
    place = worker_params(params, state)
    steps, new = inner.update(grads, _read(state.inner), place, **extra)
    move = lambda m, u: (m - u).astype(m.dtype)
    moved = jax.tree.map(move, _read(state.moved), steps)
    step = state.step + 1
    late = state.late or optax.tree.zeros_like(split_up(params, params))
    args = moved, params, state.mean, late
    means, late = jax.lax.switch(due[step % every], sends, *args)
    sent = step - delay  # when what is applied now was sent; 0 is no step
    branch = jnp.where(sent > 0, due[sent % every], 0)
    args = moved, params, late, state.outer
    updates, moved, outers = jax.lax.switch(branch, [wait, *each(apply)], *args)
    late = late if delay else []
    state = OuterState(step, own(new), own(moved), means, late, outers)
    return updates, state

  return optax.GradientTransformationExtraArgs(init, update)


def check_steps(every: int, delay: int, blend: float):
  """Raise ValueError unless these are options of `outer`."""
  checks.count('every', every)
  if not 0 <= delay < every or not 0 <= blend < 1:
    raise ValueError(
      f'Expected delay in 0...{every - 1} and blend in [0, 1), got {delay=}, '
      f'{blend=}.'
    )


def per_worker(
  tx: optax.GradientTransformation, axis: str | tuple[str, ...]
) -> optax.GradientTransformationExtraArgs:
  """Keep a state of a transformation for each worker of an axis, or several.

  For what stands before `mean_over`, such as momentum of a worker's gradients,
  and for `optax.MultiSteps` around it: their states differ by worker.
  """
  tx = optax.with_extra_args_support(tx)
  names = axes_lib.names(axis)
  init: Any = lambda params: _mark(tx.init(params), names)

  def update(updates, state, params=None, **extra) -> Any:
    updates, new = tx.update(updates, _read(state), params, **extra)
    return updates, _mark(new, names)

  return optax.GradientTransformationExtraArgs(init, update)


def worker_params(params: Params, state: Tree) -> Params:
  """Return the parameters at which a worker of `outer` takes its gradient.

  Inside `shard_map`, in a loop of your own; `train_step` does it by itself::

      place = worker_params(params, state)
      value, grads = value_and_grad(loss, 'data')(place, batch)
      updates, state = tx.update(grads, state, params)
      params = optax.apply_updates(params, updates)
  """
  is_outer = lambda node: isinstance(node, OuterState)
  for node in filter(is_outer, jax.tree.leaves(state, is_leaf=is_outer)):
    moved = _read(node.moved)
    if jax.tree.map(jnp.shape, moved) != jax.tree.map(jnp.shape, params):
      raise ValueError(
        'outer must not stand in per_worker; put that around its inner part.'
      )
    params = jax.tree.map(jnp.subtract, params, moved)
  return params


def _mark(tree, axes) -> PerWorker:
  return PerWorker(jax.tree.map(lambda x: jnp.asarray(x)[None], tree), axes)


def _read(node):
  if not is_worker(node):
    return node
  return jax.tree.map(lambda x: x[0], node.value)


def _split(tree, params, fragments, specs) -> list[Tree]:
  """Return trees with a fragment's leaves each, None in place of others."""
  # Of whole arrays, also where a device sees its parts: the bill does.
  times = [axes_lib.size_of(axes_of(x)) or 1 for x in of_leaves(specs, params)]
  pairs = zip(jax.tree.leaves(params), times, strict=True)
  sizes = [x.size * n for x, n in pairs]
  if len(sizes) < fragments:
    raise ValueError(
      f'{fragments=} exceeds the {len(sizes)} arrays of the model; use fewer.'
    )
  # The next largest leaf to the smallest fragment: those of one size go round.
  load, of = [0] * fragments, {}
  for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
    of[i] = load.index(min(load))
    load[of[i]] += max(sizes[i], 1)
  parts = split(tree, [of[i] for i in range(len(sizes))])
  return [parts[f] for f in range(fragments)]
