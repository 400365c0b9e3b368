"""Validates the privacy fields of a config."""

from typing import Any

from fl_sketch import algorithms
from fl_sketch.data import text
from fl_sketch.privacy.accounting import types
from fl_sketch.privacy.mechanisms import sums
from fl_sketch.reporting import metrics

FIELDS = (
  'delta', 'bound', 'per_layer', 'before_sketch', 'trust', 'adjacency',
  'accountant', 'min_honest', 'neighbours', 'quantile', 'quantile_lr',
  'count_stddev', 'noise_seed', 'simulated_cohort', 'noise_generator',
  'public_metrics', 'metrics_share', 'loss_bound', 'noise', 'noise_bands',
)  # fmt: skip
METRICS = ('all', 'none', 'private')
NOISE = 'independent', 'banded'
# Those that suit every private config.
_COMMON = {
  'delta', 'accountant', 'adjacency', 'noise_seed', 'noise_generator',
  'public_metrics',
}  # fmt: skip


def is_private(c: Any) -> bool:
  """Whether a config is private: it sets epsilon or noise_multiplier."""
  return c.epsilon is not None or c.noise_multiplier is not None


def unit_of(c: Any) -> types.Unit:
  """The privacy unit: user-level ('client') or example-level ('sample')."""
  private_steps = algorithms.entry(c.algorithm).work == 'private_steps'
  return 'sample' if private_steps else 'client'


def shows_all(c: Any) -> bool:
  """Whether rows and figures may have statistics of clients without noise."""
  return c.public_metrics in (None, 'all')


def check(c: Any):
  """Refuses privacy fields without a valid privacy analysis.

  Raises:
    ValueError: the message names the field.
  """
  takes = algorithms.options(c.algorithm)
  unit = unit_of(c)
  must = unit == 'sample' or c.algorithm in ('dp_fedavg', 'dp_normfedavg')
  if not is_private(c):
    if must:
      raise ValueError(
        f'Expected epsilon or noise_multiplier with {c.algorithm}.'
      )
    if stray := [f for f in FIELDS if getattr(c, f) is not None]:
      raise ValueError(
        f'Expected epsilon or noise_multiplier beside {tuple(stray)}.'
      )
    return
  if c.epsilon is not None and c.noise_multiplier is not None:
    raise c.refusal('Expected one of {epsilon} and {noise_multiplier}.')
  if not must and 'privacy' not in takes:
    raise ValueError(
      f'Expected no epsilon or noise_multiplier: {c.algorithm} '
      'has no private form.'
    )
  for name in ('delta', 'clip_norm'):
    if getattr(c, name) is None:
      raise ValueError(f'Expected {name} in a private config.')
  least, most = sums.CLIP_NORMS
  if not least < c.clip_norm < most:
    raise ValueError(f'Expected {least} < clip_norm={c.clip_norm} < {most}.')
  fixed = {'tokenizer', 'letters'} & (c.dataset_options or {}).keys()
  if c.dataset in text.NAMES and not fixed:
    raise ValueError(
      'Expected a tokenizer in a private config, or letters of characters: a '
      'vocabulary that is made of the sentences has no noise.'
    )
  if c.standardize and c.dataset not in ('quadratics', *text.NAMES):
    raise ValueError(
      'Expected standardize=False in a private config: the mean and deviation '
      'of all pixels have no noise.'
    )
  if c.weights != 'equal' or c.sampling == 'with_replacement':
    raise c.refusal(
      "Expected {weights} to be 'equal' and {sampling} 'poisson', "
      "'random_allocation', 'fixed_size' or 'cyclic' in a private config: else "
      'a client may contribute more than once.'
    )
  of_clients = 'client_', 'personal_'
  if metrics.ranked_by(c.keep_best or '')[0].startswith(of_clients):
    raise c.refusal(
      'Expected {keep_best} to be a test metric in a private config: a choice '
      'by samples of the clients is a release without noise.'
    )
  _check_bound(c)
  _check_metrics(c, unit)
  _check_faults(c, unit)
  (_check_samples if unit == 'sample' else _check_clients)(c)


