"""The fields of the method."""

from collections.abc import Mapping
import dataclasses
from typing import Annotated, Any

from fl_sketch import algorithms
from fl_sketch.algorithms import server_optimizers
from fl_sketch.data import batches
from fl_sketch.local import optimizers, schedules
from fl_sketch.models import lora
from fl_sketch.rounds import robust
from fl_sketch.runs.fields import clients
from fl_sketch.utils import fields as f
from fl_sketch.utils.fields import field

_Robust = Annotated[str, f.choice(robust.KINDS)]
EVERYONE = (
  '{algorithm} requires every client in every round: set cohort=population, '
  "sampling='fixed_size', weights='equal', no over_sampling, dropout, deadline."
)
OPTIMIZER_OPTIONS = ('b1', 'b2', 'eps', 'momentum')
# Argument of an algorithm -> the fields that set it, beside OPTIMIZER_OPTIONS.
ARGUMENTS = {
  'sketch': ('sketch',), 'codec': ('codec',),
  'downlink_codec': ('downlink_codec',), 'hash_rounds': ('hash_rounds',),
  'robust': ('robust', 'groups'), 'server_optimizer': ('server_optimizer',),
  'schedule': ('final_server_lr', 'server_schedule'),
}  # fmt: skip


def without_effect(
  algorithm: str, optimizer: str | None = None, local_work: str = 'sgd'
) -> dict[str, str]:
  """Return the fields that have no effect, and what would take them.

  >>> without_effect('fedsgd')['lr_decay']
  "clients make steps, unlike those of 'fedsgd' with sgd"
  """
  takes, own = algorithms.options(algorithm), algorithms.REGISTRY.is_own
  unlike = f'unlike those of {algorithm!r} with {local_work}'
  useless = {
    name: f'the algorithm takes {argument}, unlike {algorithm!r}'
    for argument, names in ARGUMENTS.items()
    for name in names
    if argument not in takes
  }
  plain = local_work != 'gram'
  if not (plain and algorithms.takes_clip(algorithm)):
    useless['client_clip'] = f'local steps take it, {unlike}'
  if not (plain and algorithms.takes_optimizer(algorithm)):
    useless['local_optimizer'] = f'local steps take it, {unlike}'
  # An own algorithm may read any rate, whatever it makes of its task.
  if algorithms.entry(algorithm).work == 'gradient' and not own(algorithm):
    steps = f'clients make steps, {unlike}'
    useless |= {'lr_decay': steps, 'client_schedule': steps}
  taken = {*takes}
  if optimizer is not None:
    name, given = server_optimizers.parsed(optimizer)
    taken |= {*server_optimizers.REGISTRY.options(name)} - {*given}
  by = f'{algorithm!r}, or its server_optimizer, takes it'
  useless |= {name: by for name in OPTIMIZER_OPTIONS if name not in taken}
  return useless


