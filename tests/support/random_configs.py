"""Random configs, of valid and broken fields, as Python and as flags."""

import math
import random
import re
import sys
import typing
from typing import Any, NamedTuple
from unittest import mock

from fl_sketch import algorithms, experiment
from fl_sketch.data import registry as datasets
from fl_sketch.experiment.config import Config
from fl_sketch.experiment.fields import registries
from fl_sketch.models import losses
from fl_sketch.utils import fields
from launch import configs, errors, parse_flags
import runs

HINTS = typing.get_type_hints(Config, include_extras=True)
QUADRATIC = {'dataset': 'quadratics', 'population': 6, 'cohort': 6}
PRIVATE = {
  'algorithm': 'dp_fedavg', 'noise_multiplier': 1.0, 'delta': 1e-4,
  'clip_norm': 1.0, 'standardize': False,
}  # fmt: skip
BASES = (
  {}, runs.SMALL, runs.SAFL, QUADRATIC, QUADRATIC | {'dropout': 0.2},
  runs.SMALL | PRIVATE, runs.SMALL | {'robust': 'median', 'groups': 3},
  QUADRATIC | {'algorithm': 'scaffold', 'lr_decay': 0.9},
)  # fmt: skip
NAMES = {  # to trace larger models takes a second
  'model': ('mlp', 'linear', 'lenet5', 'lstm', 'gpt_nano', 'resnet8'),
  'loss': losses.names(), 'dataset': datasets.REGISTRY.names(),
  'algorithm': algorithms.names(), 'server_optimizer': ('adam', 'momentum'),
  'keep_best': ('test_loss', 'client_loss_mean', 'max test_accuracy'),
  'train_slice': (':50', '5:9'), 'test_slice': (':50', '5:9'),
  'sweep': ({'sketch': {'size': 3}}, {'options': {'mu': {'high': 1}}}),
}  # fmt: skip
OF_TYPE = {
  int: (0, 1, 2, 3, 4, 6, 50), float: (0.0, 1e-3, 0.1, 0.5, 0.9, 1.0, 2, 8.5),
  bool: (True, False), tuple: ((), (8,), (4, 3), ('Dense_0',)),
}  # fmt: skip
BROKEN = (
  None, -1, 0, 1.5, math.nan, math.inf, True, 10**6, 'bogus', '', 'x' * 300,
  '9:5', [1], [None], {}, {1: 2}, {'kind': 3}, {'kind': [3]}, {'size': 'a'},
  'srht(size=', 'eden(bits=9)', ('a', 2), b'x', 3j, {'a': {'b': 1}},
)  # fmt: skip


class Outcome(NamedTuple):
  """What came of a config: how it was written, and how it was refused."""

  written: Any
  refusal: str  # the type of the error; '' if the experiment was built
  message: str


def outcome(seed: int, flags: float = 0.3, built: float = 1.0) -> Outcome:
  """Builds a random config, or catches its refusal; other errors pass."""
  rng = random.Random(seed)
  written: Any = dict(rng.choice(BASES))
  for _ in range(rng.choice((0, 1, 1, 2, 3))):
    _change(rng, written)
  make = Config.from_mapping
  if rng.random() < flags:
    written, make = _flags(written), _parsed
  elif rng.random() < 0.5 and all(isinstance(name, str) for name in written):
    make = lambda given: Config(**given)
  try:
    c = make(written)
    if rng.random() < built:
      experiment.build(c, draw=False)
  except (*errors.user_errors(), SystemExit) as e:
    return Outcome(written, type(e).__name__, str(e))
  return Outcome(written, '', '')


def _change(rng: random.Random, given: dict[Any, Any]):
  """Sets a field to a value of its type, or to any; or misspells one."""
  name, kind = rng.choice([*HINTS]), rng.random()
  if kind < 0.4:
    name = rng.choice([*registries.CALLS, 'options', 'algorithm', 'sampling'])
  if kind < 0.05:
    name = rng.choice((name[1:], name + 's', name[::-1], 7, None))
  broken = kind > 0.8 or name not in HINTS
  given[name] = rng.choice(BROKEN) if broken else _value(rng, name)


def _value(rng: random.Random, name: Any) -> Any:
  if name in registries.REGISTRIES:
    _, known = registries.REGISTRIES[name]
    part, types = rng.choice(known.names()), known.types()
    some = known.required(part) + rng.choices([*known.options(part), part])
    values = {k: rng.choice(OF_TYPE.get(types.get(k), BROKEN)) for k in some}
    return values | {'kind': part} if name in registries.CALLS else values
  said = fields.allowed(HINTS[name])
  choices = re.findall(r"'(\w+)'", said) if 'one of' in said else ()
  of_type = OF_TYPE.get(fields.plain_type(HINTS[name]), BROKEN)
  return rng.choice(NAMES.get(name) or choices or of_type)


def _flags(given: dict[Any, Any]) -> list[str]:
  """Writes fields as flags of a command, options as nested ones."""
  nested = lambda x: x.items() if isinstance(x, dict) and x else (('', x),)
  return [
    f'--config.{f"{name}.{option}".rstrip(".")}={value}'
    for name, options in given.items()
    for option, value in nested(options)
  ]


def _parsed(written: list[str]) -> dict[str, Any]:
  argv = ['train', 'quickstart:quick', *written]
  with mock.patch.object(sys, 'argv', argv), runs.new_flags():
    configs.define_flag()
    parse_flags(argv)
    return configs.fields() | {'sweep': None}
