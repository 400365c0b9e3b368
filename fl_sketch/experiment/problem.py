"""Loads the data, model and losses of a config, before partitioning."""

from collections.abc import Callable, Mapping
import math
from typing import Any, NamedTuple

from fl_sketch import models
from fl_sketch.data import own_arrays, partitions, store, synthetic, text
from fl_sketch.data.ragged import Partition
from fl_sketch.data.registry import REGISTRY, register
from fl_sketch.data.sources import Pixels
from fl_sketch.experiment.config import Config
from fl_sketch.models import losses, pretrained
from fl_sketch.rounds.algorithm import FromHyper
from fl_sketch.utils import fields
import jax
import jax.numpy as jnp
import numpy as np

EVAL_BATCH, EVAL_TOKENS = 500, 8192  # at most, of a batch
# Fields that a problem of its own makes useless.
_USELESS = 'pretrained', 'loss', 'compute_dtype', 'train_slice', 'test_slice'


class Problem(NamedTuple):
  """A learning problem before it is spread over clients.

  A function that depends on hyperparameters is a `FromHyper`, and an `OfFrozen`
  beside frozen parameters. The loss may take a key; metrics and outputs are of
  the float32 model. `held_out` is which samples each client holds out, and the
  arrays of which they are.
  """

  data: dict[str, np.ndarray]  # for training, leaves [samples, ...]
  test: dict[str, np.ndarray]  # `evaluation_batches`, [batches, batch, ...]
  params: Any  # the model before the first round
  loss_fn: losses.LossFn  # (params, batch) -> f32[], the mean over the batch
  metrics_fn: losses.MetricsFn  # (params, batch) -> sums f32[], with 'count'
  labels: np.ndarray | None  # int[samples], which partitions by labels read
  scale: dict[str, float]  # 'mean' and 'std' of the inputs, for `local.gram`
  partition: Partition | None = None  # of clients, if the data say so
  apply_fn: Callable[..., Any] | None = None  # (params, inputs) -> outputs
  held_out: tuple[Partition, Any] | None = None  # if the data say so
  frozen: Any = None  # parameters that are not trained, as `Hyper.frozen`
  merge: Callable[..., Any] | None = None  # (frozen, params) -> those of all
  model: Any = None  # as of `models.as_model`; None if there is only a loss
  tokenizer: str | None = None  # of texts, see `data.sources.Dataset`
  test_of_clients: bool = False  # whether clients that train hold the test


@register(clients=True, test_of_clients=True)
def quadratics(
  seed: int, population: int, start_scale: fields.Positive = 1.0
) -> Problem:
  """`data.synthetic.quadratics`, one sample a client, and their losses.

  `start_scale` is the distance of the start from the optimum.
  """
  if population > 10**5:  # 5 GB while they are drawn
    raise ValueError(
      f'{population=} exceeds 100000, the most of quadratics; use fewer.'
    )
  problem = synthetic.quadratics(seed, population=population)
  return Problem(
    data=problem.data, test=evaluation_batches(problem.data),
    params={'w': jnp.asarray(problem.start(seed, start_scale))},
    loss_fn=losses.quadratic(), metrics_fn=losses.quadratic_metrics,
    partition=partitions.partition('one_each', population, population, seed),
    labels=None, scale={}, test_of_clients=True,
  )  # fmt: skip


