"""Samples the cohort of a round and the batches of its clients."""

from collections.abc import Callable
from typing import Any

from fl_sketch.data import availability, batches, cohorts
from fl_sketch.data.ragged import Partition
from fl_sketch.experiment import privacy_plan
from fl_sketch.experiment.config import Config
from fl_sketch.rounds import Cohort, Fetch
from fl_sketch.utils import progress, seeding
import numpy as np


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
