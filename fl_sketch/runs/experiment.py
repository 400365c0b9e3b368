"""An experiment, and the checks whether its parts fit one another."""

from collections.abc import Callable
import dataclasses
from typing import Any, NamedTuple

from fl_sketch import rounds
from fl_sketch.data import own_arrays, store
from fl_sketch.data.partitions import Partition
from fl_sketch.models import losses
from fl_sketch.privacy.mechanisms import generators
from fl_sketch.privacy.mechanisms.private_mean import CentralRelease
from fl_sketch.rounds import comms, fates, mesh
from fl_sketch.rounds.algorithm import Hyper, with_hyper
from fl_sketch.runs import caveats, devices, method, metrics, privacy_plan
from fl_sketch.runs.config import Config
from fl_sketch.runs.privacy_plan import PrivacyGuarantee
from fl_sketch.runs.problem import Problem
from fl_sketch.sketches import verification
from fl_sketch.utils.types import Params, Tree
import jax
import jax.numpy as jnp
import numpy as np

LARGE = jax.ShapeDtypeStruct((2**26,), jnp.float32)  # any sketch fits


class Experiment(NamedTuple):
  """The parts of one run: config, algorithm, data, model and losses."""

  config: Config  # checked
  make: rounds.Make  # hp -> `Algorithm`
  hyper: Hyper  # the hyperparameters of this run
  params: Params  # the model before the first round
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
  attack: fates.Behaviour | None = None  # of byzantine clients
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
    return {
      'clients_per_step': self.clients_per_step, 'schedule': self.schedule,
      'attack': self.attack, 'max_payload_norm': self.max_payload_norm,
      'summary': method.summary(self.config),
    }  # fmt: skip


def state_shapes(
  algorithm: rounds.Algorithm, params: Params = LARGE, population: int = 1
) -> rounds.FedState:
  """Return the shapes of the state of an algorithm before the first round."""
  init = lambda params: rounds.init(algorithm, params, population)
  return jax.eval_shape(init, params)


def check_data(problem: Problem, partition: Partition):
  """Refuse samples that are missing or not finite."""
  data, test = problem.data, problem.test
  samples = len(next(iter(data.values())))
  places = partition.indices
  if places is None:
    places = np.array([0, partition.samples - 1])
  # Devices would replace them by the last sample.
  if places.size and not (0 <= places.min() and places.max() < samples):
    raise ValueError(
      f'partition has samples {places.min()} to {places.max()} of {samples}.'
    )
  if not store.is_mapped(data):  # a store was checked when it was written
    own_arrays.check_finite(data, partition)
    # Without padding, which repeats the first sample.
    own_arrays.check_finite({k: x[test['mask']] for k, x in test.items()})


def check_sizes(config: Config, partition: Partition):
  """Raise ConfigError if a round's sample indices exceed the host memory."""
  samples = config.local_steps * config.batch_size or partition.largest
  need, have = 8 * config.selected * samples, devices.host_memory()
  if have is not None and need > have:
    raise config.refusal(
      "{cohort} x {local_steps} x {batch_size}: a round's indices take "
      f'{need / 1e9:.3g} GB of {have / 1e9:.3g} GB; use smaller numbers.'
    )


def check_algorithm(
  config: Config, algorithm: rounds.Algorithm, params: Params = LARGE
):
  """Refuse what the algorithm does not support; params may be shapes."""
  keeps_rows = bool(comms.client_rows(state_shapes(algorithm, params)))
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