def load(c: Config, data_dir: str | None, draw: bool = True) -> Problem:
  """Loads the problem of a config; see `experiment.build`."""
  given = {'population': c.population, 'seed': c.seed, 'data_dir': data_dir}
  options = c.dataset_options or {}
  dataset = REGISTRY.make(c.dataset, **given, **options)
  if isinstance(dataset, Problem):
    check_unused(c)
    return dataset
  if c.train_slice and dataset.partition is not None:
    raise c.refusal(
      '{train_slice} is not supported by {dataset}, whose clients hold fixed '
      'samples; remove train_slice.'
    )
  held_out = getattr(dataset, 'held_out', None)
  if held_out is not None:  # of a store, whole: clients have their own
    held_out = Partition(None, held_out), dataset.test
  dataset = dataset._replace(
    train=_sliced('train_slice', c.train_slice, dataset.train),
    test=_sliced('test_slice', c.test_slice, dataset.test),
  )
  data, test, classes = dataset.train, dataset.test, dataset.num_classes
  scale, options = _scale(c, dataset), _model_options(c, dataset)
  module = models.make(c.model, classes, **options)
  _check_tokens(c, dataset, module)
  model = models.as_model(module)
  type_of = jax.dtypes.canonicalize_dtype
  one = lambda x: jnp.zeros((1, *x.shape[1:]), type_of(x.dtype))
  inputs = losses.inputs({k: one(x) for k, x in data.items()}, **scale)
  init = lambda: model.init(jax.random.key(c.seed), inputs)
  # To draw them a program is compiled.
  params = init() if draw or c.pretrained else jax.eval_shape(init)
  if c.pretrained is not None:
    params = pretrained.load(c.pretrained, module, params)
  own = REGISTRY.is_own(c.dataset) or models.REGISTRY.is_own(c.model)
  if own or c.loss != 'cross_entropy' or np.ndim(data.get('y')) > 1:
    outputs = jax.eval_shape(model.apply, params, inputs, None)
    every, owners = [data, test], dataset.partition
    if store.is_mapped(data):  # which has checked them, but for their axes
      every = [{k: x[:1] for k, x in part.items()} for part in every]
      owners = None
    check_labels(c.loss, outputs, *every, partition=owners)
  # Evaluation is of the float32 model, whichever way it was trained.
  whole = options | {'dtype': 'float32'}
  made = lambda o: models.make(c.model, classes, **o)
  losses_of = lambda o: _losses(c, made(o), scale)
  return Problem(
    data=data, test=evaluation_batches(test), params=params, scale=scale,
    loss_fn=_of_options(c, options, lambda o: losses_of(o)[0]),
    metrics_fn=_of_options(c, whole, lambda o: losses_of(o)[1]),
    labels=data['y'] if c.loss == 'cross_entropy' else None,
    apply_fn=_of_options(c, whole, lambda o: losses.outputs(made(o), **scale)),
    partition=dataset.partition, held_out=held_out, model=module,
    tokenizer=getattr(dataset, 'tokenizer', None),
    test_of_clients=held_out is not None,
  )  # fmt: skip


def _scale(c: Config, dataset) -> dict[str, float]:
  x = dataset.train.get('x')
  if not c.standardize or x is None or x.dtype != np.uint8:
    return {'mean': 0.0, 'std': 1.0}
  is_store = isinstance(dataset, store.Store)
  return dataset.scale if is_store else Pixels().plus(x).scale


def _losses(c, model, scale):
  loss_fn, metrics_fn = losses.make(model, c.loss, **scale)
  if c.loss == 'cross_entropy':
    smoothing = {'label_smoothing': c.label_smoothing}
    loss_fn = losses.classification(model, **smoothing, **scale)
  return loss_fn, metrics_fn


def _of_options(c, options, build) -> Any:
  """What `build` makes; a `FromHyper` if the model declares hyperparameters."""
  declared = models.REGISTRY.entry(c.model).hyper
  if own := {k: v for k, v in options.items() if k in declared}:
    again = lambda **given: build(options | given)
    return FromHyper(again, own, 'model_options')
  return build(options)


def check_unused(c: Config):
  """Refuses fields of data and model beside a problem, which has its own."""
  given = c.given(_USELESS).items()
  if unused := [f'{{{k}}}' for k, v in given if v != getattr(Config, k)]:
    raise c.refusal(
      f'{", ".join(unused)} have no effect: the problem '
      'has its own data, model and loss; remove them.'
    )


