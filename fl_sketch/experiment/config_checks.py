"""Checks the fields of a config against each other."""

from typing import Any

from fl_sketch import algorithms, models
from fl_sketch.data import (
  availability,
  cohorts,
  registry as datasets,
  sources,
  text,
)
from fl_sketch.experiment import privacy_checks
from fl_sketch.local import optimizers, schedules
from fl_sketch.models import bert, lora, losses
from fl_sketch.utils import seeding

OPTIMIZER_OPTIONS = ('b1', 'b2', 'eps', 'momentum')
SEEDS = seeding.FIELDS


def check(c: Any):
  """Refuses combinations of fields that mean nothing.

  Raises:
    ValueError: the message names the field.
  """
  _check_numbers(c)
  _check_work(c)
  _check_participation(c)
  _check_attacks(c)


def _check_numbers(c: Any):
  if c.final_server_lr is not None and c.final_server_lr > c.server_lr:
    raise c.refusal('Expected {final_server_lr} <= {server_lr}.')
  for name in ('cohort', 'max_cohort'):
    if (getattr(c, name) or 0) > c.population:
      raise ValueError(
        f'Expected {name}={getattr(c, name)} <= population={c.population}.'
      )


def _check_work(c: Any):
  if c.local_work == 'gram' and (c.model, c.batch_size) != ('linear', 0):
    raise ValueError(
      "Expected model='linear' and batch_size=0 with local_work='gram'."
    )
  no_model = c.local_work == 'gram' or c.dataset == 'quadratics'
  if no_model and c.compute_dtype != 'float32':
    raise ValueError(
      f"Expected compute_dtype={c.compute_dtype!r} to be 'float32' with "
      "local_work='gram' or dataset='quadratics'."
    )
  for name in (
    'lora', 'sketch', 'codec', 'downlink', 'local_optimizer', 'client_schedule',
  ):  # fmt: skip
    if (options := getattr(c, name)) is not None and 'kind' not in options:
      raise ValueError(f'Expected a kind in {name}={dict(options)}.')
  datasets.REGISTRY.check(c.dataset, c.dataset_options or {})
  models.REGISTRY.check(c.model, c.model_options or {})
  losses.kind_of(c.loss)
  if c.label_smoothing and c.loss != 'classes':
    raise c.refusal("Expected {loss} to be 'classes' with {label_smoothing}.")
  if c.local_work == 'gram' and c.loss != 'classes':
    raise c.refusal("Expected {loss} to be 'classes' with {local_work}.")
  _check_data(c)
  _check_algorithm(c)
  _check_lora(c)
  privacy_checks.check(c)
  kinds = cohorts.RANDOM_SIZE
  if c.max_cohort is not None and c.sampling not in kinds:
    raise c.refusal(f'Expected {{sampling}} in {kinds} beside {{max_cohort}}.')


def _check_data(c: Any):
  _check_text(c)
  fixed = datasets.REGISTRY.entry(c.dataset).clients
  if c.train_slice is not None and fixed:
    raise ValueError(
      f'Expected no train_slice with dataset={c.dataset!r}, whose clients hold '
      'what they hold.'
    )
  if c.pretrained is not None and c.dataset == 'quadratics':
    raise ValueError("Expected no pretrained with dataset='quadratics'.")
  if not fixed:
    return
  options = ('shards_per_client', 'classes', 'alpha', 'sigma')
  if c.partition != 'iid' or c.given(options):
    raise ValueError(
      f'Expected no partition={c.partition!r} or {options} with '
      f'dataset={c.dataset!r}, whose clients hold what they hold.'
    )


def _check_text(c: Any):
  is_text = c.dataset in text.NAMES
  given = c.dataset_options or {}
  if {'vocabulary', 'tokenizer'} <= given.keys():
    raise ValueError(
      f'Expected one of vocabulary and tokenizer in dataset_options={given}.'
    )
  numbered = {'tokenizer', 'letters'} & given.keys() or 'vocab_size' in (
    c.model_options or {}
  )
  if is_text and c.pretrained is not None and not numbered:
    raise ValueError(
      f'Expected a tokenizer beside pretrained={c.pretrained!r}, that of its '
      'words; or of a vocabulary made here, vocab_size in model_options.'
    )
  if is_text and c.model in models.OF_IMAGES:
    raise c.refusal('Expected {model} to be one of tokens with {dataset}.')
  if c.dataset == 'sst2' and c.model in models.OF_SEQUENCES:
    raise c.refusal('Expected {model} to be a bert with {dataset}.')
  if c.dataset in sources.NAMES and c.model in bert.SIZES:
    raise ValueError(
      f'Expected dataset={c.dataset!r} in {text.NAMES} with model={c.model!r}.'
    )
  if c.model in models.OF_SEQUENCES:
    _check_sequences(c)


