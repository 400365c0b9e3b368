"""The base class of the groups of config fields, and the fields of the run."""

from collections.abc import Iterable
import dataclasses
from typing import Annotated, Any

from fl_sketch.runs.fields import registries
from fl_sketch.utils import fields as f
from fl_sketch.utils.fields import field

_Place = Annotated[str, f.choice(('auto', 'device', 'host'))]
_State = Annotated[str, f.choice(('replicated', 'sharded'))]


def given(**options: Any) -> dict[str, Any]:
  """Return the options that are not None."""
  return {name: value for name, value in options.items() if value is not None}


@dataclasses.dataclass(frozen=True)
class Fields:
  """A group of fields; the last of them is a whole config."""

  def check(self):
    """Check each field, and the parts that fields name; extended by groups."""
    f.check(self)
    registries.check(self)
    for each in dataclasses.fields(self):
      for other, value in each.metadata['needs'].items():
        if other not in vars(self):
          hint = f.did_you_mean(other, vars(self))
          raise TypeError(f'{each.name} needs an unknown {other!r}.{hint}')
        values = value if isinstance(value, tuple) else (value,)
        condition = f'{other}={" or ".join(map(repr, values))}'
        holds = getattr(self, other) in values
        self.check_effect([each.name], holds, condition)

  def check_effect(self, names: Iterable[str], holds: bool, condition: str):
    """Refuse fields that are set, but have no effect unless `condition`."""
    for name in () if holds else names:
      value = getattr(self, name)
      if value != getattr(type(self), name):
        raise ValueError(
          f'{name}={f.shown(value)} has no effect unless {condition}; '
          f'remove {name}.'
        )

  def refusal(self, text: str) -> ValueError:
    """Return the error of a text in which {name} stands for name=value."""
    named = {k: f'{k}={f.shown(v)}' for k, v in vars(self).items()}
    return ValueError(text.format(config=self, **named))

  def refuse(self, *rows: tuple[Any, str]):
    """Raise the `refusal` of the first text whose condition holds."""
    for holds, text in rows:
      if holds:
        raise self.refusal(text)


@dataclasses.dataclass(frozen=True)
class RunFields(Fields):
  """The run: seeds, rounds, where arrays lie, and what is written when."""

  seed: f.Size = field('of parameters, partition, cohorts and batches', 0)
  sketch_seed: f.Size | None = field('of hashes and codecs (default: seed)')
  rounds: f.Count = field('server updates', 100)
  rounds_per_dispatch: f.Count = field('rounds of one compiled call', 1)
  clients_per_step: f.Size = field('clients at once on a device; 0: default', 0)
  feed: _Place = field('where training data lie', 'auto')
  client_state: _Place = field('where the state of all clients lies', 'auto')
  server_state: _State = field(
    "sharded: each device holds a part of the server's state", 'replicated'
  )
  log_every: f.Count = field('rounds between rows of metrics.jsonl', 1)
  eval_every: f.Count = field('rounds between evaluations', 10)
  checkpoint_every: f.Count = field('rounds between checkpoints', 50)
  keep_checkpoints: f.Count = field('number of newest checkpoints that stay', 3)
  keep_best: str | None = field('metric by which best/ keeps parameters')
  plugins: tuple[str, ...] = field('modules or files of your own parts', ())
  sweep: f.Options = field('field -> its values; fl-sketch train ignores it')

  @property
  def key_seed(self) -> int:
    """Return the seed of `keys.RoundKeys`."""
    return self.seed if self.sketch_seed is None else self.sketch_seed

  def dispatch(self, done: int) -> range:
    """Return the dispatch after `done` rounds, which ends where more is due.

    >>> config = RunFields(rounds=25, rounds_per_dispatch=10, eval_every=15)
    >>> [len(config.dispatch(done)) for done in (0, 10, 15)]
    [10, 5, 10]
    """
    every = self.eval_every, self.checkpoint_every
    ends = (done - done % rounds + rounds for rounds in every)
    return range(done, min(done + self.rounds_per_dispatch, self.rounds, *ends))
