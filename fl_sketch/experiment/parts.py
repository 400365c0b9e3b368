"""Builds the parts of an experiment that its config decides; its guarantee."""

import functools
from typing import Any

from fl_sketch import algorithms, codecs, models, rounds, sketches
from fl_sketch.data import partitions
from fl_sketch.experiment import privacy_plan
from fl_sketch.experiment.config import Config
from fl_sketch.experiment.fields.method import OPTIMIZER_OPTIONS
from fl_sketch.experiment.privacy_plan import PrivacyGuarantee
from fl_sketch.experiment.problem import Problem
from fl_sketch.local import gram, schedules
from fl_sketch.models import lora
from fl_sketch.privacy import noninterference
from fl_sketch.privacy.mechanisms import generators, private_metrics
from fl_sketch.rounds import client_loop, client_step, comms, mesh, robust
from fl_sketch.rounds.algorithm import FromHyper, Hyper, OfFrozen, with_hyper
import jax
import jax.numpy as jnp
import optax

_PACKAGES = {'sketch': sketches, 'codec': codecs, 'downlink_codec': codecs}
_LARGE = jax.ShapeDtypeStruct((2**26,), jnp.float32)  # any sketch fits
_A = 0x10FA  # folded into the key of the first parameters


def hyper_of(c: Config, guarantee: PrivacyGuarantee | None = None) -> Hyper:
  """The hyperparameters of a config: its fields of those names.

  The noise of a private run, which may be calibrated, is of its `guarantee`.
  """
  numbers = c.given({*Hyper._fields} - {'extra', 'frozen'})
  if guarantee is not None:
    numbers['noise_multiplier'] = guarantee.noise_multiplier
  budget = privacy_plan.metrics_budget(c)
  if budget is not None and 'noise_multiplier' in numbers:
    numbers['noise_multiplier'] = budget.of_updates(numbers['noise_multiplier'])
  arrays = lambda xs: {k: jnp.float32(v) for k, v in xs.items()}
  own = {k.removeprefix('options.'): v for k, v in declared(c).items()}
  return Hyper(**arrays(numbers), extra=arrays(own) or None)


def declared(c: Config) -> dict[str, Any]:
  """The options of a config that are hyperparameters, as FIELD.NAME."""
  parts = {
    'options': algorithms.entry(c.algorithm),
    'model_options': models.REGISTRY.entry(c.model),
  }
  for field, options in c.given(_PACKAGES).items():
    parts[field] = _PACKAGES[field].REGISTRY.entry(options['kind'])
  return {
    f'{field}.{name}': getattr(c, field)[name]
    for field, entry in parts.items()
    for name in entry.hyper
    if name in (getattr(c, field) or {})
  }


def summary(c: Config) -> client_step.Summary:
  """Returns how a round's metrics may show statistics of its clients."""
  if c.shows_all:
    return client_step.means_and_counts
  return privacy_plan.metrics_budget(c) or private_metrics.nothing


def schedule(c: Config) -> rounds.Schedule | None:
  """The schedule of the client's learning rate, if there is one."""
  if c.client_schedule is not None:
    factor = schedules.make(rounds=c.rounds, **c.client_schedule)
  elif c.lr_decay is not None:
    factor = lambda r: c.lr_decay**r
  else:
    return None
  return lambda hp, r: hp._replace(client_lr=hp.client_lr * factor(r))


def adapted(c: Config, whole: Problem) -> Problem:
  """The problem of training adapters in place of the model.

  Its losses read the others from `Hyper.frozen`. Raises as `models.lora.lora`.
  """
  key = jax.random.fold_in(jax.random.key(c.seed), _A)
  parts = lora.make(**c.lora or {}, params=whole.params, key=key)
  factored = lambda fn: lora.factored(fn, parts.scale)
  merge = lambda params: lora.merge(params, parts.scale)

  def merged(fn):
    @functools.wraps(fn)
    def on_merged(params, *args, **kwargs):
      return fn(merge(params), *args, **kwargs)

    return on_merged

  def of_adapters(part, adapt):
    of = lambda hp: lora.beside(adapt(with_hyper(part, hp)), hp.frozen)
    return OfFrozen(of)

  apply_fn = whole.apply_fn
  return whole._replace(
    params=parts.trainable, frozen=parts.frozen,
    merge=lambda frozen, params: merge(lora.join(frozen, params)),
    loss_fn=of_adapters(whole.loss_fn, factored),
    metrics_fn=of_adapters(whole.metrics_fn, merged),
    apply_fn=None if apply_fn is None else of_adapters(apply_fn, merged),
  )  # fmt: skip


def algorithm(c: Config, problem: Problem) -> rounds.Make:
  """The function hp -> `Algorithm` of a config, on the loss of a problem."""
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
  if c.server_schedule is not None:
    options['schedule'] = schedules.make(rounds=c.rounds, **c.server_schedule)
  own = c.given(_PACKAGES)
  options |= {field: _made(field, given) for field, given in own.items()}
  options |= c.given(['hash_rounds', 'local_optimizer', 'client_clip'])
  if c.lora is not None and 'lora_scale' in algorithms.options(c.algorithm):
    options['lora_scale'] = lora.scale_of(c.lora['rank'], c.lora.get('alpha'))
  if c.robust is not None and c.groups is not None:
    options['robust'] = robust.Rule(c.robust, c.groups)
  if (release := privacy_plan.release_of(c)) is not None:
    options['privacy'] = release
  if c.batch_order == 'poisson':
    options['expected_batch'] = c.batch_size
  return options | {'local_steps': c.local_steps, 'population': c.population}


