"""A round of 1,000 clients with an MLP of 11,093,258 parameters.

  fl-sketch train large_mlp --workdir=DIR

Source: Chen, Li, Banerjee, arXiv:2411.06770, on MNIST, to test size: SAFL with
Adam, one step on 16 images a client, a table of 65,536 numbers, 169 times fewer
than parameters; --plan predicts its memory. 14 to 18 s a round on 2 cores.
"""

from . import ConfigDict, is_quick, new


def get_config(variant: str = '') -> ConfigDict:
  """Returns the config; `variant` is '' or 'quick' (digits, a small MLP)."""
  quick = is_quick(variant)
  c = new()
  c.dataset = 'digits' if quick else 'mnist'
  c.model = 'mlp'
  c.model_options.widths = (64, 32) if quick else (3072, 2816)

  c.population = c.cohort = 40 if quick else 1000
  c.rounds = 2 if quick else 3
  c.local_steps, c.batch_size, c.client_lr = 1, 16, 0.1

  c.algorithm, c.sketch.kind = 'safl', 'block_cyclic'
  c.sketch.size = 256 if quick else 2**16
  c.server_optimizer, c.server_lr = 'adam', 1e-3
  c.eval_every, c.checkpoint_every = 1, 3
  return c
