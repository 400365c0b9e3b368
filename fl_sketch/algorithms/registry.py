"""Registry of algorithms: factory, and kind of local work."""

from collections.abc import Callable, Mapping
import inspect
from typing import Any, NamedTuple

from fl_sketch.algorithms import fedavg, fedsketch, private
from fl_sketch.algorithms.channel import Channel
from fl_sketch.algorithms.compressed import cocktail_sgd, demo, fedcom, signsgd
from fl_sketch.algorithms.control_variates import fedcomgate, scaffold
from fl_sketch.algorithms.ferret import ferret
from fl_sketch.algorithms.heavy_hitters import fetchsgd, sketched_sgd
from fl_sketch.algorithms.iterative_sketching import (
  decentralised,
  iterative_sketching,
)
from fl_sketch.algorithms.lora_products import fedex, flora
from fl_sketch.algorithms.markov import cd_adam, ef21, marina
from fl_sketch.algorithms.onebit_adam import onebit_adam
from fl_sketch.algorithms.power_sgd import power_sgd
from fl_sketch.algorithms.preconditioned_sketching import (
  preconditioned_sketching,
)
from fl_sketch.algorithms.safl import safl
from fl_sketch.algorithms.subspace_sketching import subspace_sketching
from fl_sketch.algorithms.zeroth_order import decomfl, fedkseed
from fl_sketch.local import Task
from fl_sketch.rounds.algorithm import Algorithm, Hyper
from fl_sketch.utils import registry


class Entry(NamedTuple):
  """An algorithm of the registry."""

  # (task, hp, **options) -> `Algorithm`; an argument ``channel: Channel``
  # stands for the fields of `Channel`.
  factory: Callable[..., Algorithm]
  # The method of `local.Task` that builds the local work: 'steps', 'gradient'
  # or 'private_steps', which a user's own local work can replace; 'task': steps
  # that the algorithm changes or counts; 'slopes': no gradient.
  work: str = 'steps'
  full_participation: bool = False  # of all clients, with equal weights
  equal_weights: bool = False  # in any cohort; a private one has all clients
  any_optimizer: bool = True  # whether any can make the local steps
  hyper: tuple[str, ...] = ()  # options that one program of a sweep varies


class Algorithms(registry.Registry[Entry]):
  """The registry of algorithms, whose options are flat."""

  def _takes_channel(self, factory):
    parameter = super()._arguments(factory).get('channel')
    return parameter is not None and parameter.annotation is Channel

  def _arguments(self, factory):
    arguments = super()._arguments(factory)
    if self._takes_channel(factory):
      del arguments['channel']
      return {**inspect.signature(Channel).parameters, **arguments}
    return arguments

  def describe(self, name: str, *, context: bool = True) -> str:
    """Describe an algorithm: its call with all options, and their meaning."""
    text = super().describe(name, context=context)
    shared = [
      f'  {option}: {SHARED[option]}'
      for option in self.arguments(name)
      if option in SHARED and f'  {option}: ' not in text
    ]
    return '\n'.join([text, '\nShared options:', *shared]) if shared else text

  def build(
    self, name: str, task: Task, hp: Hyper, options: Mapping[str, Any]
  ) -> Algorithm:
    """Build an algorithm from a client's task and its flat options."""
    factory, options = self.entry(name).factory, dict(options)
    if self._takes_channel(factory):
      parts = {k: options.pop(k) for k in Channel._fields if k in options}
      options['channel'] = Channel(**parts)
    return factory(task, hp, **options)


# What these options mean where a docstring says nothing else.
SHARED = {
  'b1': 'decay of the first moment.',
  'b2': 'decay of the second.',
  'eps': 'added to its root.',
  'sketch': 'R, a linear operator.',
  'hash_rounds': 'rounds that share one R; None: 1, 0: all.',
  'codec': "compresses the clients' tables; None: no compression.",
  'downlink_codec': 'compresses the mean table likewise.',
  'privacy': 'bounds and noise on what clients send; None: no privacy.',
  'robust': 'byzantine-robust rule in place of the mean; None: the mean.',
  'lora_scale': 's, alpha / rank.',
  'local_steps': 'of local work.',
  'population': 'clients in total.',
  'server_optimizer': 'a name, as of `make_server_optimizer`, or a function '
  'of learning_rate, as `optax.lion`, whose rate is ``server_lr``.',
  'schedule': 'round -> factor on ``server_lr``.',
}
# Options that a config sets by fields that algorithms share.
CONTEXT = (
  'sketch', 'codec', 'downlink_codec', 'privacy', 'robust', 'server_optimizer',
  'schedule', 'local_steps', 'population', 'b1', 'b2', 'eps', 'momentum',
  'hash_rounds', 'lora_scale',
)  # fmt: skip
REGISTRY = Algorithms(
  'algorithm', Entry, context=CONTEXT, leading=2,
  reserved=(
    'name', 'loss_fn', 'weight_decay', 'expected_batch', 'local_optimizer',
    'client_clip', 'local',
  ),
)  # fmt: skip
register = REGISTRY.register

register(fedavg.fedsgd, work='gradient')
register(fedavg.fedavg)
register(fedavg.fedprox, work='task', hyper=('mu',))
register(fedavg.feddyn, work='task', hyper=('alpha',))
register(fedavg.fednova, work='task', any_optimizer=False)
register(iterative_sketching)
register(decentralised, full_participation=True)
register(fedsketch.fedsketch_privix)
register(fedsketch.fedsketch_heaprix)
register(fedsketch.fedsketchgate, equal_weights=True)
register(fedsketch.diffsketch, hyper=('noise_stddev',))
register(safl)
register(subspace_sketching)
register(preconditioned_sketching)
register(sketched_sgd, work='gradient')
register(fetchsgd, work='gradient')
register(fedcom)
register(fedcomgate, full_participation=True)
register(scaffold)
register(signsgd, work='gradient')
register(marina, work='gradient')
register(ef21, work='gradient')
register(cd_adam, work='gradient')
register(onebit_adam, work='gradient')
register(power_sgd)
register(flora, work='task')
register(fedex, work='task')
register(demo, work='gradient')
register(cocktail_sgd)
register(ferret)
register(decomfl, work='slopes', hyper=('mu',))
register(fedkseed, work='slopes', hyper=('mu',))
register(private.dp_fedavg)
register(private.dp_normfedavg)
register(private.private_iterative_sketching, work='private_steps')