def check_parts(config: Config, hyper: Hyper, params: Params):
  """Refuse sketches, codecs and noise that do not fit what is sent.

  A sketch or codec of the user's own may read other shapes; rounded correlated
  noise may exceed the integer grid.
  """
  sent = params  # by clients, before a codec
  for field, package in method.PACKAGES.items():
    if (part := method.part_of(config, field)) is None:
      continue
    op = with_hyper(part, hyper)
    if package.REGISTRY.is_own(getattr(config, field)['kind']):
      verification.check_shapes(op, sent)
    if field == 'sketch':
      sent = jax.eval_shape(op.zero_table, params)
  release = privacy_plan.release_of(config)
  if not isinstance(release, CentralRelease) or not release.correlation:
    return
  if jnp.isnan(release.with_hyper(hyper).grid(sent).step):
    raise ValueError(
      f'noise_multiplier={hyper.noise_multiplier:.4g} leaves no room to round '
      f'correlated noise on {comms.nbytes(sent) // 4:,} numbers over '
      f'{release.correlation.rounds} rounds; sketch to fewer; set hash_rounds.'
    )


def check_metric(config: Config, problem: Problem, hyper: Hyper):
  """Raise ConfigError if no row has the metric of `config.keep_best`."""
  assert config.keep_best is not None
  batch = {k: x[0] for k, x in problem.test.items()}
  metrics_fn = with_hyper(problem.metrics_fn, hyper)
  sums = jax.eval_shape(metrics_fn, problem.params, batch)
  names = [f'test_{k}' for k in sums if k != 'count']
  one_client = dict.fromkeys(sums, np.ones(1))
  if config.client_holdout or config.personal_steps is not None:
    names += metrics.over_clients(one_client)
  if config.personal_steps:
    names += metrics.over_clients(one_client, 'personal')
  of_clients = problem.test_of_clients
  shown = [x for x in names if not caveats.is_left_out(config, of_clients, x)]
  if metrics.ranked_by(config.keep_best)[0] not in shown:
    raise config.refusal(
      f'{{keep_best}} is no metric that rows have; use one of {shown}.'
    )


def proved(exp: Experiment) -> Experiment:
  """Prove what a private round releases, and add it to its statement.

  Raises InterferenceError at a leak, and if more is released than accounted.
  """
  if (guarantee := exp.guarantee) is None:
    return exp
  config, alone = exp.config, mesh.cohort_mesh(1)
  fn = rounds.run_round(exp.make, alone, fetch=exp.fetch, **exp.round_options)
  state = state_shapes(exp.make(exp.hyper), exp.params, config.population)
  cohort = exp.sample(0, 0)._replace(outcome=None)
  key = jax.eval_shape(lambda: jax.random.key(0))
  secret = jax.eval_shape(lambda: generators.known_roots(config.noise_seed)[0])
  args = exp.hyper, state, cohort, key, exp.data, secret
  shown = check_program(config, fn, *args, budget=guarantee.round_cost)
  statement = guarantee.statement
  caveats = (*statement.caveats, *shown.sentences())
  statement = dataclasses.replace(statement, caveats=caveats)
  return exp._replace(guarantee=guarantee._replace(statement=statement))


def certificate_of(
  exp: Experiment, fn: Callable[..., Tree], *args: Tree
) -> str:
  """Prove non-interference of a private run's own program; return the proof.

  The text is a certificate for `privacy/check_certificate.py`.
  """
  # Of private runs alone.
  from fl_sketch.privacy.noninterference import certificate, proof

  found: list[certificate.Round] = []
  check_program(exp.config, fn, *args, proved=found.append)
  proved = found[0]._replace(hyper=proof.numbers_of(exp.hyper))
  assert exp.guarantee is not None, 'checked by the caller'
  account = privacy_plan.account_of(exp.config, exp.guarantee)
  about = {'algorithm': exp.config.algorithm, 'account': account}
  trust = exp.guarantee.statement.trust
  return certificate.text(proved, trust=trust, **about)


def check_program(
  config: Config, fn: Callable[..., Tree], *args: Tree, **options: Any
) -> Any:
  """Return the proof of what a private round's program releases."""
  from fl_sketch.privacy import noninterference  # of private runs alone

  release = privacy_plan.release_of(config)
  return noninterference.check_round(
    fn, *args, unit=config.privacy_unit, metrics=config.shows_all,
    trust='local' if release is None else release.trust,
    name=f'Algorithm {config.algorithm!r}', **options,
  )  # fmt: skip
