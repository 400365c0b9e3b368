"""Build an Experiment from a config."""

from collections.abc import Callable, Mapping
import os
from typing import Any, NamedTuple

from fl_sketch import algorithms, rounds
from fl_sketch.data import REGISTRY, availability, own_arrays, partitions, store
from fl_sketch.data.partitions import Partition
from fl_sketch.models import losses
from fl_sketch.rounds import comms, fates
from fl_sketch.runs import parts, sampler
from fl_sketch.runs.config import Config, checked
from fl_sketch.runs.fields.clients import PARTITION_OPTIONS
from fl_sketch.runs.privacy_plan import PrivacyGuarantee
from fl_sketch.runs.problem import Problem, check_unused, load
import jax.numpy as jnp
import numpy as np

OwnProblem = Problem | Callable[[Config], Problem]


class Experiment(NamedTuple):
  """The parts of one run: config, algorithm, data, model and losses."""

  config: Config  # checked
  make: rounds.Make  # hp -> `Algorithm`
  hyper: algorithms.Hyper  # the hyperparameters of this run
  params: Any  # the model before the first round
  data: dict[str, np.ndarray]  # for training, leaves [samples, ...]
  fetch: rounds.Fetch  # (data, indices of one client, or of all) -> batches
  clients_per_step: int | None  # see `rounds.run_round`
  sample: Callable[..., rounds.Cohort]  # of indices, see `sampler.sampler`
  loss_fn: losses.LossFn  # (params, batch) -> mean loss, weight decay apart
  metrics_fn: losses.MetricsFn  # (params, batch) -> sums, with 'count'
  test: dict[str, np.ndarray]  # for evaluation, leaves [batches, batch, ...]
  partition: Partition  # which samples each client trains on
  labels: np.ndarray | None  # int[samples], or None where there are none
  schedule: rounds.Schedule | None = None  # (hp, round) -> hp of a round
  guarantee: PrivacyGuarantee | None = None  # of a private run
  attack: fates.Behaviour | None = None  # as of `rounds.cohort_step`
  max_payload_norm: float | None = None  # above it a payload is rejected
  apply_fn: Callable[[Any, Any], Any] | None = None  # as of `Problem`
  held_out: Partition | None = None  # what clients evaluate on
  held_data: dict[str, np.ndarray] | None = None  # the arrays of which it is
  personalize: Callable[..., Any] | None = None  # `sampler.personalize`
  merge: Callable[[Any, Any], Any] | None = None  # as of `Problem`
  model: Any = None  # likewise
  tokenizer: str | None = None  # likewise
  test_of_clients: bool = False  # likewise

  @property
  def round_options(self) -> dict[str, Any]:
    """Return the options of `rounds.run_round`."""
    names = 'clients_per_step', 'schedule', 'attack', 'max_payload_norm'
    options = {name: getattr(self, name) for name in names}
    return options | {'summary': parts.summary(self.config)}


@checked()
def build(
  config: Mapping[str, Any] | Config,
  data_dir: str | os.PathLike | None = None,
  problem: OwnProblem | None = None,
  *,
  draw: bool = True,
) -> Experiment:
  """Build the experiment of a config; read its data.

  `data_dir` is the directory of tensorflow-datasets. `problem` is as of
  `custom.problem`, or a function of the config. Without `draw` parameters may
  be shapes, which cannot be trained. Raises ConfigError, which names the field,
  and DataError if the dataset is missing or cannot be read.
  """
  if not isinstance(config, Config):
    config = Config.from_mapping(config)
  if problem is None:
    folder = None if data_dir is None else os.fspath(data_dir)
    problem = load(config, folder, draw)
  elif callable(problem):
    problem = problem(config)
  else:
    check_unused(config)
  return assemble(config, problem, _partition(config, problem))


def _partition(config: Config, problem: Problem) -> Partition:
  """Return the partition of a problem, or the one that the config draws."""
  if problem.partition is None:
    samples = len(next(iter(problem.data.values())))
    labels = samples if problem.labels is None else problem.labels
    return partitions.partition(
      config.partition, labels, config.population, config.seed,
      **config.subset(['samples_per_client', *PARTITION_OPTIONS]),
    )  # fmt: skip
  if config.partition != 'iid':
    raise config.refusal(
      '{partition}: the data say which samples each client holds; remove '
      'partition.'
    )
  if config.samples_per_client is not None:
    return partitions.cap(problem.partition, config.samples_per_client)
  return problem.partition


