"""Build an Experiment from a config; account for one without training."""

from collections.abc import Callable, Mapping
import os
from typing import Any

from fl_sketch import algorithms, rounds
from fl_sketch.data import REGISTRY, availability, partitions
from fl_sketch.data.partitions import Partition
from fl_sketch.rounds import comms
from fl_sketch.runs import experiment, method, privacy_plan, sampler
from fl_sketch.runs.config import Config, checked
from fl_sketch.runs.experiment import Experiment
from fl_sketch.runs.fields.run import given
from fl_sketch.runs.privacy_plan import PrivacyGuarantee
from fl_sketch.runs.problem import Problem, adapted, check_unused, load
from fl_sketch.utils.types import Params
import jax.numpy as jnp

OwnProblem = Problem | Callable[[Config], Problem]


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
    if problem is not None:  # whose inputs nothing standardizes
      config = {'standardize': False, **config}
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
  if problem.partition is None:
    samples = len(next(iter(problem.data.values())))
    labels = samples if problem.labels is None else problem.labels
    return partitions.partition(
      config.partition, labels, config.population, config.seed,
      **given(
        samples_per_client=config.samples_per_client,
        shards_per_client=config.shards_per_client,
        classes=config.classes, alpha=config.alpha, sigma=config.sigma,
      ),
    )  # fmt: skip
  if config.partition != 'iid':
    raise config.refusal(
      '{partition}: the data say which samples each client holds; remove it.'
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
  experiment.check_data(problem, partition)
  if partition.population != config.population:
    raise config.refusal(
      f'{{population}} must be {partition.population}, of clients with data.'
    )
  # All else, the account too, knows only what clients train on.
  partition, held_out, held_data = sampler.split(config, problem, partition)
  experiment.check_sizes(config, partition)
  if config.lora is not None:
    problem = adapted(config, problem)
  make = method.algorithm(config, problem.loss_fn, problem.scale)
  attack = availability.BEHAVIOURS[config.attack] if config.attack else None
  exp = Experiment(
    config=config, make=make, params=problem.params, data=problem.data,
    hyper=method.hyper_of(config, frozen=problem.frozen),
    fetch=sampler.fetch_of(config, partition), partition=partition,
    clients_per_step=method.clients_per_step(config),
    sample=sampler.sampler(config, partition), loss_fn=problem.loss_fn,
    metrics_fn=problem.metrics_fn, test=problem.test, labels=problem.labels,
    schedule=method.client_schedule(config), attack=attack,
    max_payload_norm=config.max_payload_norm, apply_fn=problem.apply_fn,
    held_out=held_out, held_data=held_data,
    personalize=sampler.personalize(config, problem.loss_fn),
    merge=problem.merge, model=problem.model, tokenizer=problem.tokenizer,
    test_of_clients=problem.test_of_clients,
  )  # fmt: skip
  exp = reconfigured(exp, config)
  if config.keep_best is not None:
    experiment.check_metric(config, problem, exp.hyper)
  experiment.check_algorithm(config, make(exp.hyper), exp.params)
  return experiment.proved(exp)


def reconfigured(exp: Experiment, config: Config) -> Experiment:
  """Return the experiment with other hyperparameters."""
  guarantee = guarantee_of(
    config, exp.make, exp.partition, exp.params, exp.test_of_clients
  )
  hyper = method.hyper_of(config, guarantee, exp.hyper.frozen)
  experiment.check_parts(config, hyper, exp.params)
  return exp._replace(config=config, hyper=hyper, guarantee=guarantee)


def guarantee_of(
  config: Config,
  make: rounds.Make,
  partition: Partition | None = None,
  params: Params = experiment.LARGE,
  test_of_clients: bool | None = None,
) -> PrivacyGuarantee | None:
  """Return the DP guarantee of a config; None if it claims no privacy.

  Example-level privacy requires the partition; params may be shapes. Raises
  ValueError without a guarantee.
  """
  if not config.is_private:
    return None
  hyper = method.hyper_of(config)
  if hyper.noise_multiplier is None:  # the releases do not depend on it
    hyper = hyper._replace(noise_multiplier=jnp.float32(1))
  algorithm = make(hyper)
  state = experiment.state_shapes(algorithm, params)
  keeps_state = bool(comms.client_rows(state))
  moves = keeps_state or algorithm.correction is not None
  return privacy_plan.guarantee(
    config,
    algorithm.releases,
    partition,
    keeps_state=keeps_state,
    sends_without_data=moves or config.weight_decay > 0,
    test_of_clients=test_of_clients,
  )


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
    raise ValueError('Not private: set epsilon or noise_multiplier.')
  is_own = algorithms.REGISTRY.is_own(config.algorithm)
  if is_own or config.privacy_unit == 'sample':
    guarantee = build(config, data_dir).guarantee
  else:
    no_loss = lambda *_: jnp.float32(0)  # nothing is trained
    options = method.algorithm_options(config)
    make = algorithms.make(config.algorithm, no_loss, **options)
    data = REGISTRY.entry(config.dataset)
    test_of_clients = data.clients and data.test_of_clients
    guarantee = guarantee_of(config, make, test_of_clients=test_of_clients)
    hyper = method.hyper_of(config, guarantee)
    experiment.check_algorithm(config, make(hyper))
  assert guarantee is not None  # the config is private
  return guarantee
