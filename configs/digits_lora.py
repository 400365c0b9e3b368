"""LoRA on scikit-learn's digits: factors of rank 4 beside frozen weights.

  fl-sketch train digits_lora:fedex --workdir=DIR

Source: Hu et al., arXiv:2106.09685; the means of factors by name, which are the
variants: 'naive', 'ffa' (arXiv:2403.12313), 'flora' (arXiv:2409.05976), 'fedex'
(arXiv:2410.09432). 'safl' is the naive one of which clients send a table of a
tenth. On the data of configs/quickstart.py, split with alpha 0.3, and an MLP of
9,034 drawn parameters, of which 1,674 are trained (1,162 by 'ffa'). Test
accuracy in per cent, means over seeds 0 to 2: naive 94.0, ffa 90.2, flora 95.6,
fedex 94.4, safl 94.4. One to two seconds of training on 2 cores.
"""

from . import ConfigDict, is_quick, quickstart

VARIANTS = ('', 'naive', 'ffa', 'flora', 'fedex', 'safl', 'quick')


def get_config(variant: str = '') -> ConfigDict:
  """Return the config; '' is 'naive', and 'quick' that with 20 rounds."""
  quick = is_quick(variant, VARIANTS)
  c = quickstart.get_config('quick' if quick else '')
  c.model_options.widths = (64, 64)
  c.partition, c.alpha = 'dirichlet', 0.3
  c.client_lr = 0.05

  exact = variant in ('flora', 'fedex')
  c.lora.kind = variant if exact or variant == 'ffa' else 'naive'
  c.lora.rank, c.lora.alpha = 4, 8.0
  c.lora.targets = ('Dense_0', 'Dense_1')
  c.lora.trainable = ('Dense_2',)

  if variant == 'safl':
    c.sketch.size = 168
    return c
  quickstart.make_dense(c)
  if exact:
    c.algorithm = variant
  return c
