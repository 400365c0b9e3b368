"""SAFL on scikit-learn's digits: 8 x 8 images, no download, under a minute.

  fl-sketch train quickstart --workdir=DIR
  fl-sketch train quickstart:private --workdir=DIR
  fl-sketch account quickstart:private --audit=one_run

Source: Chen, Li, Banerjee, arXiv:2411.06770, on a problem of ours. 40 clients
with 36 images each, an MLP of 4,810 parameters, a sketch of a sixteenth of
that. Test accuracy: docs/results/Digits-Precision.json. 10 s on 2 cores.

`private`: epsilon 6 at delta 1e-4 for each of 700 clients with two images (some
with three), who all take part in 60 rounds of one step each; tables of an
eighth of the model. Test accuracy 93 % (seeds 0 to 3: 93.1 to 93.9); 20 s on 2
cores. `quick` and `private,quick`: a few rounds.
"""

from . import ConfigDict, is_quick, new


def get_config(variant: str = '') -> ConfigDict:
  """Return the config; variants are as above."""
  quick = is_quick(variant, ('', 'quick', 'private', 'private,quick'))
  c = new()
  c.dataset = 'digits'
  c.model, c.model_options.widths = 'mlp', (64,)
  c.population, c.cohort, c.rounds = 40, 20, 300
  c.local_steps, c.batch_size, c.client_lr = 5, 16, 0.3

  c.algorithm = 'safl'
  c.sketch.kind, c.sketch.size = 'block_cyclic', 301
  c.server_optimizer, c.b2 = 'adam', 0.99
  c.server_lr, c.final_server_lr = 0.02, 1e-5

  if variant.startswith('private'):
    c.epsilon, c.delta, c.clip_norm = 6.0, 1e-4, 0.1
    c.standardize = False
    c.population, c.cohort, c.rounds = 700, 700, 60
    c.local_steps, c.batch_size, c.client_lr = 1, 0, 1.0
    c.sketch.size, c.server_lr, c.final_server_lr = 601, 0.08, 1e-4
  if quick:
    c.rounds = 20
  c.rounds_per_dispatch = 10
  return c


def make_dense(c: ConfigDict):
  """Set the fields of plain FedAvg, without sketch and server optimizer."""
  c.algorithm, c.server_lr = 'fedavg', 1.0
  c.sketch.kind = c.sketch.size = None
  c.server_optimizer = c.b2 = c.final_server_lr = None
