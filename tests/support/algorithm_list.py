"""The list of algorithms with their options, on federated least squares."""

from typing import Any, NamedTuple

from fl_sketch import algorithms, codecs, rounds, sketches
from fl_sketch.accounting import correlation
from fl_sketch.algorithms import topology
from fl_sketch.models import lora
from fl_sketch.privacy.mechanisms import private_mean
import jax
import jax.numpy as jnp
import optax
from private_steps import private_steps

POPULATION = 8
DIMENSION = 10
PARAMS = {'w': jnp.zeros((4, 2)), 'b': jnp.zeros(2)}
HP = algorithms.Hyper(
  jnp.float32(0.05),
  jnp.float32(0.1),
  clip_norm=jnp.float32(0.1),
  noise_multiplier=jnp.float32(0.4),
)
KEY = jax.random.key(1)
SECRET = jax.random.key(2)
COUNT = sketches.count_sketch(2, 4)
MEAN = sketches.count_sketch(2, 4, combine='mean')
CYCLIC = sketches.block_cyclic(4)
BLOCKS = sketches.block_srht(8, block=4)


# That of a lora: factors of rank 1 of the kernel w, which act times 2.
SCALE = 2.0
ADAPTED = lora.lora(
  {'w': jnp.zeros((4, 2)), 'b': jnp.zeros(2)},
  jax.random.key(3),
  rank=1,
  targets=('w',),
  trainable=('b',),
  parts=lora.Adapter._fields,
).trainable


def loss_fn(params, batch):
  params, (x, y) = lora.merge(params, SCALE), batch
  return jnp.mean((x @ params['w'] + params['b'][None] - y) ** 2)


class Case(NamedTuple):
  """An algorithm with its options, and what it costs by hand."""

  name: str
  options: dict[str, Any]
  up: int  # bytes a client sends in the last of five rounds
  down: int  # bytes of the broadcast
  make: rounds.Make
  hp: algorithms.Hyper = HP  # what `make` sees where it is given `HP`


def params_of(make: rounds.Make) -> Any:
  """The model before the first round."""
  return getattr(make, 'params', PARAMS)


def case(name, up, down=None, clip_norm=None, **options) -> Case:
  """`clip_norm` None is that of `HP`."""
  work = algorithms.entry(name).work
  steps = {} if work == 'gradient' else {'local_steps': 3}
  if work == 'private_steps':
    steps['local'] = private_steps(loss_fn)
  else:
    steps['loss_fn'] = loss_fn
  make_base = algorithms.make(name, population=POPULATION, **steps, **options)
  if name in lora.KINDS:
    make_base.params = ADAPTED  # in place of `PARAMS`
  down = up if down is None else down
  if clip_norm is None:
    return Case(name, options, up, down, make_base)
  bounded = lambda hp: hp._replace(clip_norm=jnp.float32(clip_norm))
  make = lambda hp: make_base(bounded(hp))
  return Case(name, options, up, down, make, bounded(HP))


def optimized(name, up, optimizers, **options) -> dict[str, Case]:
  """The algorithm with each of these server optimisers."""
  return {
    f'{name}_{optimizer}': case(name, up, server_optimizer=optimizer, **options)
    for optimizer in optimizers
  }


DENSE = 4 * DIMENSION
LAYERS = sketches.layerwise(sketches.block_cyclic, 4)
TOP, RANDOM = codecs.top_k(2), codecs.rand_k(5)
CHUNKS, COSINES = codecs.chunked_top_k(2, 8), codecs.dct_top_k(1, 4)
RING = topology.ring(POPULATION)
ADAPTIVE = ('adam', 'yogi', 'adagrad')
EVERY = (*ADAPTIVE, 'amsgrad', 'momentum', 'nesterov')
RELEASE = private_mean.CentralRelease(4.0)
COUNTED = {'sketch': COUNT, 'privacy': RELEASE}
BEFORE = private_mean.CentralRelease(4.0, before_sketch=True)
# Five rounds are two epochs and a half, or one in which draws grow too old.
EPOCHS = correlation.Correlation(correlation.square_root(2), 2, 1)
BANDED = correlation.Correlation(correlation.square_root(3), 5, 1)
EPOCHS_RELEASE = private_mean.CentralRelease(4.0, correlation=EPOCHS)
BANDED_RELEASE = private_mean.CentralRelease(4.0, correlation=BANDED)
# A masked table of 40 bytes, two public keys, and for each of three neighbours
# two shares sealed together and one opened; down the sealed shares and keys of
# these, and a bit for each of them.
MASKED = DENSE + 2 * 32 + 3 * (2 * 32 + 28 + 32)
RELAYED = DENSE + 3 * (2 * 32 + 2 * 32 + 28) + 1


