"""Gradient leakage from one tanh layer, where unknowns can be counted.

  fl-sketch attack tanh_attack --workdir=DIR

Source: Song, Wang, Yu and Zhang, arXiv:2210.08371, section 7: m = 12 unknowns,
d = 96 parameters; every operator, sizes from a third of m to d, several rounds
pooled, and noise. Scores: docs/results/S0-NoHarder.json; 3 minutes on
one core.
"""

import ml_collections

from . import attack, is_quick


def get_config(variant: str = '') -> ml_collections.ConfigDict:
  """Returns the config; `variant` is '' or 'quick' (8 points, one operator)."""
  quick = is_quick(variant)
  c = attack()
  c.examples = 8 if quick else 60

  c.sketches = ('gaussian',)
  c.sizes = (4, 8, 12, 16, 24, 48)
  if not quick:
    c.sketches += ('srht', 'ams', 'count_sketch', 'sparse_embedding_1')
    c.sketches += ('sparse_embedding_2', 'block_cyclic', 'dct', 'srft')
    c.sketches += ('uniform_sampling',)
  c.pooled_size = 6
  c.pooled = (1, 2, 3, 4, 6, 8)
  c.defended_size = 48
  c.noises = (0.01, 0.03, 0.1, 0.3, 1.0)
  c.epsilons = (1.0, 8.0, 100.0, 1000.0, 10000.0)
  c.population = c.cohort = 100
  c.rounds = 1  # every client takes part in it
  c.defences = ('clip', 'normalize')

  c.restarts = 3 if quick else 10
  c.start_scale = 0.3  # from far starts more searches get stuck
  return c
