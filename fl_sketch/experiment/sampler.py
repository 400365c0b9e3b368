"""Samples cohorts and batches; evaluates clients on what they hold out."""

from collections.abc import Callable
from typing import Any

from fl_sketch import local as local_work
from fl_sketch.data import availability, batches, cohorts, ragged
from fl_sketch.data.ragged import Partition
from fl_sketch.experiment import privacy_plan, published
from fl_sketch.experiment.config import Config
from fl_sketch.experiment.problem import Problem
from fl_sketch.local import optimizers
from fl_sketch.models import lora
from fl_sketch.reporting import metrics
from fl_sketch.rounds import Cohort, Fetch
from fl_sketch.rounds.algorithm import Hyper, LossFn, with_hyper
from fl_sketch.utils import progress, seeding
import jax
import jax.numpy as jnp
import numpy as np

_PERSONAL = 2**41  # a use of the seed that no round has


def sampler(c: Config, partition: Partition) -> Callable[..., Cohort]:
  """Builds (round, sampling_seed) -> `Cohort`, a pure function of both.

  sampling_seed: the secret of a private run; None otherwise.
  """
  clients = None
  if c.byzantine:
    clients = availability.byzantine_clients(c.seed, c.population, c.byzantine)

  def sample(number: int, sampling_seed: seeding.Root | None = None) -> Cohort:
    wrong = c.is_private != (sampling_seed is not None)
    c.refuse((wrong, 'Pass sampling_seed if, and only if, the run is private.'))
    seed = seed_of(c, sampling_seed)
    # The order of 'cyclic' is public.
    of_cohort = c.seed if c.sampling == 'cyclic' else seed
    ids, weight, outcome = selection(c, number, of_cohort)
    # Only the batches of private steps must be unpredictable: a client sees its
    # own batches.
    batch_seed = seed if c.batch_order == 'poisson' else c.seed
    cohort = with_batches(c, partition, ids, weight, number, batch_seed)
    flags = None if clients is None else clients.take(ids, mode='clip')
    return cohort._replace(byzantine=flags, outcome=outcome)

  return sample


def seed_of(c: Config, sampling_seed: seeding.Root | None) -> seeding.Root:
  """The seed of cohorts, and of batches that must be unpredictable."""
  if isinstance(sampling_seed, bytes):  # which depends on c.seed already
    return sampling_seed
  return c.seed + (sampling_seed or 0)