@checked()
def assemble(
  config: Config, problem: Problem, partition: Partition
) -> Experiment:
  """Build an experiment from a problem and a partition.

  Of the config's fields of data, model, loss and partition, it reads only
  `model`, for the default of clients_per_step. Raises ConfigError.
  """
  _check_data(problem, partition)
  if partition.population != config.population:
    raise config.refusal(
      f'{{population}}: {partition.population} clients hold data; set '
      f'population={partition.population}.'
    )
  # All else, the account too, knows only what clients train on.
  partition, held_out, held_data = sampler.split(config, problem, partition)
  if config.lora is not None:
    problem = parts.adapted(config, problem)
  make = parts.algorithm(config, problem)
  guarantee = parts.guarantee_of(
    config, make, partition, problem.params, problem.test_of_clients
  )
  hyper = parts.hyper_of(config, guarantee)._replace(frozen=problem.frozen)
  parts.check_grid(config, hyper, problem.params)
  sampler.check_metric(config, problem, hyper)
  algorithm = make(hyper)
  state = parts.state_shapes(algorithm, problem.params)
  _check_algorithm(config, algorithm, state)
  attack = availability.BEHAVIOURS[config.attack] if config.attack else None
  shared = {*Experiment._fields} & {*Problem._fields} - {
    'partition',
    'held_out',
  }
  exp = Experiment(
    **{name: getattr(problem, name) for name in shared},
    config=config, make=make, hyper=hyper, guarantee=guarantee, attack=attack,
    fetch=sampler.fetch_of(config, partition), partition=partition,
    clients_per_step=parts.clients_per_step(config),
    schedule=parts.schedule(config), sample=sampler.sampler(config, partition),
    max_payload_norm=config.max_payload_norm,
    personalize=sampler.personalize(config, problem.loss_fn),
    held_out=held_out, held_data=held_data,
  )  # fmt: skip
  parts.check_interference(exp)
  return exp


def _check_algorithm(
  config: Config, algorithm: rounds.Algorithm, state: rounds.FedState
):
  """Refuse what the algorithm does not support, given shapes of its state."""
  keeps_rows = comms.has_client_state(state)
  fixed = config.sampling == 'fixed_size' and config.cohort < config.population
  config.refuse(
    (config.is_private and fixed and keeps_rows,
     'A private {config.algorithm} keeps client state, which depends on past '
     "cohorts: use sampling='poisson' or cohort=population."),
    (config.local_work == 'gram' and algorithm.correction is not None,
     "{local_work} is not supported by {algorithm}; set local_work='sgd'."),
    (config.sampling == 'with_replacement' and keeps_rows,
     '{algorithm} does not support {sampling}: a client drawn twice would '
     'update its state once.'),
    (config.max_payload_norm is not None and algorithm.decode is None,
     '{algorithm} does not support {max_payload_norm}: it does not decode '
     'payloads one by one.'),
  )  # fmt: skip


def _check_data(problem: Problem, partition: Partition):
  """Refuse samples that are missing or not finite."""
  data, test = problem.data, problem.test
  samples = len(next(iter(data.values())))
  places = partition.indices
  if places is None:
    places = np.array([0, partition.samples - 1])
  # Devices would replace them by the last sample.
  if places.size and not (0 <= places.min() and places.max() < samples):
    raise ValueError(
      f'partition has samples {places.min()} to {places.max()}, but the data '
      f'have 0 to {samples - 1}.'
    )
  if not store.is_mapped(data):  # a store was checked when it was written
    own_arrays.check_finite(data, partition)
    # Without padding, which repeats the first sample.
    own_arrays.check_finite({k: x[test['mask']] for k, x in test.items()})


def reconfigured(exp: Experiment, config: Config) -> Experiment:
  """Return the experiment with other hyperparameters."""
  guarantee = parts.guarantee_of(
    config, exp.make, exp.partition, exp.params, exp.test_of_clients
  )
  hyper = parts.hyper_of(config, guarantee)._replace(frozen=exp.hyper.frozen)
  parts.check_grid(config, hyper, exp.params)
  return exp._replace(config=config, hyper=hyper, guarantee=guarantee)


@checked()
def account(
  config: Config, data_dir: str | os.PathLike | None = None
) -> PrivacyGuarantee:
  """Return the DP guarantee of a config without training.

  It reads data only for example-level privacy, which depends on the sizes of
  clients, and for your own algorithms, whose rounds are checked. Raises
  ConfigError if no privacy is claimed, or nothing can be guaranteed.
  """
  if not config.is_private:
    raise ValueError(
      'The config claims no privacy; set epsilon or noise_multiplier.'
    )
  is_own = algorithms.REGISTRY.is_own(config.algorithm)
  if is_own or config.privacy_unit == 'sample':
    guarantee = build(config, data_dir).guarantee
  else:
    no_loss = lambda *_: jnp.float32(0)  # nothing is trained
    options = parts.algorithm_options(config)
    make = algorithms.make(config.algorithm, no_loss, **options)
    data = REGISTRY.entry(config.dataset)
    test_of_clients = data.clients and data.test_of_clients
    guarantee = parts.guarantee_of(
      config, make, test_of_clients=test_of_clients
    )
    algorithm = make(parts.hyper_of(config, guarantee))
    _check_algorithm(config, algorithm, parts.state_shapes(algorithm))
  assert guarantee is not None  # the config is private
  return guarantee