def _check_bound(c):
  bounds = {'dp_normfedavg': ('normalize',), 'dp_fedavg': ('clip', 'quantile')}
  choices = bounds.get(c.algorithm, ('clip', 'normalize', 'quantile'))
  if c.bound is not None and c.bound not in choices:
    raise ValueError(f'Expected bound={c.bound!r} in {choices}.')


def _check_metrics(c, unit):
  """Refuses private statistics where their release has no analysis.

  It is one with that of the updates, which the server makes. A contribution
  that is zeroed out has the smallest loss there is, not the centre.
  """
  if c.public_metrics != 'private':
    for name in ('metrics_share', 'loss_bound'):
      if getattr(c, name) is not None:
        raise c.refusal(
          f"Expected {{public_metrics}} to be 'private' beside {{{name}}}."
        )
    return
  if unit == 'sample' or c.trust not in (None, 'central'):
    raise ValueError(
      "Expected public_metrics='all' or 'none' unless trust='central' protects "
      "clients: there is no server to add the noise of 'private' ones."
    )
  zero_out = c.adjacency == 'zero_out' or (
    c.adjacency is None and c.sampling == 'cyclic'
  )
  if c.bound == 'quantile' or zero_out:
    raise c.refusal(
      "Expected {bound} not to be 'quantile' and {adjacency} not "
      "'zero_out', which is the default of sampling='cyclic', with "
      "public_metrics='private'."
    )


def _check_faults(c, unit):
  """Refuses client failures that the privacy analysis does not cover.

  It covers dropouts and stragglers under central DP: they are drawn without
  regard to data and, without over-selection, to other clients. Given who they
  are, each contributes 0 in a run for which the analysis holds.
  """
  if c.byzantine or c.robust is not None or c.max_payload_norm is not None:
    raise ValueError(
      'Expected no byzantine, robust or max_payload_norm in a private config: '
      'what is rejected, or counts less than its weight, has no account.'
    )
  failures = c.dropout > 0 or c.deadline is not None
  if failures and c.bound == 'quantile':
    raise ValueError(
      "Expected no dropout or deadline with bound='quantile': the share of "
      'norms is of all that are expected, so that the bound would run away.'
    )
  central = unit == 'client' and c.trust in (None, 'central')
  if c.over_sampling > 1 or (failures and not central):
    raise ValueError(
      f'Expected over_sampling={c.over_sampling} to be 1, and no dropout or '
      "deadline unless trust='central' protects clients, in a private config."
    )


def _check_clients(c):
  if c.trust == 'secure_aggregation' and c.sampling == 'poisson':
    raise ValueError(
      "Expected sampling='fixed_size' with trust='secure_aggregation': the "
      'size of noise that clients add shows how many a Poisson draw took.'
    )
  if c.trust not in (None, 'central') and c.sampling == 'random_allocation':
    raise c.refusal(
      "Expected trust='central' with {sampling}, not {trust}: who sees the "
      'participants of a round sees the allocation.'
    )
  if c.adjacency == 'add_or_remove_one' and c.trust not in (None, 'central'):
    raise ValueError(
      f"Expected adjacency='zero_out' or 'replace_one' with trust={c.trust!r}: "
      "a client's noise, or message, shows that it is there."
    )
  if c.adjacency == 'zero_out' and c.bound == 'quantile':
    raise ValueError(
      "Expected adjacency='add_or_remove_one' with bound='quantile': the norm "
      'of a contribution of 0 counts as any other.'
    )
  central = c.trust in (None, 'central')
  if c.sampling == 'cyclic' and not central:
    raise c.refusal(
      "Expected {trust} to be 'central' with sampling='cyclic': groups of a "
      'fixed order may be smaller than the cohort whose noise is counted on.'
    )
  unfit = c.adjacency == 'add_or_remove_one' or c.bound == 'quantile'
  if c.sampling == 'cyclic' and unfit:
    raise c.refusal(
      "Expected {adjacency} to be 'zero_out' or 'replace_one', and {bound} not "
      "'quantile', with sampling='cyclic': the order is made for all clients, "
      'so that one more changes when the others take part.'
    )
  if c.min_honest is not None and c.min_honest > c.cohort:
    raise c.refusal('Expected {min_honest} <= {cohort}.')
  k = c.neighbours
  if k is not None and (k % 2 or not k < c.cohort):
    raise c.refusal('Expected {neighbours} to be even and < {cohort}.')
  masked = c.trust == 'secure_aggregation'
  unused = [] if masked else ['min_honest', 'neighbours']
  if c.bound != 'quantile':
    unused += ['quantile', 'quantile_lr', 'count_stddev']
  for name in unused:
    if getattr(c, name) is not None:
      raise ValueError(f'Expected nothing in {name}={getattr(c, name)}.')
  if c.simulated_cohort is not None:
    _check_simulation(c)
  central = c.trust in (None, 'central') and c.bound != 'quantile'
  if c.before_sketch and not (central and c.sketch is not None):
    raise ValueError(
      "Expected a sketch, trust='central' and a fixed bound with before_sketch."
    )
  _check_correlation(c)


