"""The method of a config: its algorithm, with options and hyperparameters."""

from typing import Any

from fl_sketch import algorithms, codecs, models, rounds, sketches
from fl_sketch.local import gram, schedules
from fl_sketch.models import lora, losses
from fl_sketch.privacy.mechanisms import private_metrics
from fl_sketch.rounds import client_loop, client_step, robust
from fl_sketch.rounds.algorithm import FromHyper, Hyper
from fl_sketch.runs import privacy_plan
from fl_sketch.runs.config import Config
from fl_sketch.runs.fields.run import given
from fl_sketch.runs.privacy_plan import PrivacyGuarantee
from fl_sketch.utils.types import Tree
import jax.numpy as jnp
import optax

PACKAGES = {'sketch': sketches, 'codec': codecs, 'downlink_codec': codecs}


def hyper_of(
  config: Config, guarantee: PrivacyGuarantee | None = None, frozen: Tree = None
) -> Hyper:
  """Return the hyperparameters of a config, its noise by a guarantee."""
  noise = config.noise_multiplier
  if guarantee is not None:
    noise = guarantee.noise_multiplier
  if noise is not None and (budget := privacy_plan.metrics_budget(config)):
    noise = budget.of_updates(noise)
  number = lambda x: None if x is None else jnp.float32(x)
  options = {
    name.removeprefix('options.'): jnp.float32(value)
    for name, value in declared(config).items()
  }
  return Hyper(
    client_lr=jnp.float32(config.client_lr),
    server_lr=jnp.float32(config.server_lr),
    clip_norm=number(config.clip_norm), noise_multiplier=number(noise),
    extra=options or None, frozen=frozen,
  )  # fmt: skip


def declared(config: Config) -> dict[str, Any]:
  """Return the options of a config that are hyperparameters, as FIELD.NAME."""
  entries = {
    'options': algorithms.entry(config.algorithm),
    'model_options': models.REGISTRY.entry(config.model),
  }
  for field, package in PACKAGES.items():
    if (options := getattr(config, field)) is not None:
      entries[field] = package.REGISTRY.entry(options['kind'])
  return {
    f'{field}.{name}': getattr(config, field)[name]
    for field, entry in entries.items()
    for name in entry.hyper
    if name in (getattr(config, field) or {})
  }


def algorithm(
  config: Config, loss_fn: losses.LossFn, scale: dict[str, float]
) -> rounds.Make:
  """Return hp -> `Algorithm` of a config, on a loss of inputs of a scale."""
  options, decay = algorithm_options(config), config.weight_decay
  if config.local_work != 'gram':
    return algorithms.make(
      config.algorithm, loss_fn, weight_decay=decay, **options
    )
  smoothed = scale | {'label_smoothing': config.label_smoothing}
  steps = lambda hp: gram.gram_sgd(
    hp.client_lr, config.local_steps, weight_decay=decay, **smoothed
  )
  return algorithms.make(config.algorithm, local=steps, **options)


def algorithm_options(config: Config) -> dict[str, Any]:
  """Return the arguments of `algorithms.make`, but for the local work's."""
  poisson, rule = config.batch_order == 'poisson', None
  if config.robust is not None and config.groups is not None:
    rule = robust.Rule(config.robust, config.groups)
  options = {
    'local_steps': config.local_steps,
    'population': config.population,
    'local_optimizer': config.local_optimizer,
    'client_clip': config.client_clip,
    'expected_batch': config.batch_size if poisson else None,
    'hash_rounds': config.hash_rounds,
    'sketch': part_of(config, 'sketch'),
    'codec': part_of(config, 'codec'),
    'downlink_codec': part_of(config, 'downlink_codec'),
    'schedule': _server_schedule(config),
    'robust': rule,
    'privacy': privacy_plan.release_of(config),
    **_server_optimizer(config),
    **(config.options or {}),
  }
  if config.lora and 'lora_scale' in algorithms.options(config.algorithm):
    rank, alpha = config.lora['rank'], config.lora.get('alpha')
    options['lora_scale'] = lora.scale_of(rank, alpha)
  return given(**options)


def part_of(config: Config, field: str) -> Any:
  """Return the sketch or codec of a field; a `FromHyper` if it has any."""
  part, package = getattr(config, field), PACKAGES[field]
  if part is None:
    return None
  if package.REGISTRY.entry(part['kind']).hyper:
    return FromHyper(package.make, part, field)
  return package.make(**part)


def _server_optimizer(config: Config) -> dict[str, Any]:
  """Return the optimizer, or its options where the algorithm takes those."""
  options = given(
    b1=config.b1, b2=config.b2, eps=config.eps, momentum=config.momentum
  )
  if config.server_optimizer is None:
    return options
  make = algorithms.make_server_optimizer
  return {'server_optimizer': make(config.server_optimizer, **options)}


def _server_schedule(config: Config) -> optax.Schedule | None:
  if config.final_server_lr is not None:
    final = config.final_server_lr / config.server_lr
    return optax.cosine_decay_schedule(1.0, config.rounds, alpha=final)
  if config.server_schedule is not None:
    return schedules.make(rounds=config.rounds, **config.server_schedule)
  return None


def client_schedule(config: Config) -> rounds.Schedule | None:
  """Return the schedule of the client's learning rate, if there is one."""
  if config.client_schedule is not None:
    factor = schedules.make(rounds=config.rounds, **config.client_schedule)
  elif config.lr_decay is not None:
    factor = lambda r: config.lr_decay**r
  else:
    return None
  return lambda hp, r: hp._replace(client_lr=hp.client_lr * factor(r))


def summary(config: Config) -> client_step.Summary:
  """Return how a round's metrics may show statistics of its clients."""
  if config.shows_all:
    return client_step.means_and_counts
  return privacy_plan.metrics_budget(config) or private_metrics.nothing


def clients_per_step(config: Config) -> int | None:
  """Return how many clients are trained at once; see `rounds.run_round`."""
  convolutions = models.REGISTRY.entry(config.model).convolutional
  default = client_loop.default_clients_per_step(convolutions=convolutions)
  if default is not None and config.local_work == 'gram':
    default = gram.LANES_PER_STEP
  return config.clients_per_step or default
