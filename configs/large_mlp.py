"""A round of 1,000 clients with an MLP of 11,093,258 parameters.

  fl-sketch train large_mlp --workdir=DIR

Source: Chen, Li, Banerjee, arXiv:2411.06770, on MNIST, to test size: SAFL with
Adam, one step on 16 images a client, a table of 65,536 numbers, 169 times fewer
than parameters; --plan predicts its memory. 14 to 18 s a round on 2 cores.
"""

from . import ConfigDict, is_quick, new


def get_config(variant: str = '') -> ConfigDict:
  """Return the config; `variant` is '' or 'quick' (digits, a small MLP)."""
  quick = is_quick(variant)
  c = new()
  c.dataset, c.population, c.rounds = 'mnist', 1000, 3
  c.model, c.model_options.widths = 'mlp', (3072, 2816)
  c.local_steps, c.batch_size, c.client_lr = 1, 16, 0.1

  c.algorithm, c.sketch.kind, c.sketch.size = 'safl', 'block_cyclic', 2**16
  c.server_optimizer, c.server_lr = 'adam', 1e-3
  c.eval_every, c.checkpoint_every = 1, 3
  if quick:
    c.dataset, c.population, c.rounds = 'digits', 40, 2
    c.model_options.widths, c.sketch.size = (64, 32), 256
  c.cohort = c.population
  return c
