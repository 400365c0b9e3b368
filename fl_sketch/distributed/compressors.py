"""Compressed means and algorithms among workers, by text.

A text is a call, or a sketch and a codec of its tables, joined by a bar:

* ``eden(bits=2)``: any codec.
* ``top_k(k=0.01, error_feedback=True)``: with the residual of each worker.
* ``block_srht(size=0.32) | eden(rotate=False)``: a sketch, its tables encoded.
* ``block_cyclic(size=0.01)``: a sketch alone, whose tables are all-reduced.
* ``power_sgd(rank=4)``: an algorithm of the registry, at a rate of 1.
* ``dense``: no compression.

Options are those of the registries of `codecs`, `sketches` and `algorithms`. A
size, k, cols or num_coordinates may be a fraction between 0 and 1: of the
numbers that are compressed, which are those of the model or, behind a bar, of
the table; of a chunk, where the codec has chunks.
"""

from typing import Any
import zlib

from fl_sketch import algorithms, codecs, sketches
from fl_sketch.codecs.base import VectorCodec
from fl_sketch.distributed.bills import COPIES
from fl_sketch.distributed.engine import Make, Mean, from_algorithm
from fl_sketch.distributed.sharded import by_shard
from fl_sketch.distributed.workers import two_stage_mean
from fl_sketch.rounds import aggregation, axes as axes_lib, error_feedback
from fl_sketch.rounds.algorithm import Algorithm, Hyper, federated
from fl_sketch.rounds.transforms import broadcast, desketch, sketch
from fl_sketch.sketches.base import VectorSketch, dimension
from fl_sketch.utils import fields, registry, sizes
from fl_sketch.utils.types import Tree
import jax
import jax.numpy as jnp
import optax

_REGISTRIES = codecs.REGISTRY, sketches.REGISTRY, algorithms.REGISTRY
_MEANS = 'power_sgd', 'demo', 'ef21'  # algorithms whose update is a mean
_AT_TWO_POINTS = 'marina'  # an algorithm that needs gradients at two points
_work = lambda params, batches, *_: (batches, {})  # batches are gradients
Compressor = str | codecs.Codec | sketches.Sketch  # a text: see the module
_FEEDBACK = {'error_feedback': False, 'residual_decay': 1.0}


def mean_over(
  axis: axes_lib.Axis, compressor: Compressor = 'dense', *,
  both_ways: bool = False, dense_axes: axes_lib.Axis = (),
  specs: Tree = COPIES, seed: int = 0,
) -> Mean:  # fmt: skip
  """Average the workers' gradients through a compressor.

  Each worker's own gradient becomes the same estimate of their mean, for any
  optax transformation behind it. To use inside `jax.shard_map`, on gradients of
  `value_and_grad`.

  >>> tx = mean_over('data', 'top_k(k=0.01, error_feedback=True)')
  >>> int(tx.init({'w': jax.numpy.ones(200)}).step)
  0

  Args:
    axis: mesh axis, or axes, of the workers.
    compressor: a text, see the module, a `codecs.Codec` or a
      `sketches.Sketch`.
    both_ways: whether the mean is encoded as well, so that two payloads leave a
      worker, however many there are; see `workers.two_stage_mean`.
    dense_axes: fast mesh axes, over which plain gradients are first averaged.
    specs: `PartitionSpec` of the parameters, or a tree of them, over the axes
      along which jit shards them. Each device compresses its own shard, of
      which fractions are.
    seed: of the public random draws, the same on all workers.
  """
  axes = axes_lib.names(axis)

  def build(inner):
    # Means over other axes in one chain, and of other parts, draw anew.
    stream = zlib.crc32(repr((axes, inner) if inner else axes).encode())
    return from_algorithm(
      mean(compressor, both_ways=both_ways), axis, seed=seed, stream=stream,
      dense_axes=dense_axes, sharded_axes=inner,
      as_vector=all(map(_is_of_vectors, _calls(compressor))),
    )  # fmt: skip

  made = Mean(*by_shard(build, specs))
  made.axes, made.dense_axes = axes, axes_lib.names(dense_axes)
  made.specs = specs
  return made


def algorithm(
  name: str, axis: axes_lib.Axis, learning_rate: jax.typing.ArrayLike, *,
  seed: int = 0, dense_axes: axes_lib.Axis = (), specs: Tree = COPIES,
  **options: Any,
) -> optax.GradientTransformationExtraArgs:  # fmt: skip
  """Build the optax transformation of a registered algorithm among workers.

  For algorithms whose step is more than a mean: `onebit_adam`, `demo`,
  `preconditioned_sketching` and others of `algorithms.names()`. A worker is a
  client, and its gradient the client's pseudo-gradient.

  Axes, seed and specs are as of `mean_over`. The learning rate of the server is
  a number; the option `schedule` of most algorithms makes it a function of the
  step. Of the algorithm's options `sketch`, `codec` and `downlink_codec` may be
  texts with fractions, as compressors.
  """
  build = lambda inner: from_algorithm(
    registered(name, learning_rate, **options), axis, seed=seed,
    dense_axes=dense_axes, sharded_axes=inner,
  )  # fmt: skip
  return by_shard(build, specs)


def is_algorithm(compressor: Compressor) -> bool:
  """Return whether a compressor is a registered algorithm, such as 'ef21'."""
  return [_registry(call).kind for call in _calls(compressor)] == ['algorithm']


