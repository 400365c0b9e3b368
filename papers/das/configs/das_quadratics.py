"""DP-FedAvg against DP-NormFedAvg on the synthetic quadratics of Das et al.

  fl-sketch sweep das_quadratics --workdir=runs/das_quadratics

Source: Das, Hashemi, Sanghavi, Dhillon, arXiv:2106.07094, section 5.3 and
Figure 1: 100 clients with quadratics of rank 20 in 200 dimensions, all of them
in each of 500 rounds, 20 full steps. Noise: by the formula with constant 1,
whose true guarantee is (6.87, 1e-6), and for (5, 1e-6). A noise_seed pairs
the algorithms.
"""

import ml_collections

from . import is_quick, new, paper

# The formula's with constant 1, and the exact one, for (5, 1e-6).
NOISE_MULTIPLIERS = (16.6226, 21.9146)


def get_config(variant: str = '') -> ml_collections.ConfigDict:
  """Returns the config; `variant` is '' or 'quick' (20 rounds, 2 points)."""
  quick = is_quick(variant)
  c = new()
  c.update(paper('das.studies.grid').FIELDS)
  c.rounds = 20 if quick else 500
  c.rounds_per_dispatch = c.eval_every = 10
  c.noise_multiplier = NOISE_MULTIPLIERS[1]
  c.checkpoint_every = 10 if quick else 250
  c.sweep.algorithm = ('dp_fedavg', 'dp_normfedavg')
  if not quick:
    c.sweep.dataset_options.start_scale = (1.0, 0.2)
    c.sweep.noise_multiplier = NOISE_MULTIPLIERS
    c.sweep.clip_norm = (20.0, 40.0, 50.0, 100.0)
    c.sweep.client_lr = (0.001, 0.002, 0.004)
    c.sweep.noise_seed = (0, 1, 2)
  return c
