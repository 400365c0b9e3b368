"""The fields of the method."""

from collections.abc import Mapping
import dataclasses
from typing import Annotated, Any

from fl_sketch import algorithms
from fl_sketch.algorithms import server_optimizers
from fl_sketch.data import availability, batches
from fl_sketch.experiment.fields import clients
from fl_sketch.local import optimizers, schedules
from fl_sketch.models import lora
from fl_sketch.rounds import robust
from fl_sketch.utils import fields as f

_Robust = Annotated[str, f.choice(robust.KINDS)]
OPTIMIZER_OPTIONS = ('b1', 'b2', 'eps', 'momentum')
# Field -> the argument of an algorithm that takes it.
TAKEN_AS = {
  'sketch': 'sketch', 'codec': 'codec', 'downlink_codec': 'downlink_codec',
  'robust': 'robust', 'groups': 'robust',
  'server_optimizer': 'server_optimizer', 'final_server_lr': 'schedule',
  'server_schedule': 'schedule',
  'hash_rounds': 'hash_rounds',
}  # fmt: skip
# Field -> whether the local steps of an algorithm, by name, take it.
STEP_OPTIONS = {
  'client_clip': algorithms.takes_clip,
  'local_optimizer': algorithms.takes_optimizer,
}


@dataclasses.dataclass(frozen=True)
class MethodFields(clients.ClientFields):
  """The method: local work of clients, algorithm, what travels, server step."""

  local_steps: f.Count = 5  # of a client in a round
  batch_size: f.Size = 32  # 0: full-batch gradient steps
  # replace: samples drawn independently; cycle: in order; mask: one pass in a
  # random order, then none; poisson: batches of a random size
  batch_order: Annotated[str, f.choice(batches.ORDERS)] = 'replace'
  client_lr: f.Positive = 0.1  # learning rate of local steps
  lr_decay: f.Part | None = None  # factor on client_lr, every round
  # kind and its options: factors on client_lr by the round
  client_schedule: Mapping[str, Any] | None = None
  client_clip: f.Positive | None = None  # largest norm of a gradient
  weight_decay: f.NonNegative = 0.0  # of local steps
  # kind and its options; keep_state=True keeps a client's state between rounds
  local_optimizer: Mapping[str, Any] | None = None
  # gram: exact, and faster for full batches and model='linear'
  local_work: Annotated[str, f.choice(('sgd', 'gram'))] = 'sgd'

  # Algorithm and server.
  algorithm: str = 'fedavg'  # one of algorithms.names()
  options: Mapping[str, Any] | None = None  # its own; algorithms.describe
  sketch: Mapping[str, Any] | None = None  # kind and its options
  codec: Mapping[str, Any] | None = None  # kind and its options
  downlink_codec: Mapping[str, Any] | None = None  # of what the server sends
  # consecutive rounds that share hash functions (default 1; 0: all rounds)
  hash_rounds: f.Size | None = None
  server_lr: f.Positive = 1.0  # learning rate of the server
  # adam, amsgrad, yogi, adagrad, momentum, nesterov, sgd
  server_optimizer: str | None = None
  b1: f.Share | None = None  # of server_optimizer, as the next three
  b2: f.Share | None = None  # decay of second moments
  eps: f.NonNegative | None = None  # added to their root
  momentum: f.Share | None = None  # of momentum and nesterov
  final_server_lr: f.Positive | None = None  # cosine decay to it over the run
  # kind and its options: factors on server_lr by the round
  server_schedule: Mapping[str, Any] | None = None
  clip_norm: f.Positive | None = None  # largest norm of a clipped update
  max_payload_norm: f.Positive | None = None  # longer payloads are rejected
  robust: _Robust | None = None  # replaces the mean
  groups: f.Count | None = None  # of robust: the number of means it combines

  def check(self):
    """Checks the algorithm, its parts and the local work."""
    super().check()
    takes = algorithms.options(self.algorithm)
    for name, argument in TAKEN_AS.items():
      unlike = f'the algorithm takes {argument}, unlike {self.algorithm!r}'
      self.check_effect([name], argument in takes, unlike)
    for name in ('sketch', 'codec'):
      p = takes.get(name)
      if p and p.default is p.empty and getattr(self, name) is None:
        raise self.refusal(f'{{algorithm}} requires {name}; set {name}.kind.')
    self._check_server(takes)
    takes_part = self.full_participation and not availability.in_force(self)
    required = algorithms.entry(self.algorithm).full_participation
    if required and not (takes_part and self.weights == 'equal'):
      raise self.refusal(
        '{algorithm} requires every client in every round: set cohort='
        "population={c.population}, sampling='fixed_size', weights='equal' and "
        'no over_sampling, dropout or deadline.'
      )
    self._check_steps(takes)
    self._check_gram()
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

  def _check_server(self, takes: Mapping[str, Any]):
    given = self.given(OPTIMIZER_OPTIONS)
    if self.server_optimizer is not None:
      server_optimizers.make_server_optimizer(self.server_optimizer, **given)
    else:
      for name in given:
        set_it = f'the algorithm takes {name}, unlike {self.algorithm!r}'
        if 'server_optimizer' in takes:
          set_it = 'server_optimizer is set'
        self.check_effect([name], name in takes, set_it)
    if self.server_schedule is not None:
      schedules.make(rounds=self.rounds, **self.server_schedule)
    self.refuse(
      (None not in (self.final_server_lr, self.server_schedule),
       '{final_server_lr} and {server_schedule} both set the rate; remove one.'
       ),
      ((self.final_server_lr or 0) > self.server_lr,
       '{final_server_lr} exceeds {server_lr}, from which it decays; use a '
       'smaller final_server_lr.'),
      ((self.robust is None) != (self.groups is None),
       'Set robust and groups together, or neither; got {robust}, {groups}.'),
      (self.groups is not None and not 3 <= self.groups <= self.selected,
       f'{{groups}}: robust aggregation requires 3 to {self.selected} groups.'),
    )  # fmt: skip

  def _check_steps(self, takes: Mapping[str, Any]):
    """Checks batches, clipping, rates and optimizer of local steps."""
    work = algorithms.entry(self.algorithm).work
    divides = 'local_steps' in takes and work != 'slopes'
    self.refuse(
      (self.batch_order == 'poisson' and work != 'private_steps',
       "{batch_order} requires algorithm='private_iterative_sketching'; use "
       'another batch_order.'),
      (divides and self.batch_order == 'mask',
       '{batch_order} is not supported by {algorithm}, which divides by '
       'local_steps: clients with few samples make fewer.'),
    )  # fmt: skip
    for name, supports in STEP_OPTIONS.items():
      able = self.local_work != 'gram' and supports(self.algorithm)
      if getattr(self, name) is not None and not able:
        raise self.refusal(
          f'{{{name}}} is not supported by {{algorithm}} with {{local_work}}; '
          f'remove {name}.'
        )
    if self.local_optimizer is not None and self.weight_decay:
      kind = self.local_optimizer['kind']
      if 'weight_decay' in optimizers.REGISTRY.options(kind):
        raise self.refusal(
          '{weight_decay} and {local_optimizer} both decay weights; set '
          'local_optimizer.weight_decay alone.'
        )
    unlike = f'clients make steps, unlike those of {self.algorithm!r}'
    rates = 'client_schedule', 'lr_decay'
    # An own algorithm may read any rate, whatever it makes of its task.
    own = algorithms.REGISTRY.is_own(self.algorithm)
    self.check_effect(rates, own or work != 'gradient', unlike)
    if self.client_schedule is not None:
      schedules.make(rounds=self.rounds, **self.client_schedule)
      if self.lr_decay is not None:
        raise self.refusal(
          '{lr_decay} and {client_schedule} both set the rate; remove one.'
        )

  def _check_gram(self):
    work = algorithms.entry(self.algorithm).work
    gram = self.local_work == 'gram'
    exact = gram or self.dataset == 'quadratics'
    problem = self.model, self.batch_size, self.loss
    unfit = work in ('gradient', 'task', 'slopes') or self.lora is not None
    self.refuse(
      (exact and self.compute_dtype != 'float32',
       "{compute_dtype} is not supported by local_work='gram' or dataset="
       "'quadratics'; set compute_dtype='float32'."),
      (gram and problem != ('linear', 0, 'cross_entropy'),
       "local_work='gram' requires model='linear', batch_size=0 and loss="
       "'cross_entropy'; got {model}, {batch_size}, {loss}."),
      (gram and unfit,
       "local_work='gram' is not supported by {algorithm} with {lora}; set "
       "local_work='sgd'."),
    )  # fmt: skip
