"""Every field that a config may set, its default, and what it may be."""

from collections.abc import Mapping
import dataclasses
import difflib
import math
import typing
from typing import Any

from fl_sketch import algorithms
from fl_sketch.data import batches
from fl_sketch.data import cohorts

# What may differ when a run is resumed: it changes no number of any round.
# `rounds` is among them unless the server's learning rate decays over them.
RESUMABLE = (
  'rounds',
  'log_every',
  'eval_every',
  'checkpoint_every',
  'keep_checkpoints',
)
PARTITION_OPTIONS = (
  'samples_per_client',
  'shards_per_client',
  'classes',
  'alpha',
  'sigma',
)
OPTIMIZER_OPTIONS = ('b1', 'b2', 'eps', 'momentum')


@dataclasses.dataclass(frozen=True)
class Config:
  """Every field that a config may set; None leaves a choice to its owner."""

  seed: int = 0

  # The problem.
  dataset: str = 'digits'  # digits, mnist, fashion_mnist, cifar10, quadratics
  model: str = 'mlp'  # linear, mlp, lenet5; quadratics have their own
  widths: tuple[int, ...] = (64,)  # hidden layers of the mlp
  label_smoothing: float = 0.0

  # Who holds what.
  population: int = 50  # clients in total
  partition: str = 'iid'  # or as below, or size_skew
  samples_per_client: int | None = None  # at most, in every partition
  shards_per_client: int | None = None  # of label_shards
  classes: int | None = None  # a client, of classes_per_client
  alpha: float | None = None  # of dirichlet
  sigma: float | None = None  # of size_skew: deviation of log sizes

  # Who takes part in a round.
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
  b1: float | None = None
  b2: float | None = None
  eps: float | None = None
  momentum: float | None = None
  final_server_lr: float | None = None  # cosine decay to it over the run

  # The run.
  rounds: int = 100
  rounds_per_dispatch: int = 1  # more where a round is short
  lanes_per_step: int = 0  # clients a device works on at once; 0 by backend
  feed: str = 'auto'  # training data on every device, or from the host
  log_every: int = 1
  eval_every: int = 10
  checkpoint_every: int = 50
  keep_checkpoints: int = 3

  def __post_init__(self):
    _check_types(self)
    _check_numbers(self)
    _check_choices(self)

  @classmethod
  def from_mapping(cls, fields: Mapping[str, Any]) -> 'Config':
    """Checks a config's fields and values.

    Raises:
      ValueError: a field is unknown or out of range; the message names it.
    """
    known = [f.name for f in dataclasses.fields(cls)]
    for name in fields:
      if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f' Did you mean {near[0]!r}?' if near else ''
        raise ValueError(f'Unknown config field {name!r}.{hint}')
    return cls(**{**fields, 'sketch': given(fields.get('sketch') or {})})

  def options(self, names: tuple[str, ...]) -> dict[str, Any]:
    """The fields of these names that are set."""
    return given({name: getattr(self, name) for name in names}) or {}


def given(options: Mapping[str, Any]) -> dict[str, Any] | None:
  """The options that are not None, or None if none is."""
  return {k: v for k, v in options.items() if v is not None} or None


def _check_types(c: Config):
  for name, hint in typing.get_type_hints(Config).items():
    value = getattr(c, name)
    kinds = typing.get_args(hint) if hint not in (int, float, str) else (hint,)
    if float in kinds:
      kinds = (*kinds, int)
    if name in ('sketch', 'widths'):
      kinds = {'sketch': (Mapping, type(None)), 'widths': (tuple, list)}[name]
    if isinstance(value, bool) or not isinstance(value, kinds):
      names = ' or '.join(k.__name__ for k in kinds)
      raise ValueError(f'Expected {name}={value!r} to be {names}.')


def _check_numbers(c: Config):
  at_least_one = (
      'population', 'cohort', 'local_steps', 'rounds', 'rounds_per_dispatch',
      'log_every', 'eval_every', 'checkpoint_every', 'keep_checkpoints',
  )  # fmt: skip
  for name in at_least_one:
    if getattr(c, name) < 1:
      raise ValueError(f'Expected {name}={getattr(c, name)} >= 1.')
  for name in ('client_lr', 'server_lr', 'final_server_lr'):
    value = getattr(c, name)
    if value is not None and not (value > 0 and math.isfinite(value)):
      raise ValueError(f'Expected {name}={value} > 0 and finite.')
  if c.final_server_lr is not None and c.final_server_lr > c.server_lr:
    raise ValueError(
      f'Expected final_server_lr={c.final_server_lr} <= '
      f'server_lr={c.server_lr}.'
    )
  if not 0 <= c.label_smoothing < 1:
    raise ValueError(f'Expected 0 <= label_smoothing={c.label_smoothing} < 1.')
  for name in ('weight_decay', 'batch_size', 'lanes_per_step', 'seed'):
    if not getattr(c, name) >= 0:
      raise ValueError(f'Expected {name}={getattr(c, name)} >= 0.')
  for name in ('cohort', 'max_cohort'):
    if (getattr(c, name) or 0) > c.population:
      raise ValueError(
        f'Expected {name}={getattr(c, name)} <= population={c.population}.'
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
    ('feed', ('auto', 'device', 'host')),
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
  if c.sketch is not None and 'kind' not in c.sketch:
    raise ValueError(f'Expected a kind in sketch={dict(c.sketch)}.')
  if c.options(OPTIMIZER_OPTIONS) and c.server_optimizer is None:
    names = tuple(c.options(OPTIMIZER_OPTIONS))
    raise ValueError(f'Expected a server_optimizer beside {names}.')
  if c.max_cohort is not None and c.sampling != 'poisson':
    raise ValueError("Expected sampling='poisson' beside max_cohort.")
