"""The config of an attack experiment and the grid of its settings."""

from collections.abc import Mapping
import dataclasses
import functools
import itertools
from typing import Annotated, Any, NamedTuple

from fl_sketch import accounting, models, sketches
from fl_sketch.attacks import objectives
from fl_sketch.data import sources
from fl_sketch.runs.config import checked
from fl_sketch.utils import fields as f
from fl_sketch.utils.fields import choice, field

LABELS = ('known', 'candidates', 'optimised')
DEFENCES = ('clip', 'normalize', 'top_k')
# Options of operators beside the size.
_FIXED = {f'sparse_embedding_{i}': {'sparsity': 2} for i in (1, 2)}


@dataclasses.dataclass(frozen=True)
class AttackConfig:
  """The fields of a config of `fl-sketch attack`."""

  seed: int = 0

  dataset: Annotated[str, choice(('gaussian', *sources.NAMES))] = field(
    'gaussian, digits, mnist, fashion_mnist, cifar10',
    'gaussian',
    section='The client under attack.',
  )
  model: str = field('of gaussian; otherwise of `models.make`', 'tanh')
  widths: tuple[int, ...] = field('of an mlp', (64,))
  activation: str = field('of an mlp', 'tanh')
  inputs: int = field('of gaussian', 12)
  outputs: int = field('of gaussian: the model has inputs x outputs numbers', 8)
  examples: f.Count = field('batches that are attacked, one by one', 60)
  skip: f.Size = field('samples of a data set before the first', 0)
  batch_sizes: tuple[f.Count, ...] = (1,)
  local_steps: f.Count = field('full-batch ones', 1)
  client_lr: f.Positive = 0.1

  sketches: tuple[str, ...] = field(
    '',
    (),
    section='The message; grids other than the first use the first sketch.',
  )
  sizes: tuple[f.Count, ...] = field('numbers in a table', ())
  pooled_size: f.Count | None = None
  pooled: tuple[f.Count, ...] = field(
    'rounds of fresh sketches of the same batch', ()
  )
  defended_size: f.Count | None = None
  noises: tuple[f.Positive, ...] = field(
    "lengths relative to the message's", ()
  )
  defences: tuple[Annotated[str, choice(DEFENCES)], ...] = ()
  max_norm: f.Positive = field('of clip and normalize', 0.1)
  k: f.Count | None = field('of top_k')

  epsilons: tuple[f.Positive, ...] = field(
    '', (), section='Private rounds: each epsilon is that of all of them.'
  )
  delta: f.Fraction = 1e-5
  clip_norm: f.Positive = 1.0
  population: int = 1000
  cohort: int = field('expected, under Poisson sampling', 100)
  rounds: f.Count = 100

  labels: str = field(
    'candidates: all are tried; optimised: DLG', 'known', section='The attack.'
  )
  objective: Annotated[str, choice(objectives.OBJECTIVES)] = field(
    'l2, cosine', 'l2'
  )
  tv: f.Finite = field('weight of the total variation', 0.0)
  optimizer: Annotated[str, choice(objectives.SEARCHES)] = field(
    'lbfgs, armijo, adam, signed_adam', 'lbfgs'
  )
  learning_rate: f.Positive | None = None
  steps: f.Count = 200
  restarts: f.Count = 10
  start_scale: f.Positive = 1.0
  success: f.Positive = field(
    'largest relative error that counts as recovered', 0.01
  )

  @classmethod
  @checked()
  def from_mapping(cls, fields: Mapping[str, Any]) -> 'AttackConfig':
    """Return the config with these fields; ConfigError names a wrong one."""
    names = {field.name for field in dataclasses.fields(cls)}
    if unknown := sorted(set(fields) - names):
      raise ValueError(f'{unknown} are none of the fields {sorted(names)}.')
    lists = {k: tuple(v) for k, v in fields.items() if isinstance(v, list)}
    c = cls(**{**fields, **lists})
    _check(c)
    return c