def noisy_numbers(c: Config) -> int | None:
  """How many numbers of a private mean get noise; None if the model decides.

  Those of a table whose size is the same for every model.

  >>> table = {'kind': 'count_sketch', 'rows': 3, 'cols': 7}
  >>> noisy_numbers(Config(algorithm='safl', sketch=table))
  21
  """
  if c.sketch is None or c.before_sketch:
    return None
  op = with_hyper(_made('sketch', c.sketch), hyper_of(c))
  leaf = lambda size: jax.ShapeDtypeStruct((size,), jnp.float32)
  sizes = {
    sum(x.size for x in jax.tree.leaves(jax.eval_shape(op.zero_table, model)))
    for model in ([leaf(2**26)], [leaf(2**25), leaf(2**24)])
  }
  return sizes.pop() if len(sizes) == 1 else None


def _made(field, options):
  """A sketch or codec; a `FromHyper` if it declares hyperparameters."""
  package = _PACKAGES[field]
  if package.REGISTRY.entry(options['kind']).hyper:
    return FromHyper(package.make, options, field)
  return package.make(**options)


def clients_per_step(c: Config) -> int | None:
  """How many clients the loop over clients trains at once; see `run_round`."""
  convolutions = models.REGISTRY.entry(c.model).convolutional
  default = client_loop.default_clients_per_step(convolutions=convolutions)
  if default is not None and c.local_work == 'gram':
    default = gram.LANES_PER_STEP
  return c.clients_per_step or default


def state_shapes(
  algorithm: rounds.Algorithm, params: Any = _LARGE, population: int = 1
) -> Any:
  """The shapes of the state before the first round."""
  init = lambda params: rounds.init(algorithm, params, population)
  return jax.eval_shape(init, params)


def guarantee_of(
  c: Config,
  make: rounds.Make,
  partition: partitions.Partition | None = None,
  params: Any = _LARGE,
  test_of_clients: bool | None = None,
) -> PrivacyGuarantee | None:
  """The DP guarantee of a config, with the releases of its algorithm.

  `make` is hp -> `Algorithm`; `partition` is needed for example-level privacy.
  Of `params` shapes will do. `test_of_clients` is as of `published.sentences`.
  Raises ValueError, which names why, if nothing can be guaranteed.
  """
  if not c.is_private:
    return None
  hyper = hyper_of(c)
  if hyper.noise_multiplier is None:  # its size does not change the releases
    hyper = hyper._replace(noise_multiplier=jnp.float32(1))
  algorithm = make(hyper)
  keeps_state = comms.has_client_state(state_shapes(algorithm, params))
  moves = keeps_state or algorithm.correction is not None or c.weight_decay > 0
  behaviour = {'keeps_state': keeps_state, 'sends_without_data': moves}
  behaviour |= {'test_of_clients': test_of_clients}
  return privacy_plan.guarantee(c, algorithm.releases, partition, **behaviour)


def check_grid(c: Config, hyper: Hyper, params: Any):
  """Raises ValueError if rounded correlated noise exceeds the integer grid."""
  options = algorithm_options(c)
  release = options.get('privacy')
  if release is None or release.correlation is None:
    return
  like = params
  if (sketch := options.get('sketch')) is not None:
    like = jax.eval_shape(with_hyper(sketch, hyper).zero_table, params)
  if jnp.isnan(release.with_hyper(hyper).grid(like).step):
    z: Any = hyper.noise_multiplier
    raise ValueError(
      f'noise_multiplier={float(z):.4g} leaves no room on the grid to round '
      f'correlated noise on {comms.nbytes(like) // 4:,} numbers over '
      f'{release.correlation.rounds} rounds; sketch to fewer numbers, or set '
      'hash_rounds.'
    )


def check_rows(c: Config, state: Any):
  """Refuses client state in a private run with cohorts of a fixed size."""
  fixed = c.sampling == 'fixed_size' and c.cohort < c.population
  if c.is_private and fixed and comms.has_client_state(state):
    raise c.refusal(
      'A private {c.algorithm} keeps client state, which depends on past '
      "cohorts: use sampling='poisson' or cohort=population."
    )


def check_interference(exp: Any) -> noninterference.Proof | None:
  """Shows non-interference of a round on one device; None without privacy.

  Raises InterferenceError if `noninterference.check_round` cannot show it.
  """
  if exp.guarantee is None:
    return None
  c, alone = exp.config, mesh.cohort_mesh(1)
  fn = rounds.run_round(exp.make, alone, fetch=exp.fetch, **exp.round_options)
  state = state_shapes(exp.make(exp.hyper), exp.params, c.population)
  cohort = exp.sample(0, 0)._replace(outcome=None)
  key = jax.eval_shape(lambda: jax.random.key(0))
  secret = jax.eval_shape(lambda: generators.known_roots(c.noise_seed)[0])
  args = exp.hyper, state, cohort, key, exp.data, secret
  return check_program(exp, fn, *args)


def check_program(exp: Any, fn: Any, *args: Any) -> noninterference.Proof:
  """Shows non-interference of a private run's own program, on its devices."""
  c = exp.config
  unit, name = c.privacy_unit or 'client', f'Algorithm {c.algorithm!r}'
  shown = {'unit': unit, 'metrics': c.shows_all, 'name': name}
  return noninterference.check_round(fn, *args, **shown)
