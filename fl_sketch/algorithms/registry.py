"""Registry of algorithms: factory, kind of local work, example options."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from fl_sketch import codecs, sketches
from fl_sketch.algorithms import fedsketch, private, topology
from fl_sketch.algorithms.cocktail_sgd import cocktail_sgd
from fl_sketch.algorithms.compressed import fedcom, signsgd
from fl_sketch.algorithms.control_variates import fedcomgate, scaffold
from fl_sketch.algorithms.decentralised import decentralised
from fl_sketch.algorithms.fedavg import fedavg, fedsgd
from fl_sketch.algorithms.fedsketchgate import fedsketchgate
from fl_sketch.algorithms.fetchsgd import fetchsgd
from fl_sketch.algorithms.iterative_sketching import iterative_sketching
from fl_sketch.algorithms.marina import marina
from fl_sketch.algorithms.markov import cd_adam, ef21
from fl_sketch.algorithms.onebit_adam import onebit_adam
from fl_sketch.algorithms.safl import safl
from fl_sketch.algorithms.sketched_sgd import sketched_sgd
from fl_sketch.privacy.aggregation import Release
from fl_sketch.rounds.algorithm import Algorithm


class Entry(NamedTuple):
  """An algorithm of the registry.

  Attributes:
    factory: (local work, hp, **options) -> `Algorithm`.
    work: 'steps' of SGD on a client, one 'gradient', or 'private_steps'.
    everyone: whether every client must take part in every round, with equal
      weights.
    example: the options of a typical call; a `functools.partial` stands for
      what it returns.
    from_memory: whether it was written from memory of its paper, and checked
      neither against its text nor against code of others.
  """

  factory: Callable[..., Algorithm]
  work: str = 'steps'
  everyone: bool = False
  example: Mapping[str, Any] = MappingProxyType({})
  from_memory: bool = False


_COUNT = {'sketch': partial(sketches.count_sketch, 5, 20)}
_LINEAR = {'sketch': partial(sketches.block_cyclic, 100)}
_GRAPH = {'graph': partial(topology.ring, 8), 'population': 8}
_RANDOM = {'codec': partial(codecs.rand_k, 10)}
_LARGEST = {'codec': partial(codecs.top_k, 10)}
_QUANTIZED = {'codec': partial(codecs.quantized_top_k, 10, 4, 10)}
_PRIVATE = {'privacy': partial(Release, 8)}
_K = {'k': 10}
_STEPS = {'local_steps': 2}
_ALL = {'population': 8}

ENTRIES = {
  'fedsgd': Entry(fedsgd, 'gradient'),
  'fedavg': Entry(fedavg),
  'iterative_sketching': Entry(iterative_sketching, example=_LINEAR),
  'decentralised': Entry(
    decentralised, everyone=True, example=_LINEAR | _GRAPH
  ),
  'fedsketch_privix': Entry(fedsketch.fedsketch_privix, example=_COUNT),
  'fedsketch_heaprix': Entry(fedsketch.fedsketch_heaprix, example=_COUNT | _K),
  'fedsketchgate': Entry(fedsketchgate, everyone=True, example=_COUNT | _STEPS),
  'diffsketch': Entry(fedsketch.diffsketch, example=_COUNT),
  'safl': Entry(safl, example=_LINEAR),
  'sketched_sgd': Entry(sketched_sgd, 'gradient', example=_COUNT | _K),
  'fetchsgd': Entry(fetchsgd, 'gradient', example=_COUNT | _K),
  'fedcom': Entry(fedcom, example=_RANDOM),
  'fedcomgate': Entry(fedcomgate, everyone=True, example=_RANDOM | _STEPS),
  'scaffold': Entry(scaffold, example=_STEPS | _ALL),
  'signsgd': Entry(signsgd, 'gradient'),
  'marina': Entry(
    marina, 'gradient', example=_RANDOM | {'sync_probability': 0.1}
  ),
  'ef21': Entry(ef21, 'gradient', example=_LARGEST | _ALL),
  'cd_adam': Entry(
    cd_adam, 'gradient', example=_LARGEST | _ALL, from_memory=True
  ),
  'onebit_adam': Entry(onebit_adam, 'gradient', example={'warmup': 2}),
  'cocktail_sgd': Entry(cocktail_sgd, example=_QUANTIZED | {'mask_ratio': 0.1}),
  'dp_fedavg': Entry(private.dp_fedavg, example=_PRIVATE),
  'dp_normfedavg': Entry(private.dp_normfedavg, example=_PRIVATE),
  'private_iterative_sketching': Entry(
    private.private_iterative_sketching,
    'private_steps',
    example=_LINEAR | _STEPS,
  ),
}