@dataclasses.dataclass(frozen=True)
class MethodFields(clients.ClientFields):
  """The method: local work of clients, algorithm, what travels, server step."""

  local_steps: f.Count = field('local steps of a client in a round', 5)
  batch_size: f.Size = field('0: full-batch gradient steps', 32)
  batch_order: Annotated[str, f.choice(batches.ORDERS)] = field(
    'replace: samples drawn independently; cycle: in order; mask: one pass in '
    'a random order; poisson: batches of a random size',
    'replace',
  )
  client_lr: f.Positive = field('learning rate of local steps', 0.1)
  lr_decay: f.Part | None = field('factor on client_lr, every round')
  client_schedule: f.Options = field('kind and options: factors on client_lr')
  client_clip: f.Positive | None = field('largest norm of a gradient')
  weight_decay: f.NonNegative = field('decay of weights in local steps', 0.0)
  local_optimizer: f.Options = field('kind and options, such as keep_state')
  local_work: Annotated[str, f.choice(('sgd', 'gram'))] = field(
    "gram: exact, and faster for full batches and model='linear'", 'sgd'
  )

  algorithm: str = field(
    'one of algorithms.names()', 'fedavg', section='Algorithm and server.'
  )
  options: f.Options = field('of the algorithm, by name')
  sketch: f.Options = field('kind and options')
  codec: f.Options = field('kind and options')
  downlink_codec: f.Options = field('kind and options, of the broadcast')
  hash_rounds: f.Size | None = field(
    'consecutive rounds that share hash functions (default 1; 0: all)'
  )
  server_lr: f.Positive = field('learning rate of the server', 1.0)
  server_optimizer: str | None = field(
    'any of optax, momentum, nesterov, or your own; NAME(OPTION=VALUE)'
  )
  b1: f.Share | None = field('decay of first moments, of server_optimizer')
  b2: f.Share | None = field('decay of second moments')
  eps: f.NonNegative | None = field('added to the root of second moments')
  momentum: f.Share | None = field('of momentum and nesterov')
  final_server_lr: f.Positive | None = field('cosine decay to it over the run')
  server_schedule: f.Options = field('kind and options: factors on server_lr')
  clip_norm: f.Positive | None = field('largest norm of a clipped update')
  max_payload_norm: f.Positive | None = field('longer payloads are rejected')
  robust: _Robust | None = field('how means of groups are combined')
  groups: f.Count | None = field('number of means that robust combines')

  def check(self):
    """Check the algorithm, its parts and the local work."""
    if self.server_optimizer is not None:
      server_optimizers.parsed(self.server_optimizer)
    super().check()
    takes = algorithms.options(self.algorithm)
    useless = without_effect(
      self.algorithm, self.server_optimizer, self.local_work
    )
    for name, condition in useless.items():
      self.check_effect([name], False, condition)
    for name in ('sketch', 'codec'):
      p = takes.get(name)
      if p and p.default is p.empty and getattr(self, name) is None:
        raise self.refusal(f'{{algorithm}} requires {name}; set {name}.kind.')
    entry, equal = algorithms.entry(self.algorithm), self.weights == 'equal'
    self.refuse(
      (entry.full_participation and not (equal and self.everyone), EVERYONE),
      (entry.equal_weights and not equal,
       "{algorithm} does not support {weights}; set weights='equal'."),
    )  # fmt: skip
    self._check_work(takes)
    changes = 'lora_scale' in takes  # whether the server changes the kernels
    if self.lora is None and not changes:
      return
    kinds = [k for k, p in lora.KINDS.items() if ('base' in p) == changes]
    if self.algorithm in kinds:
      kinds = [self.algorithm]
    if (self.lora or {}).get('kind') not in kinds:
      raise self.refusal(
        f'{{lora}} does not suit {{algorithm}}; set lora.kind in {kinds}.'
      )

  def _check_work(self, takes: Mapping[str, Any]):
    work = algorithms.entry(self.algorithm).work
    divides = 'local_steps' in takes and work != 'slopes'
    optimizer = (self.local_optimizer or {}).get('kind')
    decays = optimizer and 'weight_decay' in optimizers.REGISTRY.options(
      optimizer
    )
    problem = self.model, self.batch_size, self.loss, self.compute_dtype
    plain = work not in ('gradient', 'task', 'slopes') and self.lora is None
    exact = plain and problem == ('linear', 0, 'cross_entropy', 'float32')
    self.refuse(
      (self.local_work == 'gram' and not exact,
       "local_work='gram' requires model='linear', batch_size=0, loss="
       "'cross_entropy', compute_dtype='float32', no lora and an algorithm "
       'of plain steps; got {algorithm}.'),
      (self.batch_order == 'poisson' and work != 'private_steps',
       "{batch_order} requires algorithm='private_iterative_sketching'."),
      (divides and self.batch_order == 'mask',
       '{batch_order} is not supported by {algorithm}, which divides by '
       'local_steps: clients with few samples make fewer.'),
      (decays and self.weight_decay,
       '{weight_decay} and {local_optimizer} both decay weights; remove one.'),
      (None not in (self.lr_decay, self.client_schedule),
       '{lr_decay} and {client_schedule} both set the rate; remove one.'),
      (None not in (self.final_server_lr, self.server_schedule),
       '{final_server_lr}, {server_schedule} both set the rate; remove one.'),
      ((self.robust is None) != (self.groups is None),
       'Set robust and groups together, or neither; got {robust}, {groups}.'),
      (self.groups is not None and not 3 <= self.groups <= self.selected,
       f'{{groups}}: robust aggregation requires 3 to {self.selected} groups.'),
    )  # fmt: skip
    for schedule in self.client_schedule, self.server_schedule:
      if schedule is not None:
        schedules.make(rounds=self.rounds, **schedule)
