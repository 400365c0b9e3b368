"""The fields of a config: their defaults, bounds and choices."""

from collections.abc import Iterator, Mapping
import contextlib
import dataclasses
import difflib
from typing import Annotated, Any

from fl_sketch.data import batches, byzantine, cohorts
from fl_sketch.experiment import config_checks, privacy_checks
from fl_sketch.models import precision
from fl_sketch.privacy.accounting import types
from fl_sketch.privacy.mechanisms import generators
from fl_sketch.rounds import robust
from fl_sketch.utils import checks, fields as f, plugins, registry
from fl_sketch.utils.fields import choice

# Fields that may differ when a run is resumed. They change no number of any
# round, but for lanes_per_step, with which sums are equal up to rounding.
# `workdir.resumable` leaves out those on which something else depends.
RESUMABLE = (
  'rounds', 'lanes_per_step', 'log_every', 'eval_every', 'checkpoint_every',
  'keep_checkpoints', 'plugins',
)  # fmt: skip
PARTITION_OPTIONS = (
  'samples_per_client', 'shards_per_client', 'classes', 'alpha', 'sigma',
)  # fmt: skip
# Fields of one level of nesting: options of what another field names.
MAPPINGS = (
  'dataset_options', 'model_options', 'lora', 'client_schedule',
  'local_optimizer', 'options', 'sketch', 'codec', 'downlink', 'sweep',
)  # fmt: skip
# Those that name their factory themselves; a text such as 'srht(size=60)' will
# do in their place.
CALLS = (
  'lora', 'client_schedule', 'local_optimizer', 'sketch', 'codec', 'downlink',
)  # fmt: skip
# Fields of the past, and where their values stand now.
MOVED = {
  **{
    name: f'options.{name}'
    for name in (
      'k', 'exact', 'printed', 'clip', 'control_gain', 'noise_stddev',
      'candidates', 'error_update', 'momentum_masking', 'local_k',
      'error_feedback', 'sync_probability', 'warmup', 'mask_ratio', 'graph',
      'gossip_steps', 'chebyshev', 'resync_every',
    )
  },
  'widths': 'model_options.widths',
  'store': 'dataset_options.folder',
  'text_length': 'dataset_options.length',
  'vocabulary': 'dataset_options.vocabulary',
  'tokenizer': 'dataset_options.tokenizer',
  'start_scale': 'dataset_options.start_scale',
}  # fmt: skip

_ADJACENCIES = tuple(a.value for a in types.Adjacency)
_Metrics = Annotated[str, choice(privacy_checks.METRICS)]
_Behaviour = Annotated[str, choice(byzantine.BEHAVIOURS)]
_Place = Annotated[str, choice(('auto', 'device', 'host'))]
_RobustMean = Annotated[str, choice(robust.KINDS)]


class ConfigError(ValueError):
  """A config, or an option of a command, is wrong; the message names it."""


@contextlib.contextmanager
def checked() -> Iterator[None]:
  """Raises what this library refuses as ConfigError; also a decorator.

  Every other ValueError passes as it is: it shows a defect.

  Raises:
    ConfigError: see `checks.is_refusal`.
  """
  try:
    yield
  except ValueError as e:
    if not checks.is_refusal(e):
      raise
    raise ConfigError(str(e)) from e


