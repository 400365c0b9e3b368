"""Load the data, model and losses of a config, before partitioning."""

from collections.abc import Callable, Mapping
import functools
import math
from typing import Any, NamedTuple

from fl_sketch import models
from fl_sketch.data import (
  REGISTRY,
  partitions,
  register,
  store,
  synthetic,
  text,
)
from fl_sketch.data.partitions import Partition
from fl_sketch.data.sources import Arrays, Dataset, Pixels
from fl_sketch.models import lora, loss_checks, losses, pretrained
from fl_sketch.rounds.algorithm import FromHyper, OfFrozen, with_hyper
from fl_sketch.runs.config import Config
from fl_sketch.utils import fields
from fl_sketch.utils.types import Params
import jax
import jax.numpy as jnp
import numpy as np

_ADAPTERS = 0x10FA  # folded into the key of the first parameters
EVAL_BATCH, EVAL_TOKENS = 500, 8192  # the most in a batch of an evaluation
Data = Dataset | store.Store
# Fields that have no effect beside a `Problem`.
_USELESS = 'pretrained', 'loss', 'compute_dtype', 'train_slice', 'test_slice'


class Problem(NamedTuple):
  """A learning problem before it is spread over clients.

  The loss may take a key; metrics and outputs are of the float32 model.
  """

  data: dict[str, np.ndarray]  # for training, leaves [samples, ...]
  test: dict[str, np.ndarray]  # `evaluation_batches`, [batches, batch, ...]
  params: Params  # before the first round
  loss_fn: losses.LossFn  # (params, batch) -> f32[], the mean over the batch
  metrics_fn: losses.MetricsFn  # (params, batch) -> sums f32[], with 'count'
  labels: np.ndarray | None  # int[samples], which partitions by labels read
  scale: dict[str, float]  # 'mean' and 'std' of the inputs, for `local.gram`
  partition: Partition | None = None  # of clients, if the data say so
  apply_fn: Callable[..., Any] | None = None  # (params, inputs) -> outputs
  held_out: tuple[Partition, dict[str, np.ndarray]] | None = None  # likewise
  frozen: Params = None  # not trained, as `Hyper.frozen`
  merge: Callable[..., Any] | None = None  # (frozen, params) -> all params
  model: Any = None  # as of `models.as_model`; None if there is only a loss
  tokenizer: str | None = None  # of texts, see `data.sources.Dataset`
  test_of_clients: bool = False  # whether clients that train hold the test

  def __repr__(self) -> str:
    data = {name: f'{x.dtype}{[*x.shape]}' for name, x in self.data.items()}
    clients = self.partition and self.partition.population
    parameters = models.num_params(self.params)
    return f'Problem({clients=}, {data=}, {parameters=})'


@register(clients=True, test_of_clients=True)
def quadratics(
  seed: int, population: int, start_scale: fields.Positive = 1.0
) -> Problem:
  """Return `data.synthetic.quadratics`, a sample a client, and their losses."""
  problem = synthetic.quadratics(seed, population=population)
  loss_fn, metrics_fn = losses.quadratic()
  return Problem(
    data=problem.data, test=evaluation_batches(problem.data),
    params={'w': jnp.asarray(problem.start(seed, start_scale))},
    loss_fn=loss_fn, metrics_fn=metrics_fn,
    partition=partitions.partition('one_each', population, population, seed),
    labels=None, scale={}, test_of_clients=True,
  )  # fmt: skip