def mean(compressor: Compressor, *, both_ways: bool = False) -> Make:
  """Build the `Make` of an algorithm whose update estimates the mean."""
  calls = _calls(compressor)
  kinds = [_registry(call).kind for call in calls]
  allowed = '', 'codec', 'sketch', 'sketch codec', 'algorithm'
  if ' '.join(kinds) not in allowed:
    raise ValueError(
      f'{compressor=} must be a codec, a sketch, or a sketch | a codec.'
    )
  if both_ways and not ('codec' in kinds and isinstance(calls[-1], dict)):
    raise ValueError(
      f'both_ways requires a codec, as text, in {compressor=}; add one, or '
      'remove both_ways.'
    )
  if kinds == ['algorithm']:
    options = calls[0]
    name = options.pop('kind')
    if name not in _MEANS:
      raise ValueError(
        f'{name} makes a step, not a mean; use distributed.algorithm.'
      )
    # Signs are no mean, though the step of DeMo.
    options = {**({'signs': False} if name == 'demo' else {}), **options}
    return registered(name, -1.0, **options)  # up the mean, not down
  op = calls[0] if kinds[:1] == ['sketch'] else None
  codec = calls[-1] if kinds[-1:] == ['codec'] else None
  return lambda params, size: _mean(params, size, op, codec, both_ways)


def _calls(compressor) -> list[Any]:
  """Return the parts of a compressor: the calls of a text; [] of 'dense'."""
  if not isinstance(compressor, str):
    return [compressor]
  calls = [*map(registry.parse_call, compressor.split('|'))]
  return [] if calls == [{'kind': 'dense'}] else calls


def _mean(params, size, op, codec, both_ways) -> Algorithm:
  feedback: Any = dict(_FEEDBACK)
  if isinstance(codec, dict):
    feedback |= {k: codec[k] for k in _FEEDBACK if k in codec}
    codec = {k: codec[k] for k in codec.keys() - _FEEDBACK}
  if op is not None and feedback != _FEEDBACK:
    raise ValueError(
      'error_feedback is not supported behind a sketch, whose hashes change in '
      'every step; remove it.'
    )
  op = op and _build(op, dimension(params))
  like = (lambda params: params) if op is None else op.zero_table
  before = () if op is None else (sketch(op),)
  after = () if op is None else (desketch(op),)
  if codec is None:
    uplink = aggregation.mean_over_cohort(), broadcast()
  else:
    d = dimension(jax.eval_shape(like, params))
    made = _build(codec, d)
    if both_ways:
      error_feedback.compress(made, **feedback)  # raises what it raises one way
      part = lambda c: _build(codec, c, share=c / d)
      mean = two_stage_mean(part, like, size, **feedback)
    elif op is None:
      before = (error_feedback.compress(made, **feedback),)
      mean = aggregation.mean_over_cohort(decode=error_feedback.decoder(made))
    else:
      mean = aggregation.mean_over_cohort(codec=made)
    uplink = (mean,) if both_ways else (mean, broadcast())
  return federated(_work, *before, *uplink, *after)


def registered(
  name: str, learning_rate: jax.typing.ArrayLike, **options: Any
) -> Make:
  """Build the `Make` of a registered algorithm whose clients hold gradients."""
  if name == _AT_TWO_POINTS:
    raise ValueError(
      f'{name} needs gradients at two points; use fl_sketch.runs.'
    )

  def make(params, size):
    d = dimension(params)
    made: Any = sizes.sized(algorithms.REGISTRY, name, options, d)
    for part in ('sketch', 'codec', 'downlink_codec'):
      if isinstance(text := made.get(part), str):
        made[part] = _build(registry.parse_call(text), d)
      if part == 'sketch' and part in made:
        d = dimension(jax.eval_shape(made[part].zero_table, params))
    if 'population' in algorithms.options(name):
      n = made.setdefault('population', size or 1)
      if size not in (None, n):
        raise ValueError(
          f'population={n} must be the number of workers, {size}; remove it.'
        )
    hp = Hyper(jnp.float32(1), jnp.asarray(learning_rate, jnp.float32))
    return algorithms.make(name, local=lambda _: _work, **made)(hp)

  return make


def _is_of_vectors(part) -> bool:
  """Return whether a codec or sketch flattens the tree to one vector."""
  made = type(part)
  if isinstance(part, dict):
    made = _registry(part).entry(part['kind']).factory
    made = getattr(made, 'func', made)  # of a partial
  return isinstance(made, type) and issubclass(made, VectorCodec | VectorSketch)


def _registry(part):
  if isinstance(part, codecs.Codec | sketches.Sketch):
    return _REGISTRIES[isinstance(part, sketches.Sketch)]
  name = part['kind'] if isinstance(part, dict) else part
  for factories in _REGISTRIES if isinstance(part, dict) else ():
    if name in factories.names():
      return factories
  names = [name for factories in _REGISTRIES for name in factories.names()]
  raise ValueError(
    f'compressor={fields.shown(name)} is not a codec, sketch or algorithm.'
    f'{fields.did_you_mean(name, names)}'
  )


def _build(part, d, share=1.0) -> Any:
  """Build a codec or sketch of d numbers, with a `share` of all counts."""
  if not isinstance(part, dict):
    return part
  factories, name = _registry(part), part['kind']
  module = codecs if factories is codecs.REGISTRY else sketches
  return module.make(**sizes.sized(factories, name, part, d, share))