@dataclasses.dataclass(frozen=True)
class Config:
  """The fields of a config; None leaves the choice to the component."""

  seed: f.Size = 0
  sketch_seed: f.Size | None = None  # of hashes and codecs; None is the seed

  # The problem.
  # digits, mnist, fashion_mnist, cifar10, cifar100, sst2, text, quadratics,
  # simulated, store; or a registered one
  dataset: str = 'digits'
  dataset_options: Mapping[str, Any] | None = None  # by name
  train_slice: f.Slice | None = None  # '0:10000': only these training samples
  # likewise; of a store, too, but not of what its clients hold out
  test_slice: f.Slice | None = None
  model: str = 'mlp'  # one of models.names()
  model_options: Mapping[str, Any] | None = None  # by name
  pretrained: str | None = None  # a safetensors file to start from
  # kind, and its options: factors of these kernels are trained, all else frozen
  lora: Mapping[str, Any] | None = None
  loss: str = 'classes'  # tokens, labels, regression; or a registered one
  label_smoothing: f.Share = 0.0
  standardize: bool = True  # False: pixels from 0 to 1, as they are
  # bfloat16: parameters and sums stay float32
  compute_dtype: Annotated[str, choice(precision.DTYPES)] = 'float32'

  # Who holds what.
  population: f.Count = 50  # clients in total
  partition: str = 'iid'  # or as below, or size_skew
  samples_per_client: int | None = None  # at most, in every partition
  shards_per_client: int | None = None  # of label_shards
  classes: int | None = None  # a client, of classes_per_client
  alpha: float | None = None  # of dirichlet
  sigma: float | None = None  # of size_skew: deviation of log sizes

  # Who takes part in a round.
  # clients in a round; under poisson and random_allocation the expected number
  cohort: f.Count = 25
  # fixed_size, with_replacement, poisson; random_allocation: every client takes
  # part in one round of each epoch; cyclic: in a fixed order, so that a client
  # takes part in every ceil(population / cohort)-th round
  sampling: Annotated[str, choice(cohorts.KINDS)] = 'fixed_size'
  # of random cohorts: None is exceeded once in 1e9 rounds
  max_cohort: int | None = None
  # of random_allocation: None is population / cohort
  epoch_rounds: f.Count | None = None
  # samples: a client weighs what it holds
  weights: Annotated[str, choice(('equal', 'samples'))] = 'equal'

  # Client failures (`data.availability`, `data.byzantine`) and `rounds.robust`.
  # clients selected, in cohorts; the first to answer count
  over_sampling: f.Multiple = 1.0
  dropout: f.Share = 0.0  # probability that a selected client never answers
  deadline: f.Positive | None = None  # of stragglers, in median response times
  response_sigma: f.Finite | None = None  # deviation of log response times
  byzantine: f.Share = 0.0  # share of the population that is byzantine
  # what they send: sign_flip, noise, scale, nan
  attack: _Behaviour | None = None
  max_payload_norm: f.Positive | None = None  # longer payloads are rejected
  # in place of the mean: geometric_median, median
  robust: _RobustMean | None = None
  groups: f.Count | None = None  # of robust: the number of means it combines

  # Local work.
  local_steps: f.Count = 5
  batch_size: f.Size = 32  # 0: full-batch gradient steps
  # replace, cycle, mask, poisson
  batch_order: Annotated[str, choice(batches.ORDERS)] = 'replace'
  client_lr: f.Positive = 0.1
  lr_decay: f.Part | None = None  # factor on client_lr, every round
  # kind, and the options of that kind: factors on client_lr by the round
  client_schedule: Mapping[str, Any] | None = None
  client_clip: f.Positive | None = None  # norm of a gradient, at most
  weight_decay: f.NonNegative = 0.0
  # kind, and the options of that kind; keep=True keeps its state of a client
  local_optimizer: Mapping[str, Any] | None = None
  # gram: exact and faster for full batches and linear
  local_work: Annotated[str, choice(('sgd', 'gram'))] = 'sgd'

  # The protocol.
  algorithm: str = 'fedavg'  # one of algorithms.names()
  options: Mapping[str, Any] | None = None  # its own; algorithms.describe
  sketch: Mapping[str, Any] | None = None  # kind, and the options of that kind
  codec: Mapping[str, Any] | None = None  # likewise
  downlink: Mapping[str, Any] | None = None  # a codec of what the server sends
  hash_rounds: f.Size | None = None  # that share a hash; None is 1, 0 is all
  server_lr: f.Positive = 1.0
  # adam, amsgrad, yogi, adagrad, momentum, nesterov, sgd
  server_optimizer: str | None = None
  b1: f.Share | None = None
  b2: f.Share | None = None
  eps: f.NonNegative | None = None
  momentum: f.Share | None = None
  final_server_lr: f.Positive | None = None  # cosine decay to it over the run

  clip_norm: f.Positive | None = None  # where updates are clipped

  # Privacy, claimed where epsilon or noise_multiplier is set.
  epsilon: f.Positive | None = None  # the noise is calibrated to it
  noise_multiplier: f.NonNegative | None = None  # or given
  delta: f.Delta | None = None
  bound: str | None = None  # clip; normalize, quantile
  per_layer: bool | None = None  # bound every array of a model by itself
  before_sketch: bool | None = None  # noise on updates instead of tables
  # central DP; secure_aggregation (distributed DP), local DP
  trust: Annotated[str, choice(types.TRUSTS)] | None = None
  # add_or_remove_one, replace_one, zero_out
  adjacency: Annotated[str, choice(_ADJACENCIES)] | None = None
  accountant: Annotated[str, choice(('pld', 'rdp'))] | None = None  # pld, rdp
  min_honest: f.Count | None = None  # of secure_aggregation: None is the cohort
  neighbours: f.Count | None = None  # of secure_aggregation: None is all
  quantile: f.Fraction | None = None  # of norms; bound='quantile' follows it
  quantile_lr: f.Positive | None = None
  count_stddev: f.Positive | None = None  # None is cohort / 20
  # independent (None), or banded: correlated over the rounds that share a hash
  noise: Annotated[str, choice(privacy_checks.NOISE)] | None = None
  noise_bands: f.Count | None = None  # rounds in banded noise; None is 16
  # threefry: fast, its key has 64 bits; chacha20 has 256
  noise_generator: Annotated[str, choice(generators.NAMES)] | None = None
  noise_seed: f.Size | None = None  # for tests: no privacy if it is known
  # noise of so large a cohort, and its statement: a simulation, not private
  simulated_cohort: f.Count | None = None
  # statistics of the clients in rows and figures: all, without noise; none;
  # private, with noise that is accounted for
  public_metrics: _Metrics | None = None
  metrics_share: f.Fraction | None = None  # of 1 / z^2; None is 0.05
  loss_bound: f.Positive | None = None  # of private metrics; None is 5

  # The run.
  rounds: f.Count = 100
  rounds_per_dispatch: f.Count = 1  # more where a round is short
  # Clients that a device trains at once; 0: one or a few on a CPU, on
  # accelerators as many as fit.
  lanes_per_step: f.Size = 0
  feed: _Place = 'auto'  # training data: on every device, or fed from the host
  client_state: _Place = 'auto'  # of all clients: device, or on the host's disk
  # sharded: each device holds a part of the server's state
  server_state: Annotated[str, choice(('replicated', 'sharded'))] = 'replicated'
  log_every: f.Count = 1
  eval_every: f.Count = 10
  checkpoint_every: f.Count = 50
  keep_checkpoints: f.Count = 3
  # A metric of evaluations, as test_accuracy: best/ keeps the parameters where
  # it was lowest (of a loss or an error) or highest (of any other).
  keep_best: str | None = None
  client_holdout: f.Share = 0.0  # of each client's samples: only evaluated
  # Local steps of each client before it evaluates on what it holds out, beside
  # the evaluation before them; 0: only that, of what a store's clients hold out
  personal_steps: f.Size | None = None
  personal_lr: f.Positive | None = None  # of these steps; None is client_lr

  # Modules or Python files that register parts of one's own.
  plugins: tuple[str, ...] = ()

  # A sweep: field -> its values, for launch.sweep; launch.train ignores it.
  sweep: Mapping[str, Any] | None = None

  @checked()
  def __post_init__(self):
    f.check(self)
    config_checks.check(self)

  @classmethod
  @checked()
  def from_mapping(cls, fields: Mapping[str, Any]) -> 'Config':
    """Checks a config's fields and values.

    Raises:
      ConfigError: a field is unknown or out of range; the message names it.
    """
    names = [field.name for field in dataclasses.fields(cls)]
    for name in fields:
      if name in MOVED:
        raise ValueError(f'The config field {name!r} is {MOVED[name]!r} now.')
      if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f' Did you mean {near[0]!r}?' if near else ''
        raise ValueError(f'Unknown config field {name!r}.{hint}')
    given = {name: _normalized(name, x) for name, x in fields.items()}
    if isinstance(named := given.get('plugins', ()), str):
      raise ValueError(f'Expected plugins={named!r} to be a tuple.')
    for plugin in named:
      plugins.load(plugin)
    return cls(**given)

  @property
  def key_seed(self) -> int:
    """The seed of `keys.RoundKeys`."""
    return self.seed if self.sketch_seed is None else self.sketch_seed

  @property
  def allocation_rounds(self) -> int:
    """The rounds of an epoch of random allocation."""
    return self.epoch_rounds or max(1, round(self.population / self.cohort))

  @property
  def chance(self) -> float:
    """The probability of a client in a round, if cohorts are random."""
    if self.sampling == 'random_allocation':
      return 1 / self.allocation_rounds
    return self.cohort / self.population

  def dispatch(self, done: int) -> range:
    """The rounds of the next dispatch, which ends where something is due.

    >>> c = Config(rounds=25, rounds_per_dispatch=10, eval_every=15)
    >>> [len(c.dispatch(done)) for done in (0, 10, 15)]
    [10, 5, 10]

    Args:
      done: rounds before it.
    """
    ends = [done + self.rounds_per_dispatch, self.rounds]
    for every in (self.eval_every, self.checkpoint_every):
      ends.append(done - done % every + every)
    return range(done, min(ends))

  def refusal(self, text: str) -> ValueError:
    """The error of a text in which {name} stands for name=value of a field."""
    named = {name: f'{name}={value!r}' for name, value in vars(self).items()}
    return ValueError(text.format(c=self, **named))

  def given(self, names: tuple[str, ...]) -> dict[str, Any]:
    """The fields of these names that are set."""
    return not_none({name: getattr(self, name) for name in names}) or {}


def not_none(options: Mapping[str, Any]) -> dict[str, Any] | None:
  """The options that are not None, at any depth, or None if none is."""
  kept = {
    k: not_none(v) if isinstance(v, Mapping) else v for k, v in options.items()
  }
  return {k: v for k, v in kept.items() if v is not None} or None


def _normalized(name: str, value: Any) -> Any:
  """A field of a mapping, as it stands in a `Config`."""
  if name in CALLS and isinstance(value, str):
    value = registry.parse_call(value)
  return not_none(value) if isinstance(value, Mapping) else value
