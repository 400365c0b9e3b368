"""The base class of the groups of config fields, and the fields of the run."""

from collections.abc import Iterable, Mapping
import dataclasses
import inspect
from typing import Annotated, Any

from fl_sketch.experiment.fields import registries
from fl_sketch.reporting import metrics
from fl_sketch.utils import fields as f

_Place = Annotated[str, f.choice(('auto', 'device', 'host'))]
_State = Annotated[str, f.choice(('replicated', 'sharded'))]
_KINDS = 'test_', 'client_', 'personal_'
_is_metric = lambda x: metrics.ranked_by(x)[0].startswith(_KINDS)
_of_kinds = f.Rule(f'a metric that begins with one of {_KINDS}', _is_metric)
_Metric = Annotated[str, _of_kinds]


@dataclasses.dataclass(frozen=True)
class Fields:
  """A group of fields; the last of them is a whole config."""

  def check(self):
    """Checks each field, and the parts that fields name; extended by groups.

    A ValueError has field and value, the reason, and what to set.
    """
    f.check(self)
    registries.check(self)

  def check_effect(self, names: Iterable[str], holds: bool, condition: str):
    """Refuses fields that differ from their default without any effect.

    They have one if `condition`, in words, `holds`.
    """
    for name in () if holds else names:
      value = getattr(self, name)
      if value != getattr(type(self), name):
        raise ValueError(
          f'{name}={f.shown(value)} has no effect unless {condition}; '
          f'remove {name}.'
        )

  def check_needed(self, *names: str, **needed: str):
    """Refuses fields that have no effect unless another has this value."""
    ((other, value),) = needed.items()
    holds = getattr(self, other) == value
    self.check_effect(names, holds, f'{other}={value!r}')

  def refusal(self, text: str) -> ValueError:
    """The error of a text in which {name} stands for name=value of a field."""
    named = {k: f'{k}={f.shown(v)}' for k, v in vars(self).items()}
    return ValueError(text.format(c=self, **named))

  def refuse(self, *rows: tuple[Any, str]):
    """Raises the `refusal` of the first text whose condition holds."""
    for holds, text in rows:
      if holds:
        raise self.refusal(text)

  def given(self, names: Iterable[str]) -> dict[str, Any]:
    """The fields of these names that are set."""
    values = {name: getattr(self, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


@dataclasses.dataclass(frozen=True)
class RunFields(Fields):
  """The run: seeds, rounds, where arrays lie, and what is written when."""

  seed: f.Size = 0  # of parameters, partition, cohorts and batches
  sketch_seed: f.Size | None = None  # of hashes and codecs (default: seed)
  rounds: f.Count = 100  # server updates
  rounds_per_dispatch: f.Count = 1  # rounds of one call; more if they are short
  # clients that a device trains at once; 0: one or a few on a CPU, on
  # accelerators as many as fit
  clients_per_step: f.Size = 0
  feed: _Place = 'auto'  # training data: on every device, or fed from the host
  client_state: _Place = 'auto'  # of all clients: device, or on the host's disk
  # sharded: each device holds a part of the server's state
  server_state: _State = 'replicated'
  log_every: f.Count = 1  # rounds between rows of metrics.jsonl
  eval_every: f.Count = 10  # rounds between evaluations
  checkpoint_every: f.Count = 50  # rounds between checkpoints
  keep_checkpoints: f.Count = 3  # number of the newest that stay
  # metric of evaluations, as test_accuracy: best/ keeps the parameters where
  # it was lowest (of a loss or an error) or highest (of any other)
  keep_best: _Metric | None = None
  # modules or Python files that register parts of the user's own
  plugins: tuple[str, ...] = ()
  # field -> its values, for launch.sweep; launch.train ignores it
  sweep: Mapping[str, Any] | None = None

  @property
  def key_seed(self) -> int:
    """The seed of `keys.RoundKeys`."""
    return self.seed if self.sketch_seed is None else self.sketch_seed

  def dispatch(self, done: int) -> range:
    """Return the dispatch after `done` rounds, which ends where more is due.

    >>> c = RunFields(rounds=25, rounds_per_dispatch=10, eval_every=15)
    >>> [len(c.dispatch(done)) for done in (0, 10, 15)]
    [10, 5, 10]
    """
    every = self.eval_every, self.checkpoint_every
    ends = (done - done % rounds + rounds for rounds in every)
    return range(done, min(done + self.rounds_per_dispatch, self.rounds, *ends))


def groups(config: type) -> list[tuple[type, list[str]]]:
  """Lists the groups of a config's class, each with the names of its fields."""
  every = reversed(inspect.getmro(config))
  named = [(group, [*inspect.get_annotations(group)]) for group in every]
  return [(group, names) for group, names in named if names]
