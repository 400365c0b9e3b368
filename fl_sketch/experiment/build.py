"""Builds an Experiment from a config."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fl_sketch import algorithms, codecs, models, rounds, sketches
from fl_sketch.data import byzantine, partitions
from fl_sketch.experiment import (
  privacy_checks,
  privacy_plan,
  problem as problem_lib,
  sampler,
)
from fl_sketch.experiment.config import PARTITION_OPTIONS, Config, checked
from fl_sketch.experiment.config_checks import OPTIMIZER_OPTIONS
from fl_sketch.local import gram
from fl_sketch.models import losses
from fl_sketch.rounds import client_loop, comms, robust
from fl_sketch.rounds.algorithm import FromHyper
import jax
import jax.numpy as jnp
import numpy as np
import optax

OwnProblem = problem_lib.Problem | Callable[[Config], problem_lib.Problem]


class Experiment(NamedTuple):
  """Everything that `training.train` needs.

  Attributes:
    config: the checked config.
    make: hp -> `Algorithm`.
    hyper: the hyperparameters of this run.
    params: the model before the first round.
    data: the training arrays, leaves [samples, ...].
    fetch: (data, one client's indices, or all clients') -> batches.
    lanes_per_step: see `rounds.run_round`.
    sample: (round, sampling_seed) -> `Cohort` of indices into `data`, on the
      host; sampling_seed is the secret of a private run, else None.
    loss_fn: (params, batch) -> the mean loss of training, weight decay apart.
    metrics_fn: (params, batch) -> sums of metrics, with 'count'.
    test: evaluation batches, leaves [batches, batch, ...].
    partition: which samples each client trains on.
    labels: int[samples], or None where there are none.
    schedule: (hp, round) -> the hyperparameters of a round.
    guarantee: of a private run, else None.
    attack: what byzantine clients send, as of `rounds.cohort_step`.
    max_payload_norm: above it a payload is rejected, as of the same.
    apply_fn: (params, inputs) -> the model's outputs; None where the problem
      has only a loss.
    held_out: which samples each client evaluates on instead; None for none.
  """

  config: Config
  make: rounds.Make
  hyper: algorithms.Hyper
  params: Any
  data: dict[str, np.ndarray]
  fetch: rounds.Fetch
  lanes_per_step: int | None
  sample: Callable[..., rounds.Cohort]
  loss_fn: losses.LossFn
  metrics_fn: losses.MetricsFn
  test: dict[str, np.ndarray]
  partition: partitions.Partition
  labels: np.ndarray | None
  schedule: rounds.Schedule | None = None
  guarantee: privacy_plan.PrivacyGuarantee | None = None
  attack: byzantine.Behaviour | None = None
  max_payload_norm: float | None = None
  apply_fn: Callable[[Any, Any], Any] | None = None
  held_out: partitions.Partition | None = None

  @property
  def round_options(self) -> dict[str, Any]:
    """The options of `rounds.run_round`."""
    names = 'lanes_per_step', 'schedule', 'attack', 'max_payload_norm'
    return {name: getattr(self, name) for name in names}


@checked()
def build(
  config: Mapping[str, Any] | Config,
  data_dir: str | None = None,
  problem: OwnProblem | None = None,
  *,
  draw: bool = True,
) -> Experiment:
  """Builds the experiment of a config; reads its data.

  Args:
    config: a `Config`, or its fields.
    data_dir: where tensorflow-datasets keeps its files.
    problem: in place of the one that the config names, as of `custom.problem`;
      or a function of the config that makes it.
    draw: whether to draw the first parameters. Else they may be only shapes,
      which identify an experiment but cannot be trained.

  Raises:
    ConfigError: the config is wrong; the message names the field.
    DataError: the dataset is missing or cannot be read.
  """
  c = config if isinstance(config, Config) else Config.from_mapping(config)
  if problem is None:
    problem = problem_lib.load(c, data_dir, draw)
  elif not isinstance(problem, problem_lib.Problem):
    problem = problem(c)
  partition = problem.partition
  if partition is None:
    samples = len(next(iter(problem.data.values())))
    partition = partitions.partition(
      c.partition,
      samples if problem.labels is None else problem.labels,
      c.population,
      c.seed,
      **c.given(PARTITION_OPTIONS),
    )
  elif c.partition != 'iid':
    raise c.refusal('Expected no {partition} with {dataset}, which has one.')
  elif c.samples_per_client is not None:
    partition = partitions.cap(partition, c.samples_per_client)
  return assemble(c, problem, partition)


@checked()
def assemble(
  c: Config, problem: problem_lib.Problem, partition: partitions.Partition
) -> Experiment:
  """Builds an experiment from a problem and a partition.

  Args:
    c: its fields that name a dataset, a model, its precision or first
      parameters, label smoothing or a partition are not used.
    problem: data, model and losses.
    partition: which samples each client holds.

  Raises:
    ConfigError: the config does not suit the problem; the message names why.
  """
  if partition.population != c.population:
    raise ValueError(
      f'Expected population={c.population} == {partition.population}, the '
      'clients that hold data.'
    )
  problem_lib.check_metric(c, problem)
  # Everything else, the account too, knows only what clients train on.
  partition, held_out = sampler.hold_out(c, partition)
  make = _algorithm(c, problem)
  guarantee = guarantee_of(c, make, partition)
  hyper = hyper_of(c, guarantee)
  if c.local_work == 'gram' and make(hyper).drift is not None:
    raise ValueError(f"Expected local_work='sgd' with {c.algorithm}.")
  # Shapes alone show whether the algorithm suits the model.
  init = lambda params: rounds.init(make(hyper), params, 1)
  state = jax.eval_shape(init, problem.params)
  if c.sampling == 'with_replacement' and comms.has_client_state(state):
    raise ValueError(
      f"Expected another sampling than 'with_replacement' with {c.algorithm}: "
      'what a client keeps changes once, however often it is drawn.'
    )
  _check_rows(c, state)
  if c.max_payload_norm is not None and make(hyper).decode is None:
    raise ValueError(
      f'Expected no max_payload_norm with {c.algorithm}, whose payloads are '
      'not added up as they come.'
    )
  return Experiment(
    config=c,
    make=make,
    hyper=hyper,
    params=problem.params,
    data=problem.data,
    fetch=sampler.fetch_of(c, partition),
    lanes_per_step=_lanes_per_step(c),
    sample=sampler.sampler(c, partition),
    loss_fn=problem.loss_fn,
    metrics_fn=problem.metrics_fn,
    test=problem.test,
    partition=partition,
    labels=problem.labels,
    schedule=_schedule(c),
    guarantee=guarantee,
    attack=None if c.attack is None else byzantine.BEHAVIOURS[c.attack],
    max_payload_norm=c.max_payload_norm,
    apply_fn=problem.apply_fn,
    held_out=held_out,
  )


def reconfigured(exp: Experiment, c: Config) -> Experiment:
  """The experiment with a config that differs in hyperparameters only."""
  guarantee = guarantee_of(c, exp.make, exp.partition)
  return exp._replace(
    config=c, hyper=hyper_of(c, guarantee), guarantee=guarantee
  )


def hyper_of(
  c: Config, guarantee: privacy_plan.PrivacyGuarantee | None = None
) -> algorithms.Hyper:
  """The hyperparameters of a config: its fields of those names.

  Args:
    c: the config.
    guarantee: of a private run, whose noise may be calibrated.
  """
  shared = [name for name in algorithms.Hyper._fields if name != 'extra']
  numbers = c.given(tuple(shared))
  if guarantee is not None:
    numbers['noise_multiplier'] = guarantee.noise_multiplier
  arrays = lambda xs: {k: jnp.float32(v) for k, v in xs.items()}
  own = {k.removeprefix('options.'): v for k, v in declared(c).items()}
  return algorithms.Hyper(**arrays(numbers), extra=arrays(own) or None)


def declared(c: Config) -> dict[str, Any]:
  """The options of a config that are hyperparameters, as FIELD.NAME."""
  parts = {
    'options': algorithms.entry(c.algorithm),
    'model_options': models.REGISTRY.entry(c.model),
  }
  if c.sketch is not None:
    parts['sketch'] = sketches.REGISTRY.entry(c.sketch['kind'])
  if c.codec is not None:
    parts['codec'] = codecs.REGISTRY.entry(c.codec['kind'])
  return {
    f'{field}.{name}': getattr(c, field)[name]
    for field, entry in parts.items()
    for name in entry.hyper
    if name in (getattr(c, field) or {})
  }


def guarantee_of(
  c: Config, make: rounds.Make, partition: partitions.Partition | None = None
) -> privacy_plan.PrivacyGuarantee | None:
  """The DP guarantee of a config, with the releases of its algorithm.

  Raises:
    ValueError: nothing can be guaranteed; the message names why.
  """
  if not privacy_checks.is_private(c):
    return None
  hyper = hyper_of(c)
  if hyper.noise_multiplier is None:  # its size does not change the releases
    hyper = hyper._replace(noise_multiplier=jnp.float32(1))
  return privacy_plan.guarantee(c, make(hyper).releases, partition)


@checked()
def account(
  c: Config, data_dir: str | None = None
) -> privacy_plan.PrivacyGuarantee:
  """Computes the DP guarantee of a config without training.

  Data are read only for example-level privacy, which depends on the sizes of
  clients.

  Raises:
    ConfigError: no privacy is claimed, or nothing can be guaranteed.
  """
  if not privacy_checks.is_private(c):
    raise ValueError(
      'Expected epsilon or noise_multiplier in a private config.'
    )
  if privacy_checks.unit_of(c) == 'sample':
    guarantee = build(c, data_dir).guarantee
  else:
    no_loss: Any = None  # nothing is trained
    options = algorithm_options(c)
    make = algorithms.make(c.algorithm, lambda *_: no_loss, **options)
    guarantee = guarantee_of(c, make)
    large = jax.ShapeDtypeStruct((2**26,), jnp.float32)  # any sketch fits
    init = lambda params: rounds.init(make(hyper_of(c, guarantee)), params, 1)
    _check_rows(c, jax.eval_shape(init, large))
  assert guarantee is not None  # the config is private
  return guarantee


def _check_rows(c: Config, state: Any):
  fixed = c.sampling == 'fixed_size' and c.cohort < c.population
  if privacy_checks.is_private(c) and fixed and comms.has_client_state(state):
    raise ValueError(
      f"Expected sampling='poisson', or everybody, with a private "
      f'{c.algorithm}: what clients keep depends on past cohorts, which one '
      'that is replaced changes for the others.'
    )


def _schedule(c: Config) -> rounds.Schedule | None:
  decay = lambda hp, r: hp._replace(client_lr=hp.client_lr * c.lr_decay**r)
  return None if c.lr_decay is None else decay


def _algorithm(c: Config, problem: problem_lib.Problem) -> rounds.Make:
  options, decay = algorithm_options(c), {'weight_decay': c.weight_decay}
  if c.local_work != 'gram':
    return algorithms.make(c.algorithm, problem.loss_fn, **decay, **options)
  numbers = problem.scale | decay | {'label_smoothing': c.label_smoothing}
  steps = lambda hp: gram.gram_sgd(hp.client_lr, c.local_steps, **numbers)
  return algorithms.make(c.algorithm, local=steps, **options)


def algorithm_options(c: Config) -> dict[str, Any]:
  """The arguments of the algorithm's factory, built from config fields."""
  options: dict[str, Any] = c.given(OPTIMIZER_OPTIONS) | dict(c.options or {})
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
    options['sketch'] = _made('sketch', c.sketch, sketches)
  if c.codec is not None:
    options['codec'] = _made('codec', c.codec, codecs)
  if c.robust is not None and c.groups is not None:
    options['robust'] = robust.Rule(c.robust, c.groups)
  if c.local_optimizer is not None:
    options['local_optimizer'] = c.local_optimizer
  if (release := privacy_plan.release_of(c)) is not None:
    options['privacy'] = release
  if c.batch_order == 'poisson':
    options['expected_batch'] = c.batch_size
  return options | {'local_steps': c.local_steps, 'population': c.population}


def _made(field, options, package):
  """A sketch or codec; a `FromHyper` if it declares hyperparameters."""
  if package.REGISTRY.entry(options['kind']).hyper:
    return FromHyper(package.make, options, field)
  return package.make(**options)


def _lanes_per_step(c: Config) -> int | None:
  default = client_loop.default_lanes_per_step(
    convolutions=models.REGISTRY.entry(c.model).convolutional
  )
  if default is not None and c.local_work == 'gram':
    default = gram.LANES_PER_STEP
  return c.lanes_per_step or default
