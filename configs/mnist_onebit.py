"""One-bit tables: LeNet-5 on MNIST at 100 and 1,000 times fewer bytes.

  fl-sketch train mnist_onebit:hundred --data_dir=DIR --workdir=runs/onebit

Source: SAFL (Chen, Li, Banerjee, arXiv:2411.06770) and EDEN (Vargaftik et al.,
arXiv:2108.08842); their combination, and preconditioning, are of this project.
Variants: 'hundred' and 'thousand' send the mean table back as it is; 'both'
sends it in one bit too. 'preconditioned' is the preconditioned sketch with
momentum on clients, one bit both ways at 1 % of the bytes, for 2,000 steps of
four workers. One to two minutes on 2 cores.
"""

from . import ConfigDict, is_quick, mnist_safl

# Bytes of the payload: a bit an entry and a float32, of 246,824 of LeNet-5.
ENTRIES = {'hundred': (2468 - 4) * 8, 'thousand': (248 - 4) * 8}
VARIANTS = ('', 'hundred', 'thousand', 'both', 'preconditioned', 'quick')


def get_config(variant: str = '') -> ConfigDict:
  """Return the config; '' is 'both', and 'quick' that with 6 rounds."""
  quick = is_quick(variant, VARIANTS)
  c = mnist_safl.get_config('quick' if quick else '')
  c.sketch.kind = 'block_srht'
  c.sketch.size = ENTRIES.get(variant, ENTRIES['hundred'])
  c.codec.kind, c.codec.rotate = 'eden', False
  if variant not in ENTRIES:
    c.downlink_codec.kind = 'eden'
  if variant == 'preconditioned':
    c.algorithm = 'preconditioned_sketching'
    c.options.client_momentum, c.options.every = 0.9, 20
    c.server_optimizer, c.b1, c.b2 = None, 0.0, None
    c.population = c.cohort = 4
    c.rounds, c.eval_every, c.rounds_per_dispatch = 2000, 200, 50
    c.local_steps, c.batch_size, c.client_lr = 1, 64, 1.0
    c.server_lr, c.final_server_lr = 0.004668, None
    decay = c.server_schedule
    decay.kind, decay.final, decay.warmup = 'cosine', 0.05, 100
    # 1,020 factors in float32, every 20 rounds, are 204 bytes a round.
    c.sketch.size = (2468 - 4 - 204) * 8
  return c
