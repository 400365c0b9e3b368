"""The caveats of a privacy statement: what its guarantee does not cover."""

from typing import Any

from fl_sketch.data import availability, partitions
from fl_sketch.privacy.accounting import types
from fl_sketch.privacy.mechanisms import generators

_PUBLISHED = 'What is published are broadcasts, and all that follows from them.'
# Of every file that a run, a sweep or a sink writes.
_OF_SIMULATION = (
  'Of the simulation, without noise, are train_loss, participants, '
  'rejected_clients, late_clients, silent_clients, bytes and seconds in '
  'metrics.jsonl, its copies (summary.json, tensorboard/, wandb/; of a sweep '
  'points.jsonl and its report) and all figures that are drawn of them '
  '(loss.png, accuracy_vs_bytes.png), the labels of clients in labels.png, '
  'digests of the data in problem.json, and all of checkpoints/ but parameters.'
)
_LEFT_OUT = (
  'No row or figure has a statistic of clients without noise: bytes are of '
  'cohorts drawn anew from the public seed. Not to be published are '
  'problem.json, which has digests of the data, and seconds, which may depend '
  'on who took part.'
)
_STATE = 'Nor is checkpoints/client_rows to be published: what clients keep.'
_SELECTION = 'Choosing hyperparameters on the same data is not accounted for.'
_HONEST = (
  'Clients are honest, add their share of the noise, and no more than cohort - '
  'min_honest of them drop out or collude with the server.'
)
_KNOWN = (
  'Which clients take part is not hidden: each of them is supposed to do so in '
  'every round.'
)
_FAULTS = (
  'Whether a client is silent or late is supposed not to depend on data.'
)
_PRETRAINED = (
  'Training starts from the parameters of a file; what they were fitted to is '
  'not protected.'
)
_HELD_OUT = (
  'Metrics of clients (client_..., personal_..., clients.png) are of samples '
  'that they hold out, without noise; training does not see these samples.'
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
_OF_TRUST = {
  'central': (),
  'secure_aggregation': (_HONEST, _KNOWN),
  'local': (_KNOWN,),
}


def of(
  c: Any,
  mechanism: types.GaussianMechanism,
  trust: types.Trust,
  *,
  metrics: str,
  sends_without_data: bool = False,
  keeps_state: bool = False,
) -> tuple[str, ...]:
  """The caveats of a private config, in sentences.

  `metrics` says what private metrics cost, '' if there are none;
  `sends_without_data` whether a client whose gradients are 0 may send something
  else than 0; `keeps_state` whether it keeps something between its rounds.
  """
  zero_out = mechanism.adjacency is types.Adjacency.ZERO_OUT
  not_absent = zero_out and mechanism.unit == 'client' and sends_without_data
  evaluated = c.client_holdout > 0 or c.personal_steps is not None
  statistics = metrics, _LEFT_OUT, _STATE * keeps_state
  if c.shows_all:
    statistics = (_OF_SIMULATION,)
  conditions = {
    _FAULTS: availability.in_force(c),
    _PRETRAINED: c.pretrained is not None,
    _HELD_OUT: evaluated and c.shows_all,
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