def _check_correlation(c):
  """Refuses correlated noise that has no account, or that never cancels."""
  if c.noise != 'banded':
    if c.noise_bands is not None:
      raise c.refusal("Expected {noise} to be 'banded' beside {noise_bands}.")
    return
  central = c.trust in (None, 'central')
  if not central or c.bound == 'quantile' or c.before_sketch:
    raise c.refusal(
      "Expected {trust} to be 'central', {bound} another than 'quantile' and "
      "no {before_sketch} with noise='banded'."
    )
  everybody = c.sampling == 'fixed_size' and c.cohort == c.population
  if c.sampling != 'cyclic' and not everybody:
    raise c.refusal(
      "Expected {sampling} to be 'cyclic', or {cohort} == {population}, with "
      "noise='banded': its account supposes known intervals between the rounds "
      'in which a client takes part.'
    )
  if 'hash_rounds' in algorithms.options(c.algorithm) and c.hash_rounds is None:
    raise c.refusal(
      'Expected {hash_rounds} to be 0, or the rounds of an epoch, with noise='
      "'banded': noise does not cancel in tables of fresh hashes; see "
      'docs/concepts/correlated_noise.md.'
    )
  rounds = c.hash_rounds or c.rounds
  if (c.noise_bands or 1) > rounds:
    raise c.refusal(
      f'Expected {{noise_bands}} <= {rounds}, the rounds over which noise is '
      'correlated.'
    )


def _check_simulation(c):
  """Refuses a simulated cohort whose noise is not that of a larger run."""
  if c.trust not in (None, 'central') or c.bound == 'quantile':
    raise c.refusal(
      "Expected trust='central' and a fixed bound with {simulated_cohort}, "
      'not {trust} and {bound}: noise of clients, and shares of norms, are of '
      'those that train.'
    )
  if c.simulated_cohort <= c.cohort:
    raise c.refusal('Expected {simulated_cohort} > {cohort}.')
  if c.max_cohort is not None:
    raise c.refusal(
      'Expected no {max_cohort} with {simulated_cohort}, which has another one.'
    )
  if c.population * c.simulated_cohort % c.cohort or (
    c.sampling == 'random_allocation'
    and c.cohort * c.allocation_rounds != c.population
  ):
    raise c.refusal(
      'Expected a whole population of the same share: {population} x '
      '{simulated_cohort} / {cohort}.'
    )


def _check_samples(c):
  if c.adjacency == 'add_or_remove_one':
    raise ValueError(
      "Expected adjacency='zero_out' for samples: how many a client holds sets "
      'the coin of each.'
    )
  unused = {f for f in FIELDS if getattr(c, f) is not None}
  unused -= _COMMON
  if unused:
    raise ValueError(
      f'Expected nothing in {sorted(unused)} with {c.algorithm}, whose noise '
      'stands in the local steps.'
    )
  if c.batch_order != 'poisson' or c.batch_size < 1:
    raise c.refusal(
      "Expected {batch_order} to be 'poisson' and {batch_size} >= 1 with "
      '{c.algorithm}: its account supposes them.'
    )