def check_labels(
  kind: str, outputs: Any, *parts: Mapping[str, np.ndarray], partition: Any
):
  """Checks the labels of a built-in loss against the outputs of one sample.

  Other losses read what they like. Of outputs shapes will do; `parts` are the
  arrays of all samples by name, of clients and test; `partition` says who holds
  the first, None if that is not known. Raises ValueError if there are no labels
  'y', or they do not suit the outputs.
  """
  if kind not in losses.OF_LABELS:
    return
  if 'y' not in parts[0]:
    raise ValueError(f"arrays {list(parts[0])} lack labels 'y'; rename some.")
  labels = [arrays['y'] for arrays in parts]
  if not hasattr(outputs, 'shape'):
    shapes = jax.tree.map(jnp.shape, outputs)
    raise ValueError(f'outputs {shapes} of the model are not one array.')
  y, shape, sequences = labels[0], outputs.shape, kind == 'tokens'
  if kind in ('cross_entropy', 'tokens'):
    length, axes = ', length' * sequences, 1 + sequences
    if outputs.ndim != axes + 1:
      raise ValueError(
        f'outputs {shape} of the model must be logits[batch{length}, classes].'
      )
    if y.ndim != axes or not np.issubdtype(y.dtype, np.integer):
      raise ValueError(
        f"labels 'y' are {y.dtype}{y.shape}; pass integers[samples{length}], "
        "or set loss='regression' for numeric targets."
      )
  if kind == 'regression':
    if y.shape[1:] != shape[1:]:
      raise ValueError(
        f"labels 'y' have shape {y.shape[1:]} per sample, outputs of the model "
        f'{shape[1:]}; reshape one of them.'
      )
    return
  top = 1 if kind == 'multilabel' else outputs.shape[-1] - 1
  # Below 0 a token is padding; a NaN is in no range.
  bad = [~((y <= top) & ((y >= 0) | sequences)) for y in labels]
  if any(x.any() for x in bad):
    wrong = next(y[x] for y, x in zip(labels, bad, strict=True) if x.any())[0]
    rows = np.asarray(bad[0].reshape(len(bad[0]), -1).any(1))
    unknown = partition is None and rows.any()
    who = 'the data' if unknown else own_arrays.holders(rows, partition)[0]
    raise ValueError(
      f"{who}: labels 'y' such as {wrong} must be in 0 to {top} with "
      f'loss={kind!r} and outputs {outputs.shape} of the model.'
    )


def _check_tokens(c: Config, dataset, module):
  # Looked up in a table, a number past its end is silently its last row's.
  if c.dataset not in text.NAMES:
    return
  top = max(int(part['x'].max()) for part in (dataset.train, dataset.test))
  size = getattr(module, 'vocab_size', None) or dataset.num_classes
  too_large = f'token {top} exceeds vocab_size={size}; use a larger one.'
  c.refuse((top >= size, too_large))


def _model_options(c: Config, dataset) -> dict[str, Any]:
  options: dict[str, Any] = {'dtype': c.compute_dtype}
  if c.dataset in text.NAMES and c.pretrained is None:  # no more than there is
    sizes = {'max_length': dataset.train['x'].shape[1]}
    if dataset.vocabulary is not None:
      sizes['vocab_size'] = dataset.vocabulary
    takes = models.REGISTRY.options(c.model)
    options |= {name: size for name, size in sizes.items() if name in takes}
  return options | dict(c.model_options or {})


def _sliced(name, bounds, arrays):
  if bounds is None:
    return arrays
  samples = len(next(iter(arrays.values())))
  part = fields.slice_of(bounds)
  if (part.stop or samples) > samples or (part.start or 0) >= samples:
    raise ValueError(f'{name}={bounds!r} exceeds the {samples} samples.')
  return {k: x[part] for k, x in arrays.items()}


def evaluation_size(arrays: dict[str, np.ndarray]) -> int:
  """Samples of a batch of an evaluation: so many, or fewer of many tokens.

  Whole numbers [n, length], wider than a byte, are tokens of a sequence.

  >>> evaluation_size({'x': np.zeros((9, 4096), np.int32)})
  2
  """
  wide = [x for x in arrays.values() if x.dtype.itemsize > 1]
  lengths = [x.shape[1] for x in wide if x.ndim == 2 and x.dtype.kind in 'iu']
  return max(1, min(EVAL_BATCH, EVAL_TOKENS // max(lengths, default=1)))


def evaluation_batches(
  arrays: dict[str, np.ndarray], size: int | None = None
) -> dict[str, np.ndarray]:
  """Leaves [n, ...] -> [batches, size, ...] with a mask.

  A `size` of None is that of `evaluation_size`.

  >>> evaluation_batches({'y': np.zeros(501)})['mask'].sum(1).tolist()
  [500, 1]
  """
  n = len(next(iter(arrays.values())))
  size = min(n, size or evaluation_size(arrays))
  count = math.ceil(n / size)
  pad = lambda x: np.concatenate([x, np.repeat(x[:1], count * size - n, 0)])
  padded = {k: pad(x) for k, x in arrays.items()}
  padded['mask'] = np.arange(count * size) < n
  return {k: x.reshape((count, size, *x.shape[1:])) for k, x in padded.items()}
