"""Registry of algorithms: factory, kind of local work, example options."""

from collections.abc import Callable, Mapping
from functools import partial
import inspect
from types import MappingProxyType
from typing import Any, NamedTuple

from fl_sketch import codecs, sketches
from fl_sketch.algorithms import fedsketch, private, topology
from fl_sketch.algorithms.channel import Channel
from fl_sketch.algorithms.cocktail_sgd import cocktail_sgd
from fl_sketch.algorithms.compressed import demo, fedcom, signsgd
from fl_sketch.algorithms.control_variates import fedcomgate, scaffold
from fl_sketch.algorithms.decentralised import decentralised
from fl_sketch.algorithms.fedavg import fedavg, fedsgd
from fl_sketch.algorithms.fedsketchgate import fedsketchgate
from fl_sketch.algorithms.ferret import ferret
from fl_sketch.algorithms.fetchsgd import fetchsgd
from fl_sketch.algorithms.iterative_sketching import iterative_sketching
from fl_sketch.algorithms.lora_products import fedex, flora
from fl_sketch.algorithms.marina import marina
from fl_sketch.algorithms.markov import cd_adam, ef21
from fl_sketch.algorithms.onebit_adam import onebit_adam
from fl_sketch.algorithms.power_sgd import power_sgd
from fl_sketch.algorithms.preconditioned_sketching import (
  preconditioned_sketching,
)
from fl_sketch.algorithms.proximal import feddyn, fednova, fedprox
from fl_sketch.algorithms.safl import safl
from fl_sketch.algorithms.sketched_sgd import sketched_sgd
from fl_sketch.algorithms.zeroth_order import decomfl, fedkseed
from fl_sketch.local import Task
from fl_sketch.privacy.mechanisms.private_mean import Release
from fl_sketch.rounds.algorithm import Algorithm, Hyper
from fl_sketch.utils import registry


class Entry(NamedTuple):
  """An algorithm of the registry.

  The factory is (task, hp, **options) -> `Algorithm`, with the `local.Task` of
  a client. If its first argument is called ``local``, it gets the local work
  that the method `work` of the task builds. An argument ``channel`` of type
  `Channel` stands for the fields of that. `work` is what it makes of its task,
  by which a config is checked before there is a model: 'steps', one 'gradient'
  or 'private_steps', which own local work can replace; 'task', steps that the
  algorithm changes or counts; or 'slopes', for which the loss has no gradient.
  Options of `hyper` are arrays of `Hyper.extra`, which one program of a sweep
  varies; in `example`, options of a call, a `functools.partial` is what it
  returns. Costs are measured on a vector, or a matrix with so many `rows`.
  """

  factory: Callable[..., Algorithm]
  work: str = 'steps'
  full_participation: bool = False  # of all clients, with equal weights
  any_optimizer: bool = True  # whether local steps may be those of any
  hyper: tuple[str, ...] = ()
  example: Mapping[str, Any] = MappingProxyType({})
  rows: int | None = None
  rank: int | None = None  # of the matrix's factors, for algorithms of a lora


class Algorithms(registry.Registry[Entry]):
  """The registry of algorithms, whose options are flat."""

  def _takes_channel(self, factory):
    parameter = super()._arguments(factory).get('channel')
    return parameter is not None and parameter.annotation is Channel

  def _arguments(self, factory):
    own = super()._arguments(factory)
    if self._takes_channel(factory):
      del own['channel']
      return {**inspect.signature(Channel).parameters, **own}
    return own

  def describe(self, name: str, *, context: bool = False) -> str:
    """Describes a factory: its call, its docstring, options of a channel."""
    text = super().describe(name, context=context)
    if self._takes_channel(self.entry(name).factory):
      _, _, options = (inspect.getdoc(Channel) or '').partition('Attributes:')
      text += f'\n\nOptions of the channel:{options}'
    return text

  def build(
    self, name: str, task: Task, hp: Hyper, options: Mapping[str, Any]
  ) -> Algorithm:
    """Builds an algorithm from a client's task and its flat options."""
    spec, options = self.entry(name), dict(options)
    if self._takes_channel(spec.factory):
      parts = {k: options.pop(k) for k in Channel._fields if k in options}
      options['channel'] = Channel(**parts)
    first = next(iter(inspect.signature(spec.factory).parameters))
    work = getattr(task, spec.work)(hp) if first == 'local' else task
    return spec.factory(work, hp, **options)


# What a config gives by fields that several algorithms share.
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

_COUNT = {'sketch': partial(sketches.count_sketch, 5, 20)}
_LINEAR = {'sketch': partial(sketches.block_cyclic, 100)}
_GRAPH = {'graph': partial(topology.ring, 8), 'population': 8}
_RANDOM = {'codec': partial(codecs.rand_k, 10)}
_LARGEST = {'codec': partial(codecs.top_k, 10)}
_QUANTIZED = {'codec': partial(codecs.quantized_top_k, 10, 4, 10)}
_COSINES = {'codec': partial(codecs.dct_top_k, 2, 64)}
_PRIVATE = {'privacy': partial(Release, 8)}
_K, _STEPS, _ALL = {'k': 10}, {'local_steps': 2}, {'population': 8}

register(fedsgd, work='gradient')
register(fedavg)
register(fedprox, work='task', hyper=('mu',))
register(feddyn, work='task', hyper=('alpha',), example=_ALL)
register(fednova, work='task', any_optimizer=False)
register(iterative_sketching, example=_LINEAR)
register(decentralised, full_participation=True, example=_LINEAR | _GRAPH)
register(fedsketch.fedsketch_privix, example=_COUNT)
register(fedsketch.fedsketch_heaprix, example=_COUNT | _K)
register(fedsketchgate, full_participation=True, example=_COUNT | _STEPS)
register(fedsketch.diffsketch, hyper=('noise_stddev',), example=_COUNT)
register(safl, example=_LINEAR)
register(preconditioned_sketching, example=_LINEAR)
register(sketched_sgd, work='gradient', example=_COUNT | _K)
register(fetchsgd, work='gradient', example=_COUNT | _K)
register(fedcom, example=_RANDOM)
register(fedcomgate, full_participation=True, example=_RANDOM | _STEPS)
register(scaffold, example=_STEPS | _ALL)
register(signsgd, work='gradient')
register(marina, work='gradient', example=_RANDOM | {'sync_probability': 0.1})
register(ef21, work='gradient', example=_LARGEST | _ALL)
register(cd_adam, work='gradient', example=_LARGEST | _ALL)
register(onebit_adam, work='gradient', example={'warmup': 2})
register(power_sgd, example={'rank': 2}, rows=25)
register(flora, work='task', rows=200, rank=2)
register(fedex, work='task', rows=200, rank=2)
register(demo, work='gradient', example=_COSINES)
register(cocktail_sgd, example=_QUANTIZED | {'mask_ratio': 0.1})
register(ferret, example={'size': 100})
register(decomfl, work='slopes', hyper=('mu',), example=_STEPS)
register(fedkseed, work='slopes', hyper=('mu',), example=_STEPS | {'pool': 64})
register(private.dp_fedavg, example=_PRIVATE)
register(private.dp_normfedavg, example=_PRIVATE)
register(
  private.private_iterative_sketching,
  work='private_steps',
  example=_LINEAR | _STEPS,
)
