"""From a config to everything that a run needs."""

from collections.abc import Callable
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from fl_sketch import algorithms
from fl_sketch import codecs
from fl_sketch import comms
from fl_sketch import gram
from fl_sketch import lanes
from fl_sketch import losses
from fl_sketch import models
from fl_sketch import problems
from fl_sketch import rounds
from fl_sketch import sketches
from fl_sketch import topology
from fl_sketch.config import ALGORITHM_OPTIONS
from fl_sketch.config import OPTIMIZER_OPTIONS
from fl_sketch.config import PARTITION_OPTIONS
from fl_sketch.config import Config
from fl_sketch.data import batches
from fl_sketch.data import cohorts
from fl_sketch.data import partitions
import jax
import jax.numpy as jnp
import numpy as np
import optax


class Experiment(NamedTuple):
  """What `training.train` runs.

  Attributes:
    config: the checked config.
    make: hp -> `Algorithm`.
    hyper: the hyperparameters of this run.
    params: the model before the first round.
    data: the training arrays, leaves [samples, ...].
    fetch: (data, one client's indices, or all clients') -> batches.
    lanes_per_step: see `rounds.run_round`.
    sample: round -> `Cohort` of indices into `data`, in host memory.
    metrics_fn: (params, batch) -> sums of metrics, with 'count'.
    test: evaluation batches, leaves [batches, batch, ...].
    partition: which samples each client holds.
    labels: int[samples], or None where there are none.
  """

  config: Config
  make: rounds.Make
  hyper: algorithms.Hyper
  params: Any
  data: dict[str, np.ndarray]
  fetch: rounds.Fetch
  lanes_per_step: int | None
  sample: Callable[[int], rounds.Cohort]
  metrics_fn: losses.MetricsFn
  test: dict[str, np.ndarray]
  partition: partitions.Partition
  labels: np.ndarray | None


def build(
  config: Mapping[str, Any] | Config, data_dir: str | None = None
) -> Experiment:
  """Reads the data and makes everything a run needs.

  Args:
    config: a `Config`, or its fields.
    data_dir: where tensorflow-datasets keeps its files.

  Raises:
    ValueError: the config is wrong; the message names the field.
    DataError: the dataset is not there, or cannot be read.
  """
  c = config if isinstance(config, Config) else Config.from_mapping(config)
  problem = problems.load(c, data_dir)
  partition = partitions.partition(
    'one_each' if c.dataset == 'quadratics' else c.partition,
    c.population if problem.labels is None else problem.labels,
    c.population,
    c.seed,
    **c.options(PARTITION_OPTIONS),
  )
  return assemble(c, problem, partition)


def assemble(
  c: Config, problem: problems.Problem, partition: partitions.Partition
) -> Experiment:
  """An experiment on a problem of one's own, spread over clients as one likes.

  Args:
    c: its fields that name a dataset, a model or a partition are not used.
    problem: data, model and losses.
    partition: which samples each client holds.
  """
  hyper, make = hyper_of(c), _algorithm(c, problem)
  if c.local_work == 'gram' and make(hyper).drift is not None:
    raise ValueError(f"Expected local_work='sgd' with {c.algorithm}.")
  # Shapes alone show whether the algorithm suits the model.
  init = lambda params: rounds.init(make(hyper), params, 1)
  state = jax.eval_shape(init, problem.params)
  if c.sampling == 'with_replacement' and comms.has_rows(state):
    raise ValueError(
      f"Expected another sampling than 'with_replacement' with {c.algorithm}: "
      'what a client keeps changes once, however often it is drawn.'
    )
  return Experiment(
    config=c,
    make=make,
    hyper=hyper,
    params=problem.params,
    data=problem.data,
    fetch=_fetch_with_mask if _needs_mask(c, partition) else _fetch,
    lanes_per_step=_lanes_per_step(c),
    sample=_sampler(c, partition),
    metrics_fn=problem.metrics_fn,
    test=problem.test,
    partition=partition,
    labels=problem.labels,
  )


