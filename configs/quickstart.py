"""SAFL on scikit-learn's digits: 8 x 8 images, no download, under a minute.

  fl-sketch train quickstart --workdir=DIR

Source: Chen, Li, Banerjee, arXiv:2411.06770, on a problem of ours. 40 clients
with 36 images each, 20 a round, an MLP of 4,810 parameters, a sketch of a
sixteenth of that. Test accuracy: docs/results/Digits-Precision.json, in
float32. 10 s on 2 cores, 2 s of it training.
"""

import ml_collections

from . import new


def get_config(variant: str = '') -> ml_collections.ConfigDict:
  """Returns the config; `variant` is '' or 'quick'."""
  if variant not in ('', 'quick'):
    raise ValueError(f"Expected {variant=} in ('', 'quick').")
  c = new()
  c.dataset = 'digits'
  c.model = 'mlp'
  c.model_options.widths = (64,)

  c.population = 40
  c.cohort = 20
  c.rounds = 20 if variant == 'quick' else 300
  c.local_steps = 5
  c.batch_size = 16
  c.client_lr = 0.3

  c.algorithm = 'safl'
  c.sketch.kind = 'block_cyclic'
  c.sketch.size = 301
  c.server_lr = 0.02
  c.server_optimizer = 'adam'
  c.b2 = 0.99
  c.final_server_lr = 1e-5

  c.rounds_per_dispatch = 10
  return c