def load(config: Config, data_dir: str | None, draw: bool = True) -> Problem:
  """Load the problem of a config; see `runs.build`."""
  options = dict(config.dataset_options or {})
  others = {**options, **(config.model_options or {})}
  has_words = others.keys() & {'tokenizer', 'letters', 'vocab_size'}
  if config.dataset in text.NAMES and config.pretrained and not has_words:
    options.pop('tokens', None)  # the file says which tokens
    options['tokenizer'] = config.pretrained
  dataset = REGISTRY.make(
    config.dataset,
    population=config.population,
    seed=config.seed,
    data_dir=data_dir,
    **options,
  )
  if isinstance(dataset, Problem):
    check_unused(config)
    return dataset
  if config.train_slice and dataset.partition is not None:
    raise config.refusal('{train_slice} does not suit {dataset}; remove it.')
  held_out = None
  if isinstance(dataset, store.Store) and dataset.held_out is not None:
    held_out = Partition(None, dataset.held_out), dataset.test
  data = _sliced('train_slice', config.train_slice, dataset.train)
  test = _sliced('test_slice', config.test_slice, dataset.test)
  dataset = dataset._replace(train=data, test=test)
  scale, options = _scale(config, dataset), _model_options(config, dataset)

  def module_of(options: Mapping[str, Any]) -> Any:
    return models.make(config.model, dataset.num_classes, **options)

  def loss_of(options: Mapping[str, Any]) -> losses.LossFn:
    if config.loss != 'cross_entropy':
      return losses.make(module_of(options), config.loss, **scale)[0]
    smoothed = scale | {'label_smoothing': config.label_smoothing}
    return losses.classification(module_of(options), **smoothed)

  def metrics_of(options: Mapping[str, Any]) -> losses.MetricsFn:
    return losses.make(module_of(options), config.loss, **scale)[1]

  module = module_of(options)
  params = _first_params(config, module, dataset, scale, draw)
  # Evaluation is of the float32 model, whichever way it was trained.
  whole = options | {'dtype': 'float32'}
  apply_of = lambda options: losses.outputs(module_of(options), **scale)
  return Problem(
    data=data, test=evaluation_batches(test), params=params, scale=scale,
    loss_fn=_of_options(config, options, loss_of),
    metrics_fn=_of_options(config, whole, metrics_of),
    labels=data.get('y') if config.loss == 'cross_entropy' else None,
    apply_fn=_of_options(config, whole, apply_of),
    partition=dataset.partition, held_out=held_out, model=module,
    tokenizer=dataset.tokenizer, test_of_clients=held_out is not None,
  )  # fmt: skip


def _first_params(config: Config, module, dataset, scale, draw) -> Params:
  data, test = dataset.train, dataset.test
  if config.dataset in text.NAMES:
    # A table of words gives its last row for every larger token.
    top = max(int(part['x'].max()) for part in (data, test))
    size = getattr(module, 'vocab_size', None) or dataset.num_classes
    if size is not None and top >= size:
      raise ValueError(
        f'token {top} exceeds vocab_size={size}; use a larger one.'
      )
  model, in_jax = models.as_model(module), jax.dtypes.canonicalize_dtype
  one = {
    k: jnp.zeros((1, *x.shape[1:]), in_jax(x.dtype)) for k, x in data.items()
  }
  inputs = losses.inputs(one, **scale)
  init = lambda: model.init(jax.random.key(config.seed), inputs)
  is_drawn = draw or config.pretrained is not None
  params = init() if is_drawn else jax.eval_shape(init)
  if config.pretrained is not None:
    params = pretrained.load(config.pretrained, module, params)
  y = data.get('y')
  usual = config.loss == 'cross_entropy' and (y is None or y.ndim == 1)
  usual &= config.model not in models.OF_TOKENS
  is_own = models.REGISTRY.is_own(config.model)
  if is_own or REGISTRY.is_own(config.dataset) or not usual:
    outputs = jax.eval_shape(model.apply, params, inputs, None)
    parts = [data, test]
    if store.is_mapped(data):  # checked when written, except for their axes
      parts = [{k: x[:64] for k, x in part.items()} for part in parts]
    loss_checks.check(config.loss, outputs, *parts)
  return params


