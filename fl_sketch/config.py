"""Every field that a config may set, its default, and what it may be."""

from collections.abc import Mapping
import dataclasses
import difflib
import math
from typing import Any

from fl_sketch import algorithms
from fl_sketch.data import batches
from fl_sketch.data import cohorts

# What may differ when a run is resumed: it changes no number of any round.
RESUMABLE = (
  'rounds',
  'log_every',
  'eval_every',
  'checkpoint_every',
  'keep_checkpoints',
)


@dataclasses.dataclass(frozen=True)
class Config:
  """Every field that a config may set; None leaves a choice to its owner."""

  seed: int = 0

  # The problem.
  dataset: str = 'digits'  # digits, mnist, fashion_mnist, cifar10, quadratics
  model: str = 'mlp'  # linear, mlp, lenet5; quadratics have their own
  widths: tuple[int, ...] = (64,)  # hidden layers of the mlp
  label_smoothing: float = 0.0

  # Who holds what, and who takes part.
  population: int = 50  # clients in total
  partition: str = 'iid'  # or label_shards, classes_per_client, dirichlet, ...
  partition_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  cohort: int = 25  # clients in a round; their expected number under poisson
  sampling: str = 'fixed_size'  # with_replacement, poisson
  max_cohort: int | None = None  # poisson: None is exceeded once in 1e9 rounds
  weights: str = 'equal'  # samples: a client weighs what it holds

  # Local work.
  local_steps: int = 5
  batch_size: int = 32  # 0: full-batch gradient steps
  batch_order: str = 'replace'  # cycle, mask
  client_lr: float = 0.1
  weight_decay: float = 0.0
  local_work: str = 'sgd'  # gram: exact and faster for full batches and linear

  # The protocol.
  algorithm: str = 'fedavg'
  sketch: Mapping[str, Any] | None = None  # kind, and the options of that kind
  server_lr: float = 1.0
  server_optimizer: str | None = None  # adam, amsgrad, yogi, adagrad, momentum
  optimizer_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  final_server_lr: float | None = None  # cosine decay to it over the run

  # The run.
  rounds: int = 100
  rounds_per_dispatch: int = 1  # more where a round is short
  lanes_per_step: int = 0  # clients a device works on at once; 0 by backend
  log_every: int = 1
  eval_every: int = 10
  checkpoint_every: int = 50
  keep_checkpoints: int = 3

  def __post_init__(self):
    _check_numbers(self)
    _check_choices(self)

  @classmethod
  def from_mapping(cls, config: Mapping[str, Any]) -> 'Config':
    """Checks a config's fields and values.

    Raises:
      ValueError: a field is unknown or out of range; the message names it.
    """
    known = [f.name for f in dataclasses.fields(cls)]
    for field in config:
      if field not in known:
        near = difflib.get_close_matches(field, known, n=1)
        hint = f' Did you mean {near[0]!r}?' if near else ''
        raise ValueError(f'Unknown config field {field!r}.{hint}')
    return cls(**config)


def defaults(**fields: Any) -> dict[str, Any]:
  """A full config as a plain dict: the defaults, with `fields` on top."""
  return dataclasses.asdict(Config.from_mapping(fields))


def _check_numbers(c: Config):
  at_least_one = (
      'population', 'cohort', 'local_steps', 'rounds', 'rounds_per_dispatch',
      'log_every', 'eval_every', 'checkpoint_every', 'keep_checkpoints',
  )  # fmt: skip
  for name in at_least_one:
    value = getattr(c, name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
      raise ValueError(f'Expected an integer {name}={value} >= 1.')
  for name in ('client_lr', 'server_lr', 'final_server_lr'):
    value = getattr(c, name)
    if value is not None and not (value > 0 and math.isfinite(value)):
      raise ValueError(f'Expected {name}={value} > 0 and finite.')
  if not 0 <= c.label_smoothing < 1:
    raise ValueError(f'Expected 0 <= label_smoothing={c.label_smoothing} < 1.')
  for name in ('weight_decay', 'batch_size', 'lanes_per_step'):
    if not getattr(c, name) >= 0:
      raise ValueError(f'Expected {name}={getattr(c, name)} >= 0.')
  if c.cohort > c.population:
    raise ValueError(
      f'Expected cohort={c.cohort} <= population={c.population}.'
    )
  for name in ('rounds', 'eval_every', 'checkpoint_every'):
    if getattr(c, name) % c.rounds_per_dispatch:
      raise ValueError(
        f'Expected {name}={getattr(c, name)} to be a multiple of '
        f'rounds_per_dispatch={c.rounds_per_dispatch}.'
      )


def _check_choices(c: Config):
  for name, choices in (
    ('weights', ('equal', 'samples')),
    ('local_work', ('sgd', 'gram')),
    ('sampling', tuple(cohorts.KINDS)),
    ('batch_order', tuple(batches.ORDERS)),
    ('algorithm', algorithms.names()),
  ):
    if getattr(c, name) not in choices:
      raise ValueError(f'Expected {name}={getattr(c, name)!r} in {choices}.')
  if c.local_work == 'gram' and (c.model, c.batch_size) != ('linear', 0):
    raise ValueError(
      "Expected model='linear' and batch_size=0 with local_work='gram'."
    )
  if c.optimizer_options and c.server_optimizer is None:
    raise ValueError('Expected a server_optimizer beside optimizer_options.')
  if c.max_cohort is not None and c.sampling != 'poisson':
    raise ValueError("Expected sampling='poisson' beside max_cohort.")
