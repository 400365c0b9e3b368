"""Sample cohorts and batches; evaluate clients on what they hold out."""

from collections.abc import Callable
from typing import Any

from fl_sketch import local as local_work
from fl_sketch.data import availability, batches, cohorts, partitions
from fl_sketch.data.partitions import Partition
from fl_sketch.local import optimizers
from fl_sketch.models import lora
from fl_sketch.rounds import Cohort, Fetch, fates
from fl_sketch.rounds.algorithm import Hyper, LossFn, with_hyper
from fl_sketch.runs import privacy_plan
from fl_sketch.runs.config import Config
from fl_sketch.runs.problem import Problem
from fl_sketch.utils import seeding
from fl_sketch.utils.types import Batch, Key, Params
import jax
import jax.numpy as jnp
import numpy as np

_PERSONAL = 2**41  # in place of a round, for the draws of `personal_batches`
Indices = np.ndarray | jax.Array  # of samples
Personalize = Callable[[Hyper, Params, Batch, Key], Params]


def sampler(config: Config, partition: Partition) -> Callable[..., Cohort]:
  """Return (round, secret of a private run or None) -> `Cohort`, pure."""
  attackers = None
  if config.byzantine:
    attackers = availability.byzantine_clients(
      config.seed, config.population, config.byzantine
    )

  def sample(number: int, sampling_seed: seeding.Root | None = None) -> Cohort:
    if config.is_private != (sampling_seed is not None):
      raise ValueError('Pass sampling_seed if, and only if, a run is private.')
    seed = seed_of(config, sampling_seed)
    # The order of 'cyclic' is public.
    cohort_seed = config.seed if config.sampling == 'cyclic' else seed
    ids, weight, outcome = selection(config, number, cohort_seed)
    # A client sees its own batches, so only those of private steps are secret.
    batch_seed = seed if config.batch_order == 'poisson' else config.seed
    cohort = with_batches(config, partition, ids, weight, number, batch_seed)
    flags = None if attackers is None else attackers.take(ids, mode='clip')
    return cohort._replace(byzantine=flags, outcome=outcome)

  return sample


def seed_of(config: Config, sampling_seed: seeding.Root | None) -> seeding.Root:
  """Return the seed of cohorts, and of batches that must be unpredictable."""
  if isinstance(sampling_seed, bytes):  # it depends on config.seed already
    return sampling_seed
  return config.seed + (sampling_seed or 0)


def selection(
  config: Config, number: int, seed: seeding.Root
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
  """Draw a round's clients: ids, weights (0: failed) and outcomes or None."""
  options: dict[str, Any] = {'cohort': config.selected}
  if config.sampling in ('poisson', 'random_allocation'):
    options = {'max_cohort': privacy_plan.max_cohort(config)}
    if config.sampling == 'poisson':
      options['probability'] = config.sampling_probability
    else:
      options['epoch_rounds'] = config.allocation_rounds
  rule = cohorts.KINDS[config.sampling]
  ids, weight = rule(seed, number, config.population, **options)
  if not availability.in_force(config):
    return ids, weight, None
  # Accounts hold though everybody knows the outcomes: the seed is public.
  outcome = availability.outcomes(
    config.seed, number, ids, weight > 0, dropout=config.dropout,
    deadline=config.deadline,
    cohort=config.cohort if config.over_sampling > 1 else None,
  )  # fmt: skip
  participated = outcome == fates.PARTICIPATED
  return ids, np.where(participated, weight, np.float32(0)), outcome


def with_batches(
  config: Config,
  partition: Partition,
  ids: np.ndarray,
  weight: np.ndarray,
  round_index: int,
  seed: seeding.Root | None = None,
) -> Cohort:
  """Return the `Cohort` of ids, int32[C]; seed None: the config's."""
  if config.weights == 'samples':
    sizes = partition.sizes.take(ids, mode='clip')  # padding has weight 0
    mean = partition.samples / partition.population
    weight = weight * (sizes / mean).astype(np.float32)
  if config.batch_size == 0:
    return Cohort(ids, weight, batches.full(partition, ids))
  seed = config.seed if seed is None else seed
  sizes = config.local_steps, config.batch_size
  order = config.batch_order
  index = batches.draw(partition, ids, seed, round_index, *sizes, order)
  return Cohort(ids, weight, index)


def fetch_of(config: Config, partition: Partition) -> Fetch:
  """Return (data, indices) -> samples, with a mask if some are padding."""
  ragged = config.batch_size == 0 and partition.smallest < partition.largest
  if not ragged and config.batch_order not in ('mask', 'poisson'):
    return fetch
  # An index of -1 is padding.
  return lambda data, i: fetch(data, i.clip(0)) | {'mask': i >= 0}


def fetch(data: Batch, index: Indices) -> dict[str, Any]:
  """Return samples by index; `data` lies on the device, or in host memory."""
  # On the host `take` is twice as fast as indexing; a memmap becomes an array.
  return {
    name: np.asarray(x).take(index, 0)
    if isinstance(x, np.ndarray)
    else x[index]
    for name, x in data.items()
  }


def split(
  config: Config, problem: Problem, partition: Partition
) -> tuple[Partition, Partition | None, dict[str, np.ndarray] | None]:
  """Return what clients train on, what they hold out, and its arrays.

  They hold out a share `client_holdout`; else, with `personal_steps`, what the
  clients of a store hold out. Raises ValueError if that is no sample.
  """
  if config.client_holdout:
    trained, held_out = partitions.hold_out(
      partition, config.client_holdout, config.seed
    )
    if not held_out.samples:
      raise config.refusal(
        f'{{client_holdout}} of {partition.largest} samples is none; use more.'
      )
    return trained, held_out, problem.data
  if config.personal_steps is None:
    return partition, None, None
  if problem.held_out is None:
    raise config.refusal(
      '{personal_steps} requires samples that clients hold out; set '
      'client_holdout > 0, or a store that has them.'
    )
  return partition, *problem.held_out


def personalize(config: Config, loss_fn: LossFn) -> Personalize | None:
  """Return (hp, params, batches, key) -> the client's own params, or None.

  A client makes `personal_steps` local steps; its optimizer begins anew.
  """
  if not config.personal_steps:
    return None
  steps, weight_decay = config.personal_steps, config.weight_decay
  optimizer = optimizers.as_optimizer(config.local_optimizer)
  if optimizer is not None:
    optimizer = optimizer._replace(keep_state=False)

  def own_params(hp: Hyper, params: Params, batches: Batch, key: Key) -> Params:
    if config.personal_lr is not None:
      hp = hp._replace(client_lr=jnp.float32(config.personal_lr))
    # Clients do not train kernels that the server changes.
    trained, kernels = lora.split(params)
    loss = lora.beside(with_hyper(loss_fn, hp), kernels)
    task = local_work.Task(
      loss, steps, weight_decay, clip=config.client_clip, optimizer=optimizer
    )
    moved, _ = task.steps(hp)(trained, batches, key, None)
    return lora.join(kernels, jax.tree.map(jnp.subtract, trained, moved))

  return own_params


def personal_batches(
  config: Config, partition: Partition, ids: np.ndarray
) -> np.ndarray:
  """Return int32[C, steps, batch] for `personalize`, the same in each round."""
  if config.batch_size == 0:
    return batches.full(partition, ids)
  assert config.personal_steps
  # 'poisson' draws by a secret, which evaluations do not have.
  order = 'replace' if config.batch_order == 'poisson' else config.batch_order
  sizes = config.personal_steps, config.batch_size
  return batches.draw(partition, ids, config.seed, _PERSONAL, *sizes, order)
