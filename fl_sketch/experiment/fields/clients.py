"""The fields of the problem and of the clients."""

from collections.abc import Mapping
import dataclasses
import os
from typing import Annotated, Any

from fl_sketch import models
from fl_sketch.data import availability, cohorts, partitions, sources, text
from fl_sketch.data.registry import REGISTRY
from fl_sketch.experiment.fields import run
from fl_sketch.models import layers, losses
from fl_sketch.utils import fields as f

_is_file = lambda path: os.path.isfile(os.path.expanduser(path))
_File = Annotated[str, f.Rule('a file that is there', _is_file)]
_Attack = Annotated[str, f.choice(availability.BEHAVIOURS)]
# Option -> the partition that has it.
PARTITION_OPTIONS = {
  'shards_per_client': 'label_shards', 'classes': 'classes_per_client',
  'alpha': 'dirichlet', 'sigma': 'size_skew',
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class ProblemFields(run.RunFields):
  """The problem: data set, model and loss."""

  # digits, mnist, fashion_mnist, cifar10, cifar100, sst2, text, quadratics,
  # simulated, store; or a registered one
  dataset: str = 'digits'
  dataset_options: Mapping[str, Any] | None = None  # by name
  train_slice: f.Slice | None = None  # '0:10000': only these training samples
  # only these test samples; does not apply to what clients of a store hold out
  test_slice: f.Slice | None = None
  model: str = 'mlp'  # one of models.names()
  model_options: Mapping[str, Any] | None = None  # by name
  pretrained: _File | None = None  # safetensors file of the initial parameters
  # kind and options of the adapters that are trained; all else is frozen
  lora: Mapping[str, Any] | None = None
  loss: str = 'cross_entropy'  # one of losses.names()
  label_smoothing: f.Share = 0.0  # of cross_entropy
  standardize: bool = True  # False: pixels from 0 to 1, not standardized
  # bfloat16: parameters and sums stay float32
  compute_dtype: Annotated[str, f.choice(layers.DTYPES)] = 'float32'

  def check(self):
    """Checks data set, model and loss against each other."""
    super().check()
    self.refuse(
      (self.label_smoothing and self.loss != 'cross_entropy',
       "{label_smoothing} requires loss='cross_entropy', not {loss}."),
      (self.pretrained is not None and self.dataset == 'quadratics',
       '{pretrained} has no effect on {dataset}, which has no model; remove '
       'pretrained.'),
      (self.dataset in sources.NAMES and self.model in models.OF_TOKENS,
       '{model} takes tokens, but {dataset} has images; use another model, or '
       f'dataset in {text.NAMES}.'),
    )  # fmt: skip
    if self.dataset in text.NAMES:
      self._check_text()
    if self.model in models.OF_SEQUENCES:
      last = (self.model_options or {}).get('last', False)
      kind = 'cross_entropy' if last else 'tokens'
      self.refuse(
        (last and self.dataset in text.NAMES,
         '{model_options} gives one output a sequence, but {dataset} has '
         'labels of every token; remove last.'),
        (self.loss in losses.OF_LABELS and self.loss != kind,
         f'{{loss}} does not suit {{model}}; set loss={kind!r}.'),
      )  # fmt: skip

  def _check_text(self):
    options = self.dataset_options or {}
    numbered = {'tokenizer', 'letters'} & options.keys()
    numbered = numbered or 'vocab_size' in (self.model_options or {})
    self.refuse(
      ({'vocabulary', 'tokenizer'} <= options.keys(),
       '{dataset_options} has vocabulary and tokenizer; set one of them.'),
      (self.pretrained is not None and not numbered,
       "{pretrained} requires its words' dataset_options.tokenizer, or "
       'model_options.vocab_size for a vocabulary made of the data.'),
      (self.model in models.OF_IMAGES,
       '{model} takes images, but {dataset} has tokens; use a model of tokens.'
       ),
      (self.dataset == 'sst2' and self.model in models.OF_SEQUENCES,
       '{model} predicts tokens, but {dataset} has one label a sentence; use '
       'a bert.'),
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class ClientFields(ProblemFields):
  """The clients: who holds what, who takes part, and who fails."""

  population: f.Count = 50  # clients in total
  # how samples are split among clients
  partition: Annotated[str, f.choice(partitions.KINDS)] = 'iid'
  samples_per_client: f.Count | None = None  # at most, in every partition
  shards_per_client: f.Count | None = None  # of label_shards (default 5)
  classes: f.Count | None = None  # a client, of classes_per_client (default 2)
  alpha: f.Positive | None = None  # of dirichlet (default 0.5)
  # of size_skew: deviation of log sizes (default 1)
  sigma: f.Finite | None = None
  # share of each client's samples that is only evaluated
  client_holdout: f.Share = 0.0
  # local steps of each client before it is evaluated a second time on what it
  # holds out; 0: one evaluation, of what a store's clients hold out
  personal_steps: f.Size | None = None
  personal_lr: f.Positive | None = None  # of these steps (default: client_lr)

  # Participation.
  # clients in a round; expected number if cohorts have a random size
  cohort: f.Count = 25
  # random_allocation: every client takes part in one round of each epoch;
  # cyclic: in a fixed order, every ceil(population / cohort)-th round
  sampling: Annotated[str, f.choice(cohorts.KINDS)] = 'fixed_size'
  # of random cohorts, larger ones are cut off (default: one in 1e9)
  max_cohort: f.Count | None = None
  # of random_allocation (default: population / cohort)
  epoch_rounds: f.Count | None = None
  # samples: the weight of a client is its number of samples
  weights: Annotated[str, f.choice(('equal', 'samples'))] = 'equal'

  # Client failures (`data.availability`).
  # clients selected, in cohorts; the first to answer count
  over_sampling: f.Multiple = 1.0
  dropout: f.Share = 0.0  # probability that a selected client never answers
  deadline: f.Positive | None = None  # of stragglers, in median response times
  response_sigma: f.Finite | None = None  # deviation of log response times
  byzantine: f.Share = 0.0  # share of the population that is byzantine
  attack: _Attack | None = None  # what byzantine clients send

  @property
  def allocation_rounds(self) -> int:
    """The rounds of an epoch of random allocation."""
    return self.epoch_rounds or max(1, round(self.population / self.cohort))

  @property
  def sampling_probability(self) -> float:
    """The probability of a client in a round, if cohorts are random."""
    if self.sampling == 'random_allocation':
      return 1 / self.allocation_rounds
    return self.cohort / self.population

  @property
  def selected(self) -> int:
    """The clients that a round selects, of which the first to answer count."""
    return availability.selected(self.cohort, self.over_sampling)

  @property
  def full_participation(self) -> bool:
    """Whether every client takes part in every round."""
    return self.sampling == 'fixed_size' and self.cohort == self.population

  def check(self):
    """Checks partition, participation and failures."""
    super().check()
    fixed = REGISTRY.entry(self.dataset).clients
    for name in ('train_slice', 'partition') if fixed else ():
      if getattr(self, name) != getattr(ClientFields, name):
        raise self.refusal(
          f'{{{name}}} is not supported by {{dataset}}, whose clients hold '
          f'fixed samples; remove {name}.'
        )
    for name, kind in PARTITION_OPTIONS.items():
      self.check_needed(name, partition=kind)
    self.check_effect(['personal_lr'], bool(self.personal_steps),
      'personal_steps >= 1')  # fmt: skip
    self._check_participation()
    self._check_failures()

  def _check_participation(self):
    random = cohorts.RANDOM_SIZE
    self.check_effect(
      ['max_cohort'], self.sampling in random, f'sampling is in {random}'
    )
    self.check_needed('epoch_rounds', sampling='random_allocation')
    expected = round(self.population / self.allocation_rounds)
    self.refuse(
      *((value > self.population,
         f'{{{name}}} exceeds {{population}}; use a smaller {name}.')
        for name, value in self.given(['cohort', 'max_cohort']).items()),
      (self.max_cohort is not None and self.max_cohort < self.cohort,
       '{max_cohort} is below {cohort}, the expected size, so that most '
       'cohorts would be cut off; use a larger max_cohort.'),
      (self.sampling == 'random_allocation' and self.cohort != expected,
       f'{{cohort}} is not {{population}} / epoch_rounds='
       f'{self.allocation_rounds}, rounded; set cohort={expected}.'),
    )  # fmt: skip

  def _check_failures(self):
    self.check_needed('over_sampling', sampling='fixed_size')
    if self.selected > self.population:
      raise self.refusal('{cohort} x {over_sampling} exceeds {population}.')
    answers_count = self.over_sampling > 1 or self.deadline is not None
    self.check_effect(
      ['response_sigma'], answers_count, 'over_sampling or deadline is set'
    )
    too_early = self.deadline is not None and self.deadline < 1
    count = round(self.byzantine * self.population)
    share = 'smaller' if count else 'larger'
    self.refuse(
      (self.response_sigma == 0 and too_early,
       '{deadline}: with response_sigma=0 every response takes 1; set '
       'deadline >= 1.'),
      ((self.byzantine > 0) != (self.attack is not None),
       'Set byzantine and attack together, or neither; got {byzantine}, '
       '{attack}.'),
      (self.byzantine and count in (0, self.population),
       f'{{byzantine}} of {{population}} rounds to {count} clients; use a '
       f'{share} share.'),
    )  # fmt: skip
