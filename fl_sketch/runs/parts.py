"""Build the parts of an experiment that its config decides; its guarantee."""

from collections.abc import Callable
import functools
from typing import Any

from fl_sketch import algorithms, codecs, models, rounds, sketches
from fl_sketch.data import partitions
from fl_sketch.local import gram, schedules
from fl_sketch.models import lora
from fl_sketch.privacy import noninterference
from fl_sketch.privacy.mechanisms import generators, private_metrics
from fl_sketch.rounds import client_loop, client_step, comms, mesh, robust
from fl_sketch.rounds.algorithm import FromHyper, Hyper, OfFrozen, with_hyper
from fl_sketch.runs import privacy_plan
from fl_sketch.runs.config import Config
from fl_sketch.runs.fields.method import OPTIMIZER_OPTIONS
from fl_sketch.runs.privacy_plan import PrivacyGuarantee
from fl_sketch.runs.problem import Problem
from fl_sketch.utils.types import Params, Tree
import jax
import jax.numpy as jnp
import optax

_PACKAGES = {'sketch': sketches, 'codec': codecs, 'downlink_codec': codecs}
_LARGE = jax.ShapeDtypeStruct((2**26,), jnp.float32)  # any sketch fits
_ADAPTERS = 0x10FA  # folded into the key of the first parameters


def hyper_of(
  config: Config, guarantee: PrivacyGuarantee | None = None
) -> Hyper:
  """Return the hyperparameters of a config, its noise by a guarantee."""
  numbers = config.subset({*Hyper._fields} - {'extra', 'frozen'})
  if guarantee is not None:
    numbers['noise_multiplier'] = guarantee.noise_multiplier
  budget = privacy_plan.metrics_budget(config)
  if budget is not None and 'noise_multiplier' in numbers:
    numbers['noise_multiplier'] = budget.of_updates(numbers['noise_multiplier'])
  options = {
    name.removeprefix('options.'): jnp.float32(value)
    for name, value in declared(config).items()
  }
  arrays = {name: jnp.float32(value) for name, value in numbers.items()}
  return Hyper(**arrays, extra=options or None)


def declared(config: Config) -> dict[str, Any]:
  """Return the options of a config that are hyperparameters, as FIELD.NAME."""
  entries = {
    'options': algorithms.entry(config.algorithm),
    'model_options': models.REGISTRY.entry(config.model),
  }
  for field, options in config.subset(_PACKAGES).items():
    entries[field] = _PACKAGES[field].REGISTRY.entry(options['kind'])
  return {
    f'{field}.{name}': getattr(config, field)[name]
    for field, entry in entries.items()
    for name in entry.hyper
    if name in (getattr(config, field) or {})
  }


def summary(config: Config) -> client_step.Summary:
  """Return how a round's metrics may show statistics of its clients."""
  if config.shows_all:
    return client_step.means_and_counts
  return privacy_plan.metrics_budget(config) or private_metrics.nothing


def schedule(config: Config) -> rounds.Schedule | None:
  """Return the schedule of the client's learning rate, if there is one."""
  if config.client_schedule is not None:
    factor = schedules.make(rounds=config.rounds, **config.client_schedule)
  elif config.lr_decay is not None:
    factor = lambda r: config.lr_decay**r
  else:
    return None
  return lambda hp, r: hp._replace(client_lr=hp.client_lr * factor(r))


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


def algorithm(config: Config, problem: Problem) -> rounds.Make:
  """Return hp -> `Algorithm` of a config, on the loss of a problem."""
  options, decay = algorithm_options(config), config.weight_decay
  if config.local_work != 'gram':
    return algorithms.make(
      config.algorithm, problem.loss_fn, weight_decay=decay, **options
    )
  smoothed = problem.scale | {'label_smoothing': config.label_smoothing}
  steps = lambda hp: gram.gram_sgd(
    hp.client_lr, config.local_steps, weight_decay=decay, **smoothed
  )
  return algorithms.make(config.algorithm, local=steps, **options)


