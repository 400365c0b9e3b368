"""Cross-device logistic regression, sketched: a million clients, 1000 a round.

  fl-sketch train million_clients --workdir=DIR

Source: Song, Wang, Yu, Zhang, arXiv:2210.08371, Algorithm 1, on the simulated
clients of fl_sketch/data/synthetic.py: 64 pixels, ten labels by a linear
teacher, 1 to 39 samples a client, 20 on average. The first run writes their
data, 1.4 GB, to $FL_SKETCH_CACHE or else ~/.cache/fl_sketch. They are memory-
mapped: memory and time of a round depend on the cohort. 20 s for the data and
10 s for the run on 2 cores.
"""

from . import ConfigDict, is_quick, new


def get_config(variant: str = '') -> ConfigDict:
  """Return the config; `variant` is '' or 'quick' (200 clients)."""
  quick = is_quick(variant)
  c = new()
  c.dataset, c.model = 'simulated', 'linear'
  c.population = 200 if quick else 10**6
  c.cohort = 20 if quick else 1000
  c.rounds = 4 if quick else 100
  c.local_steps, c.batch_size, c.client_lr = 5, 10, 0.1

  c.algorithm = 'iterative_sketching'
  c.sketch.kind, c.sketch.size = 'block_cyclic', 325  # half of 650 parameters
  c.eval_every = 2 if quick else 10
  c.checkpoint_every = 2 if quick else 50
  return c