def dp_fedavg(
  up=DENSE, down=DENSE, name='dp_fedavg', server_optimizer='sgd',
  privacy=RELEASE,
) -> Case:  # fmt: skip
  """FedAvg with such a release; half of the clients exceed its bound."""
  options = {'server_optimizer': server_optimizer, 'clip_norm': 2.0}
  return case(name, up, down, privacy=privacy, **options)


def feedback(up, codec, **options) -> Case:
  options |= {'codec': codec, 'error_feedback': True}
  return case('fedcom', up, DENSE, **options)


ALGORITHMS = {
  'fedsgd': case('fedsgd', DENSE),
  'fedavg': case('fedavg', DENSE),
  **optimized('fedavg', DENSE, ADAPTIVE),
  'fedavg_adamw': case('fedavg', DENSE, local_optimizer={'kind': 'adamw',
    'eps': 1e-3}),
  'fedavg_adamw_kept': case('fedavg', DENSE, local_optimizer={'kind': 'adamw',
    'eps': 1e-3, 'keep_state': True}),
  'fedprox': case('fedprox', DENSE, mu=0.3),
  'feddyn': case('feddyn', DENSE, alpha=0.5),
  # Beside the direction one number of steps.
  'fednova': case('fednova', DENSE + 4, DENSE),
  'iterative_sketching': case('iterative_sketching', 32, sketch=MEAN),
  **optimized('iterative_sketching', 16, ['momentum'], sketch=CYCLIC),
  # A tree over 8 clients has 7 edges; each is used once in both directions.
  'decentralised_tree': case('decentralised', 2 * 7 * 32 // 8, 0, sketch=MEAN,
    graph=RING),
  # Two neighbours, three steps.
  'decentralised_gossip': case('decentralised', 2 * 3 * 16, 0, sketch=CYCLIC,
    graph=RING, gossip_steps=3),
  'fedsketch_privix': case('fedsketch_privix', 32, sketch=COUNT),
  'heaprix_exact': case('fedsketch_heaprix', 76, sketch=COUNT, k=3),
  'heaprix_literal': case('fedsketch_heaprix', 32, sketch=COUNT, k=3,
    exact=False),
  'diffsketch': case('diffsketch', 32, sketch=COUNT),
  'fedsketchgate': case('fedsketchgate', 32, sketch=COUNT),
  'fedsketchgate_heaprix': case('fedsketchgate', 76, sketch=COUNT, k=3),
  'fedsketchgate_printed': case('fedsketchgate', 32, sketch=COUNT,
    printed=True),
  **optimized('safl', 16, EVERY, sketch=CYCLIC),
  'safl_layerwise': case('safl', 16, sketch=LAYERS),
  'safl_clip_client': case('safl', 16, sketch=CYCLIC, clip='client'),
  'safl_clip_server': case('safl', 16, sketch=CYCLIC, clip='server'),
  'safl_cosine': case('safl', 16, sketch=CYCLIC, server_optimizer='sgd',
    schedule=optax.cosine_decay_schedule(1.0, 5, alpha=0.1)),
  'safl_client_momentum': case('safl', 16, sketch=CYCLIC,
    client_momentum=0.5),
  'subspace': case('subspace_sketching', 16, sketch=CYCLIC, hash_rounds=2),
  'subspace_onebit': case('subspace_sketching', 1 + 4, 2 + 4, sketch=BLOCKS,
    hash_rounds=3, codec=codecs.eden(),
    downlink_codec=codecs.eden(2, rotate=False)),
  # In rounds 0 and 3 also means of four rows, two columns and a vector.
  'preconditioned': case('preconditioned_sketching', 16, sketch=CYCLIC,
    every=3),
  'preconditioned_onebit': case('preconditioned_sketching', 1 + 4, 2 + 4,
    sketch=BLOCKS, every=3, codec=codecs.eden(),
    downlink_codec=codecs.eden(2, rotate=False), client_momentum=0.5),
  # Tables in bytes and a scale, in nibbles and two.
  'safl_int8': case('safl', 4 + 4, 16, sketch=CYCLIC, codec=codecs.int8()),
  'song_int4': case('iterative_sketching', 2 + 2 * 4, 16, sketch=LAYERS,
    codec=codecs.int4(2)),
  # Eight signs and a scale, down two bits each.
  # Each client has a rotation of its own: sums of equal signs would be 0, whose
  # sign is that of a rounding error.
  'safl_onebit': case('safl', 1 + 4, 2 + 4, sketch=BLOCKS,
    codec=codecs.eden(), downlink_codec=codecs.eden(2, rotate=False)),
  # Eight candidates: a table and their values up; down their indices, two
  # values and one bit a candidate.
  'sketched_sgd': case('sketched_sgd', 64, 41, sketch=COUNT, k=2),
  'sketched_sgd_momentum': case('sketched_sgd', 64, 41, sketch=COUNT, k=2,
    momentum=0.5),
  # No more candidates than there are coordinates.
  'sketched_sgd_all': case('sketched_sgd', 32 + 40, 40 + 8 + 2, sketch=COUNT,
    k=2, candidates=6),
  'fetchsgd': case('fetchsgd', 32, 16, sketch=COUNT, k=2),
  'fetchsgd_subtract': case('fetchsgd', 32, 16, sketch=COUNT, k=2,
    error_update='subtract', momentum_masking=False),
  'fetchsgd_eden': case('fetchsgd', 1 + 4, 16, sketch=COUNT, k=2,
    codec=codecs.eden()),
  'fedcom_rand_k': case('fedcom', 20, DENSE, codec=RANDOM),
  'feedback_top_k': feedback(16, TOP),
  # Two values of two chunks: 12 bits of places, 8 of values, and four means.
  'sparse_loco': feedback(2 + 1 + 16, CHUNKS, residual_decay=0.5),
  'diloco': case('fedavg', DENSE, server_optimizer='nesterov', local_optimizer={
    'kind': 'adamw', 'eps': 1e-3, 'keep_state': True}),
  **optimized('fedcom', 20, ['adam', 'nesterov'], down=DENSE, codec=RANDOM),
  'fedcomgate': case('fedcomgate', 20, DENSE, codec=RANDOM),
  **optimized('fedcomgate', 20, ['momentum'], down=DENSE, codec=RANDOM),
  'scaffold': case('scaffold', 2 * DENSE),
  'signsgd': case('signsgd', 2),
  # Of the matrix of 4 x 2 a column and a row, and the bias.
  'power_sgd': case('power_sgd', 4 * (4 + 2 + 2), rank=1),
  **optimized('power_sgd', 4 * (4 + 2 + 2), ['momentum'], rank=1),
  # A column, a row and the bias; down those of three clients, or beside the
  # mean a residual, which as a matrix is fewer bytes.
  'flora': case('flora', 4 * 8, 4 * (3 * 6 + 2), lora_scale=SCALE),
  'fedex': case('fedex', 4 * 8, 4 * (8 + 8), lora_scale=SCALE),
  'marina': case('marina', 20, DENSE, codec=RANDOM, sync_probability=0.3),
  **optimized('marina', 20, ['adam'], down=DENSE, codec=RANDOM,
    sync_probability=0.3),
  'ef21': case('ef21', 16, DENSE, codec=TOP),
  **optimized('ef21', 16, ['adam'], down=DENSE, codec=TOP),
  'cd_adam': case('cd_adam', 16, codec=TOP),
  'onebit_adam': case('onebit_adam', 2 + 4, warmup=2),
  # One coefficient of three chunks, and two bits each where; signs down.
  'demo': case('demo', 3 * 4 + 1, 2, codec=COSINES, momentum=0.5),
  'demo_mean': case('demo', 3 * 4 + 1, DENSE, codec=COSINES, signs=False),
  # Four of the six coordinates of a round: indices, half bytes, two scales.
  'cocktail_sgd': case('cocktail_sgd', 4 * 4 + 2 + 2 * 4, mask_ratio=0.6,
    codec=codecs.quantized_top_k(4, 4, 2)),
  # Down with the table the sizes of two layers.
  'ferret': case('ferret', 4 * 5, 4 * 5 + 2 * 4, size=5),
  **optimized('ferret', 4 * 5, ['momentum'], down=4 * 5 + 2 * 4, size=5),
  # Of three steps two slopes each; and one, of a pool of five down.
  'decomfl': case('decomfl', 4 * 3 * 2, directions=2, mu=0.5),
  **optimized('decomfl', 4 * 3 * 2, ['adam'], directions=2, mu=0.5),
  'fedkseed': case('fedkseed', 4 * 3, 4 * 5, pool=5, mu=0.5),
  **optimized('fedkseed', 4 * 3, ['adam'], down=4 * 5, pool=5, mu=0.5),
  'dp_fedavg': dp_fedavg(),
  'dp_fedavg_per_leaf': dp_fedavg(
    privacy=private_mean.CentralRelease(4.0, per_leaf=True)),
  # One bit up, whether it was clipped; the next bound down.
  'dp_fedavg_quantile': dp_fedavg(DENSE + 1, DENSE + 4,
    privacy=private_mean.CentralRelease(4.0, 'quantile', quantile=0.3,
      count_stddev=0.5)),
  'dp_fedavg_local': dp_fedavg(privacy=private_mean.LocalRelease(4.0)),
  'dp_fedavg_banded': dp_fedavg(privacy=BANDED_RELEASE),
  'dp_fedavg_masked': dp_fedavg(MASKED, RELAYED,
    privacy=private_mean.DistributedRelease(4.0, min_honest=2)),
  'dp_normfedavg': dp_fedavg(name='dp_normfedavg', server_optimizer='momentum'),
  'private_iterative_sketching': case('private_iterative_sketching', 16,
    clip_norm=2.5, sketch=CYCLIC),
  'private_song': case('iterative_sketching', 32, sketch=MEAN, privacy=RELEASE),
  'private_before': case('iterative_sketching', 32, sketch=MEAN,
    privacy=BEFORE),
  'private_safl': case('safl', 16, sketch=CYCLIC, privacy=RELEASE),
  'private_banded': case('safl', 16, sketch=CYCLIC, hash_rounds=2,
    privacy=EPOCHS_RELEASE),
  'private_banded_run': case('iterative_sketching', 32, sketch=MEAN,
    hash_rounds=0, privacy=BANDED_RELEASE),
  # A table of four numbers in eight bits, and its scale.
  'private_safl_int8': case('safl', 4 + 4, 16, sketch=CYCLIC, privacy=RELEASE,
    codec=codecs.int8()),
  'private_privix': case('fedsketch_privix', 32, **COUNTED),
  'private_heaprix': case('fedsketch_heaprix', 76, k=3, **COUNTED),
  'private_literal': case('fedsketch_heaprix', 32, k=3, exact=False, **COUNTED),
  'private_gate': case('fedsketchgate', 32, **COUNTED),
  'private_gate_heaprix': case('fedsketchgate', 76, k=3, **COUNTED),
  'private_fetchsgd_banded': case('fetchsgd', 32, 16, 1.0, k=2, sketch=COUNT,
    privacy=BANDED_RELEASE),
  'private_fetchsgd': case('fetchsgd', 32, 16, 1.0, k=2, **COUNTED),
  'private_sketched_sgd': case('sketched_sgd', 64, 41, k=2, **COUNTED),
}  # fmt: skip