class AttackSetting(NamedTuple):
  """Setting of one attack on all examples."""

  batch_size: int  # samples behind a message
  sketch: str = 'identity'  # kind, 'identity' for none
  size: int = 0  # numbers in a table, complex ones of srft; 0 for none
  rounds: int = 1  # how many are pooled
  defence: str = 'none'  # 'none', 'noise', 'epsilon', or one of `DEFENCES`
  strength: float = 0.0  # length of the noise, epsilon, bound or k


def grid(c: AttackConfig) -> tuple[AttackSetting, ...]:
  """The settings of a config, the unsketched ones first."""
  points = [AttackSetting(n) for n in c.batch_sizes]
  parts = itertools.product(c.batch_sizes, c.sketches, c.sizes)
  points += [AttackSetting(*part) for part in parts]
  first = c.sketches[0] if c.sketches else 'identity'
  for n in c.batch_sizes:
    pooled = n, first, c.pooled_size or 0
    points += [AttackSetting(*pooled, rounds) for rounds in c.pooled]
    defended = n, first if c.defended_size else 'identity', c.defended_size or 0
    kinds = [('noise', x) for x in c.noises]
    kinds += [('epsilon', x) for x in c.epsilons]
    strength = {'top_k': float(c.k or 0)}
    kinds += [(d, strength.get(d, c.max_norm)) for d in c.defences]
    points += [AttackSetting(*defended, 1, *kind) for kind in kinds]
  return tuple(dict.fromkeys(points))


def operator(setting: AttackSetting) -> sketches.Sketch | None:
  """The sketch of a setting; None without a sketch."""
  kind, size = setting.sketch, setting.size
  if kind == 'identity':
    return None
  if kind == 'count_sketch':
    if size % 2:
      raise ValueError(f'{size=} of a count_sketch must be even.')
    return sketches.count_sketch(2, size // 2)
  return sketches.make(kind, size=size, **_FIXED.get(kind, {}))


@functools.cache
def noise_multiplier(c: AttackConfig, epsilon: float) -> float:
  """The noise multiplier with which all rounds together have this epsilon."""
  return accounting.calibrate_noise_multiplier(
    epsilon=epsilon, delta=c.delta, steps=c.rounds,
    sampling=accounting.Sampling.POISSON,
    sampling_probability=c.cohort / c.population,
  )  # fmt: skip


def _check(c: AttackConfig):
  """Checks fields and their combinations before any attack is run."""
  f.check(c)
  gaussian = c.dataset == 'gaussian'
  allowed = {
    'model': ('tanh',) if gaussian else models.names(),
    'labels': ('known',) if gaussian else LABELS,
  }
  for name, values in allowed.items():
    if getattr(c, name) not in values:
      raise ValueError(f'{name}={getattr(c, name)!r} must be one of {values}.')
  if not 1 <= c.cohort <= c.population:
    raise ValueError(
      f'cohort={c.cohort} must be 1 to population={c.population}.'
    )
  if not c.batch_sizes:
    raise ValueError(f'batch_sizes={c.batch_sizes} must have a number.')
  if c.tv and gaussian:
    raise ValueError(f'tv={c.tv} must be 0: gaussian inputs are not images.')
  if 'top_k' in c.defences and c.k is None:
    raise ValueError("Set k: 'top_k' is among the defences.")
  if c.pooled and c.pooled_size is None:
    raise ValueError(f'Set pooled_size: it belongs to pooled={c.pooled}.')
  for name in ('sizes', 'pooled', 'defended_size'):
    if getattr(c, name) and not c.sketches:
      raise ValueError(f'{name}={getattr(c, name)} requires sketches.')
  for setting in grid(c):
    op = operator(setting)
    if setting.defence == 'top_k' and op and setting.sketch == 'srft':
      raise ValueError(
        "'top_k' requires real tables; those of srft are complex."
      )