def adapted(config: Config, whole: Problem) -> Problem:
  """Return the problem of training adapters beside `Hyper.frozen`."""
  key = jax.random.fold_in(jax.random.key(config.seed), _ADAPTERS)
  parts = lora.make(**config.lora or {}, params=whole.params, key=key)
  factored = lambda fn: lora.factored(fn, parts.scale)
  merge = lambda params: lora.merge(params, parts.scale)

  def merged(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def on_merged(params, *args, **kwargs):
      return fn(merge(params), *args, **kwargs)

    return on_merged

  def of_adapters(part: Any, adapt: Callable[..., Any]) -> OfFrozen:
    return OfFrozen(
      lambda hp: lora.beside(adapt(with_hyper(part, hp)), hp.frozen)
    )

  apply_fn = whole.apply_fn
  return whole._replace(
    params=parts.trainable, frozen=parts.frozen,
    merge=lambda frozen, params: merge(lora.join(frozen, params)),
    loss_fn=of_adapters(whole.loss_fn, factored),
    metrics_fn=of_adapters(whole.metrics_fn, merged),
    apply_fn=None if apply_fn is None else of_adapters(apply_fn, merged),
  )  # fmt: skip


def _scale(config: Config, dataset: Data) -> dict[str, float]:
  x = dataset.train.get('x')
  if not config.standardize or x is None or x.dtype != np.uint8:
    return {'mean': 0.0, 'std': 1.0}
  if isinstance(dataset, store.Store):
    return dataset.scale
  return Pixels().plus(x).scale


def _of_options(config: Config, options: dict[str, Any], build) -> Any:
  """Return `build(options)`; a `FromHyper` if the model has hyperparameters."""
  declared = models.REGISTRY.entry(config.model).hyper
  hyper = {k: v for k, v in options.items() if k in declared}
  if not hyper:
    return build(options)
  rebuild = lambda **values: build(options | values)
  return FromHyper(rebuild, hyper, 'model_options')


def check_unused(config: Config):
  """Refuse fields of data and model beside a problem, which has its own."""
  changed = [k for k in _USELESS if getattr(config, k) != getattr(Config, k)]
  if unused := [f'{{{k}}}' for k in changed]:
    raise config.refusal(
      f'{", ".join(unused)} have no effect with your own problem; remove them.'
    )


def _model_options(config: Config, dataset: Data) -> dict[str, Any]:
  options: dict[str, Any] = {'dtype': config.compute_dtype}
  if config.dataset in text.NAMES and config.pretrained is None:
    sizes = {'max_length': dataset.train['x'].shape[1]}
    if isinstance(dataset, Dataset) and dataset.vocabulary is not None:
      sizes['vocab_size'] = dataset.vocabulary
    takes = models.REGISTRY.options(config.model)
    options |= {name: size for name, size in sizes.items() if name in takes}
  return options | dict(config.model_options or {})


def _sliced(name: str, bounds: str | None, arrays: Arrays) -> Arrays:
  if bounds is None:
    return arrays
  samples = len(next(iter(arrays.values())))
  part = fields.slice_of(bounds)
  if (part.stop or samples) > samples or (part.start or 0) >= samples:
    raise ValueError(f'{name}={bounds!r} exceeds the {samples} samples.')
  return {k: x[part] for k, x in arrays.items()}


def evaluation_size(arrays: Arrays) -> int:
  """Return the samples of a batch of an evaluation: fewer of long sequences.

  Integers [n, length], wider than a byte, are tokens of a sequence.

  >>> evaluation_size({'x': np.zeros((9, 4096), np.int32)})
  2
  """
  wide = [x for x in arrays.values() if x.dtype.itemsize > 1]
  lengths = [x.shape[1] for x in wide if x.ndim == 2 and x.dtype.kind in 'iu']
  return max(1, min(EVAL_BATCH, EVAL_TOKENS // max(lengths, default=1)))


def evaluation_batches(arrays: Arrays, size: int | None = None) -> Arrays:
  """Return leaves [n, ...] as [batches, size, ...], with a mask of no padding.

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
