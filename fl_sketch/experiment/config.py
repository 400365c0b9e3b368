"""Every field that a config may set, its default, and what it may be."""

from collections.abc import Mapping
import dataclasses
import difflib
import typing
from typing import Any

from fl_sketch.experiment import config_checks

# What may differ when a run is resumed: it changes no number of any round.
# `rounds` is among them unless something depends on them; `workdir.resumable`.
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
MAPPINGS = ('sketch', 'codec', 'model_options', 'sweep')
# Fields that an algorithm's factory takes by the same name.
ALGORITHM_OPTIONS = (
  *config_checks.OPTIMIZER_OPTIONS,
  'k',
  'exact',
  'printed',
  'clip',
  'control_gain',
  'candidates',
  'error_update',
  'momentum_masking',
  'local_k',
  'error_feedback',
  'sync_probability',
  'warmup',
  'mask_ratio',
  'gossip_steps',
  'chebyshev',
  'resync_every',
)


@dataclasses.dataclass(frozen=True)
class Config:
  """Every field that a config may set; None leaves a choice to its owner."""

  seed: int = 0
  sketch_seed: int | None = None  # of hashes and codecs; None is the seed

  # The problem.
  # digits, mnist, fashion_mnist, cifar10, cifar100, sst2, quadratics; or
  # simulated, store
  dataset: str = 'digits'
  store: str | None = None  # folder of the clients' own arrays; `data.store`
  train_slice: str | None = None  # '0:10000': only these training samples
  test_slice: str | None = None  # likewise
  text_length: int | None = None  # tokens of a sentence
  vocabulary: int | None = None  # tokens that are made from the sentences
  tokenizer: str | None = None  # or a published one's vocab.txt, tokenizer.json
  model: str = 'mlp'  # one of models.names()
  widths: tuple[int, ...] = (64,)  # hidden layers of the mlp
  model_options: Mapping[str, Any] | None = None  # of other models, by name
  pretrained: str | None = None  # a safetensors file to start from
  label_smoothing: float = 0.0
  standardize: bool = True  # False: pixels from 0 to 1, as they are
  start_scale: float = 1.0  # of quadratics: how far from the optimum to start
  compute_dtype: str = 'float32'  # bfloat16: parameters and sums stay float32

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

  # Who fails: `participation`, `byzantine`; and what is done: `robust`.
  over_sampling: float = 1.0  # clients asked, in cohorts; the first are taken
  dropout: float = 0.0  # the chance that a client asked never answers
  deadline: float | None = None  # in medians of a client's time to answer
  response_sigma: float | None = None  # deviation of the logarithm of that time
  byzantine: float = 0.0  # share of the population that sends what it likes
  attack: str | None = None  # what: sign_flip, noise, scale, nan
  max_payload_norm: float | None = None  # what is longer is rejected
  robust: str | None = None  # instead of the mean: geometric_median, median
  groups: int | None = None  # of robust: how many means it is taken over

  # Local work.
  local_steps: int = 5
  batch_size: int = 32  # 0: full-batch gradient steps
  batch_order: str = 'replace'  # cycle, mask, poisson
  client_lr: float = 0.1
  lr_decay: float | None = None  # factor on client_lr, every round
  weight_decay: float = 0.0
  local_work: str = 'sgd'  # gram: exact and faster for full batches and linear

  # The protocol.
  algorithm: str = 'fedavg'
  sketch: Mapping[str, Any] | None = None  # kind, and the options of that kind
  codec: Mapping[str, Any] | None = None  # likewise
  server_lr: float = 1.0
  server_optimizer: str | None = None  # adam, amsgrad, yogi, adagrad, momentum
  b1: float | None = None
  b2: float | None = None
  eps: float | None = None
  momentum: float | None = None
  final_server_lr: float | None = None  # cosine decay to it over the run

  # Options of some algorithms; `algorithms.describe` says which, and what.
  clip_norm: float | None = None
  clip: str | None = None  # of safl: client, server
  k: int | None = None  # heavy coordinates
  exact: bool | None = None  # of fedsketch_heaprix
  printed: bool | None = None  # of fedsketchgate
  control_gain: float | None = None  # of fedsketchgate and fedcomgate
  noise_stddev: float | None = None  # of diffsketch
  candidates: int | None = None  # of sketched_sgd
  error_update: str | None = None  # of fetchsgd: zero, subtract
  momentum_masking: bool | None = None  # of fetchsgd
  local_k: int | None = None  # of fetchsgd
  error_feedback: bool | None = None  # of fedcom
  sync_probability: float | None = None  # of marina
  warmup: int | None = None  # of onebit_adam
  mask_ratio: float | None = None  # of cocktail_sgd
  graph: str | None = None  # of decentralised: ring, path, grid, star, complete
  gossip_steps: int | None = None  # of decentralised
  chebyshev: bool | None = None  # of decentralised
  resync_every: int | None = None  # of decentralised

  # Privacy, claimed where epsilon or noise_multiplier is set.
  epsilon: float | None = None  # the noise is calibrated to it
  noise_multiplier: float | None = None  # or given
  delta: float | None = None
  bound: str | None = None  # clip; normalize, quantile
  per_layer: bool | None = None  # bound every array of a model by itself
  before_sketch: bool | None = None  # noise on updates instead of tables
  trust: str | None = None  # central; secure_aggregation, local
  adjacency: str | None = None  # add_or_remove_one, replace_one, zero_out
  accountant: str | None = None  # pld, rdp
  min_honest: int | None = None  # of secure_aggregation: None is the cohort
  neighbours: int | None = None  # of secure_aggregation: None is all
  quantile: float | None = None  # of norms, that bound='quantile' follows
  quantile_lr: float | None = None
  count_stddev: float | None = None  # None is cohort / 20
  noise_seed: int | None = None  # for tests: who knows it has no privacy

  # The run.
  rounds: int = 100
  rounds_per_dispatch: int = 1  # more where a round is short
  lanes_per_step: int = 0  # clients a device works on at once; 0 by backend
  feed: str = 'auto'  # training data on every device, or from the host
  client_state: str = (
    'auto'  # rows of all clients: device, or on the host's disk
  )
  server_state: str = (
    'replicated'  # sharded: each device its part of the moments
  )
  log_every: int = 1
  eval_every: int = 10
  checkpoint_every: int = 50
  keep_checkpoints: int = 3

  # Field -> its values, for launch.sweep; launch.train does not look at it.
  sweep: Mapping[str, Any] | None = None

  def __post_init__(self):
    _check_types(self)
    config_checks.check(self)

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
    mappings = {name: given(fields.get(name) or {}) for name in MAPPINGS}
    return cls(**{**fields, **mappings})

  @property
  def key_seed(self) -> int:
    """The seed of `keys.RoundKeys`."""
    return self.seed if self.sketch_seed is None else self.sketch_seed

  def options(self, names: tuple[str, ...]) -> dict[str, Any]:
    """The fields of these names that are set."""
    return given({name: getattr(self, name) for name in names}) or {}


def given(options: Mapping[str, Any]) -> dict[str, Any] | None:
  """The options that are not None, at any depth, or None if none is."""
  kept = {
    k: given(v) if isinstance(v, Mapping) else v for k, v in options.items()
  }
  return {k: v for k, v in kept.items() if v is not None} or None


def _check_types(c: Config):
  for name, hint in typing.get_type_hints(Config).items():
    value = getattr(c, name)
    kinds = typing.get_args(hint) or (hint,)
    if float in kinds:
      kinds = (*kinds, int)
    if name == 'widths':
      kinds = (tuple, list)
    elif name in MAPPINGS:
      kinds = (Mapping, type(None))
    if (isinstance(value, bool) and bool not in kinds) or not isinstance(
      value, kinds
    ):
      names = ' or '.join(k.__name__ for k in kinds)
      raise ValueError(f'Expected {name}={value!r} to be {names}.')
