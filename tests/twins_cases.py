"""The setting in which twins are compared with one another."""

from typing import NamedTuple

import cases
from fl_sketch import codecs
from fl_sketch import rounds
from fl_sketch import sketches
import numpy as np
from twins import TWINS

N, D = cases.POPULATION, cases.DIMENSION
START = np.linspace(-0.5, 0.4, D)
IDENTITY, EXACT = sketches.identity(), codecs.identity()
FULL = sketches.block_cyclic(D)
COUNT, MEAN, CYCLIC = cases.COUNT, cases.MEAN, cases.CYCLIC


class Hyper(NamedTuple):
  client_lr: float = 0.05
  server_lr: float = 0.3
  clip_norm: float = 0.01


def full(r=0, scale=1.0):
  """All clients, of weight 1, each with labels of a model of its own."""
  ids, _, (x, y) = cases.cohort(0, r, N)
  shift = 2 * ids.astype(np.float32).reshape(N, 1, 1, 1) / N
  batches = np.float32(scale) * x, np.float32(scale) * (y + shift * x[..., :2])
  return rounds.Cohort(ids, np.ones(N, np.float32), batches)


SOME = [cases.cohort(1, r) for r in range(4)]
ALL = [full(r) for r in range(4)]
STILL = [full()] * 4
SILENT = [full(r, scale=0.0) for r in range(4, 64)]


def play(name, cohorts=SOME, hp=None, **options):
  return TWINS[name](hp or Hyper(), START, cohorts, cases.KEY, **options)


def same(a, b, atol=1e-6):
  np.testing.assert_allclose(a, b, atol=atol)
  assert np.abs(b - START).max() > 100 * atol, 'nothing moved'


def edit(cohorts, fn):
  return [c._replace(batches=tuple(map(fn, c.batches))) for c in cohorts]


CASES = {
  'cd_adam': {'codec': codecs.top_k(2)},
  'cocktail_sgd': {'codec': codecs.top_k(2), 'mask_ratio': 0.5},
  'diffsketch': {'sketch': COUNT},
  'ef21': {'codec': codecs.top_k(2)},
  'fedavg': {'server_optimizer': 'yogi'},
  'fedcom': {'codec': codecs.top_k(2), 'error_feedback': True},
  'fedcomgate': {'codec': codecs.rand_k(8), 'local_steps': 3},
  'fedsgd': {},
  'fedsketch_heaprix': {'sketch': COUNT, 'k': 3},
  'fedsketch_privix': {'sketch': COUNT},
  'fedsketchgate': {'sketch': COUNT, 'local_steps': 3},
  'fetchsgd': {'sketch': COUNT, 'k': 2, 'local_k': 5},
  'iterative_sketching': {'sketch': MEAN},
  'marina': {'codec': codecs.rand_k(5), 'sync_probability': 0.5},
  'onebit_adam': {'warmup': 2},
  'safl': {'sketch': CYCLIC, 'clip': 'client'},
  'scaffold': {'local_steps': 3},
  'signsgd': {},
  'sketched_sgd': {'sketch': COUNT, 'k': 2, 'momentum': 0.5},
}