def _check_sequences(c: Any):
  """Checks that a model of sequences has tokens and a loss of its outputs."""
  if c.dataset in sources.NAMES:
    raise c.refusal('Expected {dataset} to be one of tokens with {model}.')
  last = (c.model_options or {}).get('last', False)
  if last and c.dataset in text.NAMES:
    raise c.refusal(
      'Expected no last in {model_options} with {dataset}, whose labels are of '
      'every token.'
    )
  kind = 'classes' if last else 'tokens'
  if c.loss in losses.OF_LABELS and c.loss != kind:
    raise c.refusal(f'Expected {{loss}} to be {kind!r} with {{model}}.')


def _check_algorithm(c: Any):
  """Checks the algorithm, its options and the local work."""
  entry, takes = algorithms.entry(c.algorithm), algorithms.options(c.algorithm)
  given = c.options or {}
  algorithms.REGISTRY.check(c.algorithm, given)
  unused = [name for name in c.given(OPTIMIZER_OPTIONS) if name not in takes]
  if unused and c.server_optimizer is None:
    raise ValueError(f'Expected a server_optimizer beside {tuple(unused)}.')
  private = privacy_checks.is_private(c)
  if c.clip_norm is not None and 'clip' not in given and not private:
    raise c.refusal(
      'Expected options.clip, epsilon or noise_multiplier beside {clip_norm}.'
    )
  if c.batch_order == 'poisson' and entry.work != 'private_steps':
    raise ValueError(
      "Expected algorithm='private_iterative_sketching' with "
      "batch_order='poisson'."
    )
  if c.final_server_lr is not None and 'schedule' not in takes:
    raise ValueError(f'Expected no final_server_lr with {c.algorithm}.')
  full_participation = c.cohort == c.population and c.sampling == 'fixed_size'
  if c.hash_rounds is not None and 'hash_rounds' not in takes:
    raise c.refusal(
      'Expected no {hash_rounds} with {algorithm}, which does not choose how '
      'long its hashes are kept.'
    )
  if entry.full_participation and not (
    full_participation and c.weights == 'equal'
  ):
    raise c.refusal(
      "Expected {cohort} == {population}, sampling='fixed_size' and weights="
      "'equal' with {c.algorithm}: every client takes part in every round."
    )
  own_work = 'gradient', 'task', 'slopes'
  if entry.work in own_work and c.local_work == 'gram':
    raise ValueError(f"Expected local_work='sgd' with {c.algorithm}.")
  _check_steps(c)
  divides = 'local_steps' in takes and entry.work != 'slopes'
  if divides and c.batch_order == 'mask':
    raise ValueError(
      f"Expected another batch_order than 'mask' with {c.algorithm}: it "
      'divides by local_steps, and a client with few samples makes fewer.'
    )


def _check_steps(c: Any):
  """Checks the optimizer, the clipping and the rates of local steps."""
  if c.local_optimizer is not None:
    _check_optimizer(c)
  ours = c.local_work != 'gram' and algorithms.takes_clip(c.algorithm)
  if c.client_clip is not None and not ours:
    raise c.refusal(
      'Expected no {client_clip} with {algorithm} and {local_work}: no '
      'gradient of a batch is computed there.'
    )
  if c.personal_lr is not None and not c.personal_steps:
    raise c.refusal('Expected {personal_steps} >= 1 beside {personal_lr}.')
  if algorithms.entry(c.algorithm).work == 'gradient':
    for name in c.given(('client_schedule', 'lr_decay')):
      raise c.refusal(
        f'Expected no {{{name}}} with {{algorithm}}, whose clients send a '
        'gradient and make no step.'
      )
  if c.client_schedule is None:
    return
  schedules.make(rounds=c.rounds, **c.client_schedule)  # checks its options
  if c.lr_decay is not None:
    raise c.refusal('Expected no {lr_decay} beside {client_schedule}.')


