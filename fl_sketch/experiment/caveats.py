"""The caveats of a privacy statement: what its guarantee does not cover."""

from typing import Any

from fl_sketch.data import availability, partitions
from fl_sketch.experiment import published
from fl_sketch.privacy.accounting import types
from fl_sketch.privacy.accounting.correlation import Correlation
from fl_sketch.privacy.mechanisms import generators

_PUBLISHED = 'What is published are broadcasts, and all that follows from them.'
_SELECTION = 'Choosing hyperparameters on the same data is not accounted for.'
_HONEST = (
  'Clients are honest, add their share of the noise, and no more than cohort - '
  'min_honest of them drop out or collude with the server.'
)
_KNOWN = (
  'Which clients take part is not hidden: each of them is supposed to do so in '
  'every round.'
)
_LATE = 'Whether a client is silent or late is supposed not to depend on data.'
_PRETRAINED = (
  'Training starts from the parameters of a file; what they were fitted to is '
  'not protected.'
)
_BY_LABEL = (
  'Which samples a client holds was drawn from the labels of all samples '
  '(partition={!r}): that other data of one client would change what others '
  'hold is left out.'
)
_NOT_ABSENT = (
  'Zero-out is of the contribution: without any data a client of this run '
  'would still send something, by its control variate, by what it keeps from '
  'earlier rounds or by weight decay. That a client is the one without data is '
  'not covered.'
)
_ORDER = (
  'The order in which clients take part is public, and supposed not to depend '
  'on any data or on who else is there.',
)
_OF_TRUST = {
  'central': (), 'secure_aggregation': (_HONEST, _KNOWN), 'local': (_KNOWN,),
}  # fmt: skip


def of(
  c: Any,
  mechanism: types.GaussianMechanism,
  trust: types.Trust,
  *,
  metrics: str,
  sends_without_data: bool = False,
  **published_of: Any,
) -> tuple[str, ...]:
  """The caveats of a private config, in sentences.

  `metrics` says what private metrics cost, '' if there are none;
  `sends_without_data` whether a client whose gradients are 0 may send something
  else than 0; others are of `published.sentences`.
  """
  zero_out = mechanism.adjacency is types.Adjacency.ZERO_OUT
  not_absent = zero_out and mechanism.unit == 'client' and sends_without_data
  statistics = metrics, published.sentences(c, **published_of)
  conditions = {
    _LATE: availability.in_force(c),
    _PRETRAINED: c.pretrained is not None,
    _NOT_ABSENT: not_absent,
    _BY_LABEL.format(c.partition): c.partition in partitions.BY_LABEL,
  }
  return (
    *_OF_TRUST[trust],
    *(text for text, holds in conditions.items() if holds),
    ' '.join(filter(None, (_PUBLISHED, *statistics))),
    _SELECTION,
    *[generators.SENTENCE] * (c.noise_seed is None),
  )


def of_order(c: Any, over_rounds: Correlation | None) -> tuple[str, ...]:
  """Says when clients take part, and what a step of the account is."""
  if over_rounds is None:
    return ()
  apart, length = over_rounds.separation, min(over_rounds.rounds, c.rounds)
  often = 'every round' if apart == 1 else f'one of every {apart} rounds'
  text = f'A client takes part in {often}'
  if c.noise != 'banded':
    return (f'{text}: a step is such a round.', *_ORDER)
  return (
    f'{text}. Noise is correlated over {over_rounds.bands} rounds: a step is '
    f'an epoch of {length} rounds, in which a client moves what is released by '
    f'{over_rounds.sensitivity(length):.4g} times its bound at most.',
    *_ORDER,
  )