def algorithm_options(config: Config) -> dict[str, Any]:
  """Return the arguments of the algorithm's factory."""
  options: dict[str, Any] = {
    'local_steps': config.local_steps, 'population': config.population,
    **config.subset(OPTIMIZER_OPTIONS), **(config.options or {}),
    **config.subset(['hash_rounds', 'local_optimizer', 'client_clip']),
  }  # fmt: skip
  if config.server_optimizer is not None:
    names = [name for name in OPTIMIZER_OPTIONS if name in options]
    options['server_optimizer'] = algorithms.make_server_optimizer(
      config.server_optimizer, **{name: options.pop(name) for name in names}
    )
  if config.final_server_lr is not None:
    options['schedule'] = optax.cosine_decay_schedule(
      1.0, config.rounds, alpha=config.final_server_lr / config.server_lr
    )
  if config.server_schedule is not None:
    options['schedule'] = schedules.make(
      rounds=config.rounds, **config.server_schedule
    )
  for field, part in config.subset(_PACKAGES).items():
    package = _PACKAGES[field]
    if package.REGISTRY.entry(part['kind']).hyper:
      options[field] = FromHyper(package.make, part, field)
    else:
      options[field] = package.make(**part)
  takes = algorithms.options(config.algorithm)
  if config.lora is not None and 'lora_scale' in takes:
    rank, alpha = config.lora['rank'], config.lora.get('alpha')
    options['lora_scale'] = lora.scale_of(rank, alpha)
  if config.robust is not None and config.groups is not None:
    options['robust'] = robust.Rule(config.robust, config.groups)
  if (release := privacy_plan.release_of(config)) is not None:
    options['privacy'] = release
  if config.batch_order == 'poisson':
    options['expected_batch'] = config.batch_size
  return options


def clients_per_step(config: Config) -> int | None:
  """Return how many clients are trained at once; see `rounds.run_round`."""
  convolutions = models.REGISTRY.entry(config.model).convolutional
  default = client_loop.default_clients_per_step(convolutions=convolutions)
  if default is not None and config.local_work == 'gram':
    default = gram.LANES_PER_STEP
  return config.clients_per_step or default


def state_shapes(
  algorithm: rounds.Algorithm, params: Params = _LARGE, population: int = 1
) -> Tree:
  """Return the shapes of the state before the first round."""
  init = lambda params: rounds.init(algorithm, params, population)
  return jax.eval_shape(init, params)


def guarantee_of(
  config: Config,
  make: rounds.Make,
  partition: partitions.Partition | None = None,
  params: Params = _LARGE,
  test_of_clients: bool | None = None,
) -> PrivacyGuarantee | None:
  """Return the DP guarantee of a config; None if it claims no privacy.

  Example-level privacy requires the partition; params may be shapes. Raises
  ValueError without a guarantee.
  """
  if not config.is_private:
    return None
  hyper = hyper_of(config)
  if hyper.noise_multiplier is None:  # the releases do not depend on it
    hyper = hyper._replace(noise_multiplier=jnp.float32(1))
  algorithm = make(hyper)
  keeps_state = comms.has_client_state(state_shapes(algorithm, params))
  moves = keeps_state or algorithm.correction is not None
  return privacy_plan.guarantee(
    config,
    algorithm.releases,
    partition,
    keeps_state=keeps_state,
    sends_without_data=moves or config.weight_decay > 0,
    test_of_clients=test_of_clients,
  )


def check_grid(config: Config, hyper: Hyper, params: Params):
  """Raise ValueError if rounded correlated noise exceeds the integer grid."""
  options = algorithm_options(config)
  release = options.get('privacy')
  if release is None or config.noise != 'banded':
    return
  sent = params
  if (sketch := options.get('sketch')) is not None:
    sent = jax.eval_shape(with_hyper(sketch, hyper).zero_table, params)
  if jnp.isnan(release.with_hyper(hyper).grid(sent).step):
    raise ValueError(
      f'noise_multiplier={hyper.noise_multiplier:.4g} leaves no room to round '
      f'correlated noise on {comms.nbytes(sent) // 4:,} numbers over '
      f'{release.correlation.rounds} rounds; sketch to fewer, or set '
      'hash_rounds.'
    )


def check_interference(exp: Any) -> None:
  """Prove non-interference of a private round, or raise InterferenceError."""
  if exp.guarantee is None:
    return
  config, alone = exp.config, mesh.cohort_mesh(1)
  fn = rounds.run_round(exp.make, alone, fetch=exp.fetch, **exp.round_options)
  state = state_shapes(exp.make(exp.hyper), exp.params, config.population)
  cohort = exp.sample(0, 0)._replace(outcome=None)
  key = jax.eval_shape(lambda: jax.random.key(0))
  secret = jax.eval_shape(lambda: generators.known_roots(config.noise_seed)[0])
  check_program(exp, fn, exp.hyper, state, cohort, key, exp.data, secret)


def check_program(exp: Any, fn: Callable[..., Any], *args: Any) -> None:
  """Prove non-interference of a private run's own program."""
  config = exp.config
  name = f'Algorithm {config.algorithm!r}'
  unit, metrics = config.privacy_unit, config.shows_all
  noninterference.check_round(fn, *args, unit=unit, metrics=metrics, name=name)
