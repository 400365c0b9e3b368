"""The fields of differential privacy."""

import dataclasses
import inspect
from typing import Annotated

from fl_sketch import algorithms
from fl_sketch.accounting import types
from fl_sketch.data import text
from fl_sketch.privacy.mechanisms import sums
from fl_sketch.runs import metrics
from fl_sketch.runs.fields import method
from fl_sketch.utils import fields as f
from fl_sketch.utils.fields import field

# Fields that suit every private config.
_COMMON = {
  'epsilon', 'noise_multiplier', 'delta', 'accountant', 'adjacency',
  'noise_seed', 'public_metrics',
}  # fmt: skip
_BOUNDS = {'dp_normfedavg': ('normalize',), 'dp_fedavg': ('clip', 'quantile')}
_SEEN = ('secure_aggregation', 'local')  # trust: participants are visible
_CENTRAL = {'trust': _SEEN, 'bound': ('quantile',)}
# Field, a value of it, values of other fields that it does not support, reason.
_UNSUPPORTED = (
  ('trust', 'secure_aggregation', {'sampling': ('poisson',)},
    "the noise would reveal a Poisson cohort's size"),
  ('sampling', 'random_allocation', {'trust': _SEEN},
    'the participants of a round reveal the allocation'),
  ('sampling', 'cyclic', _CENTRAL | {'adjacency': ('add_or_remove_one',)},
    'its order is made for all clients, in groups of unequal sizes'),
  ('adjacency', 'add_or_remove_one', {'trust': _SEEN},
    'the message of a client shows that it is there'),
  ('bound', 'quantile', {'adjacency': ('zero_out',)},
    'the norm of a contribution of 0 counts'),
  # Contributions of 0 have the smallest loss, which is not the centre.
  ('public_metrics', 'private', _CENTRAL | {'adjacency': ('zero_out',)},
    'the release of private statistics has no analysis there'),
  ('noise', 'banded', _CENTRAL | {'before_sketch': (True,)},
    'a server adds it, to sums with one bound'),
  ('before_sketch', True, _CENTRAL,
    'a server adds this noise, to sums with one bound'),
)  # fmt: skip
_Accountant = Annotated[str, f.choice(('pld', 'rdp'))]
_Bound = Annotated[str, f.choice(('clip', 'normalize', 'quantile'))]
_Adjacency = Annotated[str, f.choice(a.value for a in types.Adjacency)]
_Metrics = Annotated[str, f.choice(('all', 'hidden', 'private'))]


