"""The fields of the problem and of the clients."""

import dataclasses
import os
from typing import Annotated

from fl_sketch import models
from fl_sketch.data import availability, cohorts, partitions, sources, text
from fl_sketch.models import layers
from fl_sketch.runs.fields import run
from fl_sketch.utils import fields as f
from fl_sketch.utils.fields import field

_is_file = lambda path: os.path.isfile(os.path.expanduser(path))
_File = Annotated[str, f.Rule('a file that is there', _is_file)]
_Partition = Annotated[str, f.choice(partitions.KINDS)]
_Attack = Annotated[str, f.choice(availability.BEHAVIOURS)]
PARTITION_OPTIONS = 'shards_per_client', 'classes', 'alpha', 'sigma'


@dataclasses.dataclass(frozen=True)
class ProblemFields(run.RunFields):
  """The problem: data set, model and loss."""

  dataset: str = field('a registered data set', 'digits')
  dataset_options: f.Options = field('by name')
  train_slice: f.Slice | None = field("'0:10000': only these training samples")
  test_slice: f.Slice | None = field('only these samples of the test set')
  model: str = field('one of models.names()', 'mlp')
  model_options: f.Options = field('by name')
  pretrained: _File | None = field('safetensors file of the initial parameters')
  lora: f.Options = field('kind and options of the only trained adapters')
  loss: str = field('one of losses.names()', 'cross_entropy')
  label_smoothing: f.Share = field('of targets', 0.0, loss='cross_entropy')
  standardize: bool = field('False: pixels from 0 to 1, not standardized', True)
  compute_dtype: Annotated[str, f.choice(layers.DTYPES)] = field(
    'bfloat16: parameters and sums stay float32', 'float32'
  )

  def check(self):
    """Check data set, model and loss against each other."""
    super().check()
    is_text = self.dataset in text.NAMES
    others = models.OF_IMAGES if is_text else models.OF_TOKENS
    of_files = is_text or self.dataset in sources.NAMES
    self.refuse(
      (of_files and self.model in others,
       '{model} does not suit {dataset}: one has tokens, the other images.'),
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class ClientFields(ProblemFields):
  """The clients: who holds what, who takes part, and who fails."""

  population: f.Count = field('clients in total', 50)
  partition: _Partition = field('how samples are split among clients', 'iid')
  samples_per_client: f.Count | None = field('most samples of a client')
  shards_per_client: f.Count | None = field(
    'default 5', partition='label_shards'
  )
  classes: f.Count | None = field(
    'of a client; default 2', partition='classes_per_client'
  )
  alpha: f.Positive | None = field('default 0.5', partition='dirichlet')
  sigma: f.Finite | None = field('of log sizes', partition='size_skew')
  client_holdout: f.Share = field('share of samples that clients hold out', 0.0)
  personal_steps: f.Size | None = field('steps before a second evaluation')
  personal_lr: f.Positive | None = field('of these steps (default: client_lr)')

  cohort: f.Count = field(
    'clients in a round, in expectation', 25, section='Participation.'
  )
  sampling: Annotated[str, f.choice(cohorts.KINDS)] = field(
    'random_allocation: every client takes part in one round of each epoch; '
    'cyclic: in a fixed order, every ceil(population / cohort)-th round',
    'fixed_size',
  )
  max_cohort: f.Count | None = field(
    'size above which random cohorts are cut off (default: one in 1e9)',
    sampling=cohorts.RANDOM_SIZE,
  )
  epoch_rounds: f.Count | None = field(
    'default: population / cohort', sampling='random_allocation'
  )
  weights: Annotated[str, f.choice(('equal', 'samples'))] = field(
    'samples: the weight of a client is its number of samples', 'equal'
  )

  over_sampling: f.Multiple = field(
    'clients selected, in cohorts; the first to answer count',
    1.0,
    section='Client failures (`data.availability`).',
    sampling='fixed_size',
  )
  dropout: f.Share = field('probability that a client never answers', 0.0)
  deadline: f.Positive | None = field('of answers, in median response times')
  byzantine: f.Share = field('share of the population that attacks', 0.0)
  attack: _Attack | None = field('what byzantine clients send')

  @property
  def allocation_rounds(self) -> int:
    """Return the rounds of an epoch of random allocation."""
    return self.epoch_rounds or max(1, round(self.population / self.cohort))

  @property
  def sampling_probability(self) -> float:
    """Return the probability of a client in a round of a random cohort."""
    if self.sampling == 'random_allocation':
      return 1 / self.allocation_rounds
    return self.cohort / self.population

  @property
  def selected(self) -> int:
    """Return how many clients a round selects; the first to answer count."""
    return availability.selected(self.cohort, self.over_sampling)

  @property
  def full_participation(self) -> bool:
    """Return whether every client takes part in every round."""
    return self.sampling == 'fixed_size' and self.cohort == self.population

  @property
  def everyone(self) -> bool:
    """Return whether all clients are in every round and none drops out."""
    return self.full_participation and not availability.in_force(self)

  def check(self):
    """Check partition, participation and failures."""
    super().check()
    steps = bool(self.personal_steps)
    self.check_effect(['personal_lr'], steps, 'personal_steps >= 1')
    expected = round(self.population / self.allocation_rounds)
    attackers = round(self.byzantine * self.population)
    self.refuse(
      (self.cohort > self.population,
       '{cohort} exceeds {population}; use a smaller cohort.'),
      (self.max_cohort is not None
       and not self.cohort <= self.max_cohort <= self.population,
       '{max_cohort} is not in {cohort} to {population}; change one of them.'),
      (self.sampling == 'random_allocation' and self.cohort != expected,
       '{sampling} requires {cohort} to be {population} / epoch_rounds='
       f'{self.allocation_rounds}, rounded; set cohort={expected}.'),
      (self.selected > self.population,
       '{cohort} x {over_sampling} exceeds {population}.'),
      ((self.byzantine > 0) != (self.attack is not None),
       'Set {byzantine} and {attack} together, or neither.'),
      (self.byzantine and attackers in (0, self.population),
       f'{{byzantine}} rounds to {attackers} of {{population}}; change it.'),
    )  # fmt: skip