def selection(
  c: Config, number: int, seed: seeding.Root
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
  """Draws who is selected in a round, and how each of them fares.

  Ids and weights are of `cohorts.sample`, weights 0 for those who fail; the
  outcomes are None where nobody can fail.
  """
  options: dict[str, Any] = {'max_cohort': privacy_plan.max_cohort(c)}
  if c.sampling == 'poisson':
    options['probability'] = c.sampling_probability
  elif c.sampling == 'random_allocation':
    options['epoch_rounds'] = c.allocation_rounds
  else:
    options = {'cohort': c.selected}
  drawn = c.sampling, seed, number, c.population
  ids, weight = cohorts.sample(*drawn, **options)
  if not availability.in_force(c):
    return ids, weight, None
  # By the public seed: accounts hold if all know them.
  law = c.given(['dropout', 'deadline'])
  law['cohort'] = c.cohort if c.over_sampling > 1 else None
  law['sigma'] = 1.0 if c.response_sigma is None else c.response_sigma
  outcome = availability.outcomes(c.seed, number, ids, weight > 0, **law)
  participated = outcome == availability.PARTICIPATED
  return ids, np.where(participated, weight, np.float32(0)), outcome


def with_batches(
  c: Config,
  partition: Partition,
  ids: np.ndarray,
  weight: np.ndarray,
  round_index: int,
  seed: seeding.Root | None = None,
) -> Cohort:
  """Builds the `Cohort` of ids, int32[C], with the indices of their batches.

  `seed` is of the draw of batches; None is the config's.
  """
  if c.weights == 'samples':
    sizes = partition.sizes.take(ids, mode='clip')  # padding has weight 0
    mean = partition.samples / partition.population
    weight = weight * (sizes / mean).astype(np.float32)
  if c.batch_size == 0:
    return Cohort(ids, weight, batches.full(partition, ids))
  seed, size = c.seed if seed is None else seed, (c.local_steps, c.batch_size)
  index = batches.draw(partition, ids, seed, round_index, *size, c.batch_order)
  return Cohort(ids, weight, index)


def note_small_clients(c: Config, partition: Partition):
  """Says once how many clients are smaller than a batch."""
  sizes = partition.sizes
  small = int(((sizes > 0) & (sizes < c.batch_size)).sum())
  if small and c.batch_order in ('replace', 'cycle') and c.shows_all:
    progress.note_once(
      f'batch_size={c.batch_size} exceeds the data of {small} of '
      f'{partition.population} clients: their samples repeat within a batch. '
      "To avoid it set a smaller batch_size, or batch_order='mask'."
    )


def fetch_of(c: Config, partition: Partition) -> Fetch:
  """The function that turns indices into samples, with a mask if padded."""
  ragged = c.batch_size == 0 and partition.smallest < partition.largest
  padded = ragged or c.batch_order in ('mask', 'poisson')
  return _fetch_with_mask if padded else _fetch


def _fetch(data, index):
  """Samples by index; `data` lies on the device, or in host memory."""
  on_host = lambda x: isinstance(x, np.ndarray)
  # NumPy's own take is twice as fast as its indexing.
  take = lambda x: np.asarray(x).take(index, 0) if on_host(x) else x[index]
  return {name: take(x) for name, x in data.items()}


def _fetch_with_mask(data, index):
  """Samples by index, with a mask: an index of -1 is padding."""
  return _fetch(data, index.clip(0)) | {'mask': index >= 0}


def split(
  c: Config, problem: Problem, partition: Partition
) -> tuple[Partition, Partition | None, Any]:
  """Splits a partition into what clients train on and what they hold out.

  That is a share of their samples, `client_holdout`; or, with `personal_steps`,
  what the clients of a store hold out: a partition of the arrays that come
  third, or None. Raises ValueError if no client holds a sample out.
  """
  if c.client_holdout:
    kept, held_out = ragged.hold_out(partition, c.client_holdout, c.seed)
    if not held_out.samples:
      raise c.refusal(
        f'{{client_holdout}} of {partition.largest} samples, the most that a '
        'client holds, rounds to 0; use a larger share.'
      )
    return kept, held_out, problem.data
  if c.personal_steps is None:
    return partition, None, None
  if problem.held_out is None:
    raise c.refusal(
      '{personal_steps} requires samples that clients hold out; set '
      'client_holdout > 0, or a store that has them.'
    )
  return partition, *problem.held_out


def personalize(c: Config, loss_fn: LossFn) -> Callable[..., Any] | None:
  """Builds (hp, params, batches, key) -> the client's own params, or None.

  By the local steps before its own evaluation; an optimizer begins anew.
  """
  if not c.personal_steps:
    return None
  if (optimizer := optimizers.of(c.local_optimizer)) is not None:
    optimizer = optimizer._replace(keep_state=False)
  options: dict[str, Any] = {'clip': c.client_clip, 'optimizer': optimizer}

  def own(hp, params, batches, key):
    if c.personal_lr is not None:
      hp = hp._replace(client_lr=jnp.float32(c.personal_lr))
    # Kernels that a server changes are no client's to train.
    trained, kernels = lora.split(params)
    loss = lora.beside(with_hyper(loss_fn, hp), kernels)
    task = local_work.Task(loss, c.personal_steps, c.weight_decay, **options)
    moved, _ = task.steps(hp)(trained, batches, key, None)
    return lora.join(kernels, jax.tree.map(jnp.subtract, trained, moved))

  return own


def personal_batches(
  c: Config, partition: Partition, ids: np.ndarray
) -> np.ndarray:
  """Draws int32[C, steps, batch] for `personalize`, the same at each round."""
  if c.batch_size == 0:
    return batches.full(partition, ids)
  assert c.personal_steps  # else nobody draws
  # Those of 'poisson' are drawn by a secret, which evaluations do not have.
  order = 'replace' if c.batch_order == 'poisson' else c.batch_order
  sizes = c.personal_steps, c.batch_size
  return batches.draw(partition, ids, c.seed, _PERSONAL, *sizes, order)


def check_metric(c: Config, problem: Problem, hyper: Hyper):
  """Refuses `keep_best` of a metric that no evaluation has, or publishes."""
  if c.keep_best is None:
    return
  batch = {k: x[0] for k, x in problem.test.items()}
  metrics_fn = with_hyper(problem.metrics_fn, hyper)
  sums = jax.eval_shape(metrics_fn, problem.params, batch)
  names = [f'test_{k}' for k in sums if k != 'count']
  one = dict.fromkeys(sums, np.ones(1))
  if c.client_holdout or c.personal_steps is not None:
    names += metrics.over_clients(one)
  if c.personal_steps:
    names += metrics.over_clients(one, 'personal')
  metric, whose = metrics.ranked_by(c.keep_best)[0], problem.test_of_clients
  if metric in names and published.is_left_out(c, whose, metric):
    raise c.refusal(
      '{keep_best}: training clients hold the test set, which '
      '{public_metrics} leaves out; remove keep_best, or use other test data.'
    )
  if metric not in names:
    raise c.refusal(f'{{keep_best}} is no metric; use one of {names}.')