@dataclasses.dataclass(frozen=True)
class PrivacyFields(method.MethodFields):
  """Privacy, claimed if epsilon or noise_multiplier is set."""

  epsilon: f.Positive | None = field('target, to which noise is calibrated')
  noise_multiplier: f.NonNegative | None = field('standard deviation / bound')
  delta: f.Delta | None = field('of the (epsilon, delta) guarantee')
  bound: _Bound | None = field('of a contribution (default: clip)')
  per_layer: bool | None = field('whether each array of a model has its bound')
  before_sketch: bool | None = field('noise on updates instead of tables')
  trust: Annotated[str, f.choice(types.TRUSTS)] | None = field(
    'central DP; secure_aggregation (distributed DP), local DP'
  )
  adjacency: _Adjacency | None = field('which data sets are neighbours')
  accountant: _Accountant | None = field('pld: tight epsilon; rdp: faster')
  min_honest: f.Count | None = field(
    'honest clients (default: cohort)', trust='secure_aggregation'
  )
  neighbours: f.Count | None = field(
    'clients that share masks (default: all)', trust='secure_aggregation'
  )
  quantile: f.Fraction | None = field('of norms', bound='quantile')
  quantile_lr: f.Positive | None = field('step size', bound='quantile')
  count_stddev: f.Positive | None = field(
    'noise on the share of norms (default: cohort / 20)', bound='quantile'
  )
  noise: Annotated[str, f.choice(('independent', 'banded'))] | None = field(
    'banded: noise correlated over the rounds that share a hash'
  )
  noise_bands: f.Count | None = field('in rounds; default 16', noise='banded')
  noise_seed: f.Size | None = field('for tests: no privacy if it is known')
  public_metrics: _Metrics | None = field(
    'statistics of clients in rows and figures: all, without noise; hidden: '
    'none; private: with noise that is accounted for'
  )
  loss_bound: f.Positive | None = field('default 5', public_metrics='private')

  @property
  def is_private(self) -> bool:
    """Return whether a config sets epsilon or noise_multiplier."""
    return self.epsilon is not None or self.noise_multiplier is not None

  @property
  def privacy_unit(self) -> types.Unit:
    """Return the unit: user-level ('client') or example-level ('sample')."""
    private_steps = algorithms.entry(self.algorithm).work == 'private_steps'
    return 'sample' if private_steps else 'client'

  @property
  def shows_all(self) -> bool:
    """Return whether rows may have statistics of clients without noise."""
    return self.public_metrics in (None, 'all')

  def check(self):
    """Refuse privacy fields without a valid privacy analysis."""
    super().check()
    clips = self.is_private or 'clip' in (self.options or {})
    clips = clips or algorithms.REGISTRY.is_own(self.algorithm)  # hp.clip_norm
    condition = 'options.clip, epsilon or noise_multiplier is set'
    self.check_effect(['clip_norm'], clips, condition)
    of_samples = self.privacy_unit == 'sample'
    must = of_samples or self.algorithm in _BOUNDS
    if not self.is_private:
      if must:
        raise self.refusal('{algorithm} requires epsilon or noise_multiplier.')
      names = [*inspect.get_annotations(PrivacyFields)]
      self.check_effect(names, False, 'epsilon or noise_multiplier is set')
      return
    least, most = sums.CLIP_NORMS
    bounds = _BOUNDS.get(self.algorithm)
    self.refuse(
      (self.epsilon is not None and self.noise_multiplier is not None,
       'Set one of {epsilon} and {noise_multiplier}, not both.'),
      (not must and 'privacy' not in algorithms.options(self.algorithm),
       '{algorithm} has no private form; remove epsilon and noise_multiplier.'),
      (self.delta is None or self.clip_norm is None,
       'epsilon, noise_multiplier: set {delta} and {clip_norm} as well.'),
      (not least < (self.clip_norm or 0) < most,
       f'{{clip_norm}} of a private config must be in ({least}, {most}).'),
      (self.bound is not None and bounds and self.bound not in bounds,
       f'{{bound}} is not supported by {{algorithm}}; use one of {bounds}.'),
    )  # fmt: skip
    self._check_data()
    self._check_absence()
    if of_samples:
      self._check_samples()
    else:
      self._check_clients()

  def _check_data(self):
    """Refuse what reads all samples without noise, or one client twice."""
    fixed = {'tokenizer', 'letters'} & (self.dataset_options or {}).keys()
    best = metrics.ranked_by(self.keep_best or '')[0]
    self.refuse(
      (self.dataset in text.NAMES and not fixed,
       '{dataset} makes its vocabulary from the sentences of clients without '
       'noise; set dataset_options.tokenizer, or letters of characters.'),
      (self.standardize and self.dataset not in ('quadratics', *text.NAMES),
       '{standardize} reads all samples without noise; set standardize=False.'),
      (self.weights != 'equal' or self.sampling == 'with_replacement',
       '{weights}, {sampling}: a client may contribute more than once; set '
       "weights='equal' and another sampling in a private config."),
      (best.startswith(('client_', 'personal_')),
       '{keep_best} reads clients without noise; use a test metric.'),
    )  # fmt: skip

  def _check_absence(self):
    central = self.privacy_unit == 'client' and self.trust in (None, 'central')
    # Under central DP dropouts and stragglers depend on no data and, without
    # over-selection, on no other client: an absent client contributes 0.
    failures = self.dropout > 0 or self.deadline is not None
    self.refuse(
      (self.byzantine or self.robust or self.max_payload_norm is not None,
       'byzantine, robust and max_payload_norm have no privacy analysis; '
       'remove {byzantine}, {robust}, {max_payload_norm}.'),
      (failures and self.bound == 'quantile',
       '{bound} does not support dropout or deadline: absent clients bias the '
       'quantile.'),
      (self.over_sampling > 1 or (failures and not central),
       'A private config requires over_sampling=1 and, unless trust='
       "'central' protects clients, no dropout or deadline; got "
       '{over_sampling}, {dropout}, {deadline}.'),
    )  # fmt: skip

  def _check_clients(self):
    for name, value, unsupported, reason in _UNSUPPORTED:
      for other, values in unsupported.items():
        if getattr(self, name) == value and getattr(self, other) in values:
          raise self.refusal(
            f'{{{name}}} does not support {{{other}}}: {reason}.'
          )
    noisy_metrics, k = self.public_metrics == 'private', self.neighbours
    equal_weights = algorithms.entry(self.algorithm).equal_weights
    self.refuse(
      (equal_weights and not self.everyone, f'A private {method.EVERYONE}'),
      (noisy_metrics and self.sampling == 'cyclic' and self.adjacency is None,
       "{public_metrics} does not support adjacency='zero_out', the default "
       "of {sampling}; set adjacency='replace_one'."),
      (self.min_honest is not None and self.min_honest > self.cohort,
       '{min_honest} exceeds {cohort}; use fewer.'),
      (k is not None and (k % 2 or k >= self.cohort),
       '{neighbours} must be even and below {cohort}.'),
    )  # fmt: skip
    if self.noise == 'banded':
      self._check_correlation()

  def _check_correlation(self):
    takes = algorithms.options(self.algorithm)
    rounds = self.hash_rounds or self.rounds
    self.refuse(
      (self.sampling != 'cyclic' and not self.full_participation,
       "{noise} requires sampling='cyclic' or {cohort} == {population}: its "
       'account needs the intervals between the rounds of a client.'),
      ('hash_rounds' in takes and self.hash_rounds is None,
       '{noise} does not cancel in tables of fresh hashes; set hash_rounds=0, '
       'or the rounds of an epoch (docs/concepts/correlated_noise.md).'),
      ((self.noise_bands or 1) > rounds,
       f'{{noise_bands}} exceeds {rounds} rounds of correlation; use fewer.'),
    )  # fmt: skip

  def _check_samples(self):
    names = {*inspect.get_annotations(PrivacyFields)} - _COMMON
    unlike = f'clients are protected, unlike in {self.algorithm!r}'
    self.check_effect(sorted(names), False, unlike)
    self.refuse(
      (self.public_metrics == 'private',
       '{public_metrics} is not supported by {algorithm}, whose server adds '
       "no noise; set public_metrics='hidden'."),
      (self.adjacency == 'add_or_remove_one',
       '{adjacency} is not supported by {algorithm}: sampling probabilities '
       "depend on a client's sample count; set adjacency='zero_out'."),
      (self.batch_order != 'poisson' or self.batch_size < 1,
       "{algorithm} requires batch_order='poisson' and batch_size >= 1; got "
       '{batch_order}, {batch_size}.'),
    )  # fmt: skip