def _check_lora(c: Any):
  """Checks the factors that are trained, and who can average them."""
  changes = 'lora_scale' in algorithms.options(c.algorithm)
  if c.lora is None and not changes:
    return
  options = dict(c.lora or {})
  kind = options.pop('kind', None)
  if kind is not None:
    lora.REGISTRY.check(kind, options)
  kinds = [k for k, parts in lora.KINDS.items() if ('base' in parts) == changes]
  if c.algorithm in kinds:
    kinds = [c.algorithm]
  if kind not in kinds:
    raise c.refusal(
      f'Expected {{lora}} of a kind in {kinds} with {{algorithm}}.'
    )
  if c.local_work == 'gram':
    raise c.refusal("Expected no {lora} with local_work='gram'.")


def _check_optimizer(c: Any):
  if c.local_work == 'gram' or not algorithms.takes_optimizer(c.algorithm):
    raise c.refusal(
      'Expected no {local_optimizer} with {algorithm} and {local_work}: its '
      'steps are those of SGD.'
    )
  optimizers.make(**c.local_optimizer)  # checks its options
  takes = optimizers.REGISTRY.options(c.local_optimizer['kind'])
  if 'weight_decay' in takes and c.weight_decay:
    raise c.refusal(
      'Expected {weight_decay} to be 0: that of {local_optimizer} is its own.'
    )


def _check_participation(c: Any):
  """Checks dropouts, stragglers and over-selection."""
  selected = availability.selected(c.cohort, c.over_sampling)
  if selected > c.population:
    raise c.refusal('Expected {cohort} x {over_sampling} <= {population}.')
  if c.over_sampling > 1 and c.sampling != 'fixed_size':
    raise c.refusal(
      "Expected {sampling} to be 'fixed_size' beside {over_sampling}."
    )
  _check_allocation(c)
  if algorithms.entry(c.algorithm).full_participation and availability.in_force(
    c
  ):
    raise ValueError(
      f'Expected no over_sampling, dropout or deadline with {c.algorithm}, in '
      'which every client takes part in every round.'
    )
  if c.response_sigma is None:
    return
  if c.response_sigma == 0 and c.deadline is not None and c.deadline < 1:
    raise ValueError(
      f'Expected deadline={c.deadline} >= 1 with response_sigma=0: every '
      'client takes a time of 1.'
    )
  if c.over_sampling == 1 and c.deadline is None:
    raise ValueError(
      'Expected over_sampling or deadline beside response_sigma.'
    )


def _check_allocation(c: Any):
  """Checks the epochs of random allocation."""
  if c.sampling != 'random_allocation':
    if c.epoch_rounds is not None:
      raise c.refusal(
        "Expected {sampling} to be 'random_allocation' beside {epoch_rounds}."
      )
    return
  expected = round(c.population / c.allocation_rounds)
  if c.cohort != expected:
    raise c.refusal(
      f'Expected {{cohort}} == {expected}: {{population}} over epoch_rounds='
      f'{c.allocation_rounds}, rounded.'
    )


def _check_attacks(c: Any):
  """Checks byzantine clients and robust aggregation."""
  if round(c.byzantine * c.population) == c.population:
    raise ValueError(
      f'Expected byzantine={c.byzantine} to leave one of {c.population} honest.'
    )
  if (c.byzantine > 0) != (c.attack is not None):
    raise c.refusal('Expected an {attack} if and only if {byzantine} > 0.')
  if c.byzantine and not round(c.byzantine * c.population):
    raise c.refusal(
      'Expected {byzantine} to be a client of {population} at least.'
    )
  if (c.robust is None) != (c.groups is None):
    raise c.refusal('Expected {robust} if and only if {groups}.')
  selected = availability.selected(c.cohort, c.over_sampling)
  if c.groups is not None and not 3 <= c.groups <= selected:
    raise ValueError(
      f'Expected 3 <= groups={c.groups} <= {selected}, the clients of a round: '
      'of two means none is in the middle.'
    )
  if c.robust is not None and 'robust' not in algorithms.options(c.algorithm):
    raise ValueError(f'Expected no robust with {c.algorithm}.')
