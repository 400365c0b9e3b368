"""What a config means on real sites, and what is refused there."""

import dataclasses
from typing import Any

from fl_sketch.data import availability
from fl_sketch.runs import same_run
from fl_sketch.runs.config import Config, checked
from fl_sketch.runs.fields.clients import PARTITION_OPTIONS
from fl_sketch.sites import wire
from fl_sketch.utils import __version__, files

_MOST = 10  # rounds between checkpoints


@checked()
def config(c: Config) -> Config:
  """Return the config with which server and sites build their experiments.

  Sites hold their own data: the simulator's partition is not read. A run is
  saved at least every 10 rounds, and a private one in every round, before
  anything of it is released. ConfigError: it simulates what sites do by
  themselves, or has what no engine can do.
  """
  apart = c.is_private and not is_central(c)
  c.refuse(
    (c.trust == 'secure_aggregation',
     '{trust} is not supported on an engine; set central or local.'),
    (c.before_sketch,
     '{before_sketch} would send whole updates over messages; unset it.'),
    (availability.in_force(c) or c.attack is not None,
     'Sites fail by themselves; remove {over_sampling}, {dropout}, {deadline} '
     'and {attack}, which simulate that.'),
    (c.personal_steps,
     '{personal_steps} is not supported on an engine; unset it.'),
    (c.privacy_unit == 'sample' and c.epsilon is not None,
     '{epsilon} of {algorithm} depends on how many samples other sites hold; '
     'set noise_multiplier instead.'),
    (apart and c.public_metrics == 'private',
     '{public_metrics} needs a server that may see losses; set hidden.'),
  )  # fmt: skip
  changes: dict[str, Any] = dict.fromkeys(PARTITION_OPTIONS)
  # Sites keep a replica of each round since a checkpoint.
  rounds_between = 1 if c.is_private else _MOST
  changes['partition'] = 'iid'
  changes['checkpoint_every'] = min(c.checkpoint_every, rounds_between)
  if apart:
    changes['public_metrics'] = c.public_metrics or 'hidden'
  return dataclasses.replace(c, rounds_per_dispatch=1, **changes)


def is_central(c: Config) -> bool:
  """Return whether sites may send payloads without noise."""
  return c.trust in (None, 'central') and c.privacy_unit != 'sample'


def fingerprint(c: Config) -> bytes:
  """Hash the fields that server and sites must agree on."""
  free = same_run.resumable(c)
  fields = {k: v for k, v in files.as_json(c).items() if k not in free}
  return wire.fingerprint(fields | {'version': __version__})
