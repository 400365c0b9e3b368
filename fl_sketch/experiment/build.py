"""Builds an Experiment from a config."""

from collections.abc import Callable, Mapping
import os
from typing import Any, NamedTuple

from fl_sketch import algorithms, models, rounds
from fl_sketch.data import availability, own_arrays, partitions, registry, store
from fl_sketch.data.ragged import Partition
from fl_sketch.experiment import parts, sampler
from fl_sketch.experiment.config import Config, checked
from fl_sketch.experiment.fields.clients import PARTITION_OPTIONS
from fl_sketch.experiment.privacy_plan import PrivacyGuarantee
from fl_sketch.experiment.problem import Problem, check_unused, load
from fl_sketch.models import losses
from fl_sketch.rounds import comms
from fl_sketch.utils import digests, registry as registry_lib
import numpy as np

# Fields that an experiment has from its problem.
_OF_PROBLEM = (
  'params', 'data', 'loss_fn', 'metrics_fn', 'test', 'labels', 'apply_fn',
  'merge', 'model', 'tokenizer', 'test_of_clients',
)  # fmt: skip
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
  attack: availability.Behaviour | None = None  # as of `rounds.cohort_step`
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
    """The options of `rounds.run_round`."""
    names = 'clients_per_step', 'schedule', 'attack', 'max_payload_norm'
    given = {name: getattr(self, name) for name in names}
    return given | {'summary': parts.summary(self.config)}


@checked()
def build(
  config: Mapping[str, Any] | Config,
  data_dir: str | os.PathLike | None = None,
  problem: OwnProblem | None = None,
  *,
  draw: bool = True,
) -> Experiment:
  """Builds the experiment of a config; reads its data.

  Args:
    config: a `Config`, or its fields.
    data_dir: where tensorflow-datasets keeps its files.
    problem: replaces the one that the config names, as of `custom.problem`; or
      a function of the config that returns one.
    draw: whether to draw the first parameters. Else they may be only shapes,
      which identify an experiment but cannot be trained.

  Raises:
    ConfigError: the config is wrong; the message names the field.
    DataError: the dataset is missing or cannot be read.
  """
  c = config if isinstance(config, Config) else Config.from_mapping(config)
  if problem is None:
    folder = None if data_dir is None else os.fspath(data_dir)
    problem = load(c, folder, draw)
  elif isinstance(problem, Problem):
    check_unused(c)
  elif callable(problem):
    problem = problem(c)
  if not isinstance(problem, Problem):
    raise ValueError(
      f'problem is of type {type(problem).__name__}; pass a Problem, as of '
      'experiment.custom.problem, or a function of the config that returns one.'
    )
  partition = problem.partition
  if partition is None:
    samples, labels = len(next(iter(problem.data.values()))), problem.labels
    whose = samples if labels is None else labels, c.population, c.seed
    options = c.given(['samples_per_client', *PARTITION_OPTIONS])
    partition = partitions.partition(c.partition, *whose, **options)
  elif c.partition != 'iid':
    raise c.refusal(
      '{partition}: the data say which samples each client holds; remove '
      'partition.'
    )
  elif c.samples_per_client is not None:
    partition = partitions.cap(partition, c.samples_per_client)
  return assemble(c, problem, partition)