def hyper_of(c: Config) -> algorithms.Hyper:
  """The hyperparameters of a config: its fields of the same names."""
  numbers = c.options(algorithms.Hyper._fields)
  return algorithms.Hyper(**{k: jnp.float32(v) for k, v in numbers.items()})


def _algorithm(c: Config, problem: problems.Problem) -> rounds.Make:
  options = _algorithm_options(c)
  if c.local_work == 'gram':

    def gram_steps(hp):
      return gram.gram_sgd(
        hp.client_lr,
        c.local_steps,
        label_smoothing=c.label_smoothing,
        weight_decay=c.weight_decay,
        **problem.scale,
      )

    return algorithms.make(c.algorithm, local=gram_steps, **options)
  return algorithms.make(
    c.algorithm,
    problem.loss_fn,
    weight_decay=c.weight_decay,
    **options,
  )


def _algorithm_options(c: Config) -> dict[str, Any]:
  """The fields that an algorithm's factory takes, made into what it takes."""
  options: dict[str, Any] = c.options(ALGORITHM_OPTIONS)
  if c.server_optimizer is not None:
    names = [name for name in OPTIMIZER_OPTIONS if name in options]
    options['server_optimizer'] = algorithms.make_server_optimizer(
      c.server_optimizer, **{name: options.pop(name) for name in names}
    )
  if c.final_server_lr is not None:
    options['schedule'] = optax.cosine_decay_schedule(
      1.0, c.rounds, alpha=c.final_server_lr / c.server_lr
    )
  if c.sketch is not None:
    options['sketch'] = sketches.make(**c.sketch)
  if c.codec is not None:
    options['codec'] = codecs.make(**c.codec)
  if c.graph is not None:
    options['graph'] = topology.make(c.graph, c.population)
  return options | {'local_steps': c.local_steps, 'population': c.population}


def _sampler(c: Config, partition: partitions.Partition):
  """Round -> its `Cohort`, a pure function of the round."""

  def sample(round_index: int) -> rounds.Cohort:
    ids, weight = cohorts.sample(
      c.sampling, c.seed, round_index, c.population, **_sampling_options(c)
    )
    return with_batches(c, partition, ids, weight, round_index)

  return sample


def with_batches(
  c: Config,
  partition: partitions.Partition,
  ids: np.ndarray,
  weight: np.ndarray,
  round_index: int,
) -> rounds.Cohort:
  """The `Cohort` of these clients, with the indices of their batches.

  Args:
    c: for the fields of local work, and the seed.
    partition: which samples each client holds.
    ids: int32[C].
    weight: f32[C].
    round_index: of the round.
  """
  if c.weights == 'samples':
    sizes = np.append(partition.sizes, 0)
    weight = weight * (sizes[ids] / partition.sizes.mean()).astype(np.float32)
  if c.batch_size == 0:
    return rounds.Cohort(ids, weight, batches.full(partition, ids))
  size = c.local_steps, c.batch_size, c.batch_order
  index = batches.draw(partition, ids, c.seed, round_index, *size)
  return rounds.Cohort(ids, weight, index)


def _sampling_options(c: Config):
  if c.sampling == 'poisson':
    probability = c.cohort / c.population
    return {'probability': probability, 'max_cohort': c.max_cohort}
  return {'cohort': c.cohort}


def _lanes_per_step(c: Config) -> int | None:
  default = lanes.default_lanes_per_step(
    convolutions=c.model in models.CONVOLUTIONAL
  )
  if default is not None and c.local_work == 'gram':
    default = gram.LANES_PER_STEP
  return c.lanes_per_step or default


def _needs_mask(c: Config, partition: partitions.Partition) -> bool:
  """Whether batches may hold padding, as ragged clients' do."""
  ragged = partition.sizes.min() < partition.sizes.max()
  return c.batch_order == 'mask' or (c.batch_size == 0 and bool(ragged))


def _fetch(data, index):
  """Samples by index; `data` lies on the device, or in host memory."""
  return {name: x[index] for name, x in data.items()}


def _fetch_with_mask(data, index):
  """The same where an index may be -1, which is padding."""
  return _fetch(data, index.clip(0)) | {'mask': index >= 0}
