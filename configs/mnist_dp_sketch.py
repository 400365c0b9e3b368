"""Noise in sketch space against noise before the sketch, at equal epsilon.

  fl-sketch sweep mnist_dp_sketch --data_dir=DIR --workdir=runs/mnist_dp_sketch

Iterative sketching (Song et al., ICML 2023) of an MLP on MNIST with user-level
central DP for 1000 clients of 60 images each: either the server clips every
client's table and adds noise to the sum of tables, or it is every update that
is clipped, with noise on all coordinates, and the result is sketched.
"""

from . import ConfigDict, is_quick, new


def get_config(variant: str = '') -> ConfigDict:
  """Return the config; `variant` is '' or 'quick' (6 rounds, 2 points)."""
  quick = is_quick(variant)
  c = new()
  c.dataset, c.standardize = 'mnist', False
  c.model, c.model_options.widths = 'mlp', (64,)
  c.population, c.cohort, c.sampling = 1000, 100, 'poisson'
  c.rounds = 6 if quick else 100
  c.local_steps, c.batch_size, c.client_lr = 5, 20, 0.1

  c.algorithm, c.server_lr = 'iterative_sketching', 1.0
  c.sketch.kind, c.sketch.size = 'block_cyclic', 3180  # 50,890 / 16
  c.epsilon, c.delta, c.clip_norm = 8.0, 1e-5, 0.3
  c.before_sketch = False

  c.eval_every = 3 if quick else 10
  c.checkpoint_every = 3 if quick else 50
  c.sweep.before_sketch = (False, True)
  if not quick:
    c.sweep.epsilon = (2.0, 8.0)
    c.sweep.sketch.size = (795, 3180, 12722)
    c.sweep.clip_norm = (0.1, 0.3, 1.0)
    c.sweep.server_lr = (0.3, 1.0)
  return c