@checked()
def assemble(c: Config, problem: Problem, partition: Partition) -> Experiment:
  """Builds an experiment from a problem and a partition.

  Of the config, fields of data, model, loss and partition are not used, but for
  the model's lanes of the client loop.

  Raises:
    ConfigError: the config does not suit the problem, or the partition not the
      data; the message names why.
  """
  _check_data(problem, partition)
  if partition.population != c.population:
    raise c.refusal(
      f'{{population}}: {partition.population} clients hold data; set '
      f'population={partition.population}.'
    )
  # Everything else, the account too, knows only what clients train on.
  partition, held_out, held_data = sampler.split(c, problem, partition)
  sampler.note_small_clients(c, partition)
  if c.lora is not None:
    problem = parts.adapted(c, problem)
  make = parts.algorithm(c, problem)
  whose = problem.test_of_clients
  guarantee = parts.guarantee_of(c, make, partition, problem.params, whose)
  hyper = parts.hyper_of(c, guarantee)._replace(frozen=problem.frozen)
  parts.check_grid(c, hyper, problem.params)
  sampler.check_metric(c, problem, hyper)
  algorithm = make(hyper)
  # Shapes alone show whether it suits the model.
  state = parts.state_shapes(algorithm, problem.params)
  parts.check_rows(c, state)
  c.refuse(
    (c.local_work == 'gram' and algorithm.correction is not None,
     "{local_work} is not supported by {algorithm}; set local_work='sgd'."),
    (c.sampling == 'with_replacement' and comms.has_client_state(state),
     '{algorithm} does not support {sampling}: a client drawn twice would '
     'update its state once.'),
    (c.max_payload_norm is not None and algorithm.decode is None,
     '{algorithm} does not support {max_payload_norm}: it does not decode '
     'payloads one by one.'),
  )  # fmt: skip
  exp = Experiment(
    **{name: getattr(problem, name) for name in _OF_PROBLEM},
    config=c, make=make, hyper=hyper, guarantee=guarantee,
    fetch=sampler.fetch_of(c, partition), partition=partition,
    clients_per_step=parts.clients_per_step(c), schedule=parts.schedule(c),
    sample=sampler.sampler(c, partition), max_payload_norm=c.max_payload_norm,
    attack=None if c.attack is None else availability.BEHAVIOURS[c.attack],
    personalize=sampler.personalize(c, problem.loss_fn),
    held_out=held_out, held_data=held_data,
  )  # fmt: skip
  parts.check_interference(exp)
  return exp


def _check_data(problem, partition: Partition):
  """Refuses samples that are not there or not finite, and an empty model."""
  data, test = problem.data, problem.test
  samples = len(next(iter(data.values())))
  ends = np.array([0, partition.samples - 1])
  places = ends if partition.indices is None else partition.indices
  # Devices would replace them by the last sample.
  if places.size and not (0 <= places.min() and places.max() < samples):
    raise ValueError(
      f'partition has samples {places.min()} to {places.max()}, but the data '
      f'have 0 to {samples - 1}.'
    )
  if not models.num_params(problem.params):
    raise ValueError('The model has no parameters; pass a model with some.')
  if not store.is_mapped(data):  # which was looked at when it was written
    own_arrays.check_finite(data, partition)
    # Without padding, which repeats the first sample.
    own_arrays.check_finite({k: x[test['mask']] for k, x in test.items()})


def reconfigured(exp: Experiment, c: Config) -> Experiment:
  """The experiment with a config that differs in hyperparameters only."""
  given = exp.make, exp.partition, exp.params, exp.test_of_clients
  guarantee = parts.guarantee_of(c, *given)
  hyper = parts.hyper_of(c, guarantee)._replace(frozen=exp.hyper.frozen)
  parts.check_grid(c, hyper, exp.params)
  return exp._replace(config=c, hyper=hyper, guarantee=guarantee)


@checked()
def account(
  c: Config, data_dir: str | os.PathLike | None = None
) -> PrivacyGuarantee:
  """Computes the DP guarantee of a config without training.

  Data are read only for example-level privacy, which depends on the sizes of
  clients, and for algorithms of one's own, whose rounds are checked.

  Raises:
    ConfigError: no privacy is claimed, or nothing can be guaranteed.
  """
  claims_none = 'The config claims no privacy; set epsilon or noise_multiplier.'
  c.refuse((not c.is_private, claims_none))
  file = registry_lib.source_of(algorithms.entry(c.algorithm).factory)
  own = not file.startswith(str(digests.ROOT))
  if own or c.privacy_unit == 'sample':
    guarantee = build(c, data_dir).guarantee
  else:
    no_loss: Any = None  # nothing is trained
    options = parts.algorithm_options(c)
    make = algorithms.make(c.algorithm, lambda *_: no_loss, **options)
    dataset = registry.REGISTRY.entry(c.dataset)
    whose = dataset.test_of_clients if dataset.clients else False
    guarantee = parts.guarantee_of(c, make, test_of_clients=whose)
    algorithm = make(parts.hyper_of(c, guarantee))
    parts.check_rows(c, parts.state_shapes(algorithm))
  assert guarantee is not None  # the config is private
  return guarantee
