"""Decoders of three sizes on tiny Shakespeare, whose speakers are clients.

  fl-sketch import-data plays input.txt --to=runs/plays
  fl-sketch train shakespeare_decoder --workdir=DIR
  fl-sketch train shakespeare_decoder:mini,diloco --workdir=DIR
  fl-sketch train shakespeare_decoder:small --plan

Words of a variant, with commas between: a size, 'micro' (463,872 parameters, if
none is named), 'mini' (10,712,832) or 'small' (106,450,176, for a GPU or TPU);
an algorithm, 'fedavg' (if none is named), 'diloco', 'safl' or 'onebit'; and
'quick', 2 rounds of a step of 2 clients. docs/guides/language.md says where
input.txt is from, or makes a text of 32 clients. 8 of 141 speakers make 4 steps
of 4 windows of 80 characters in a round. The rates are a start, not tuned. On 2
cores a round of 'micro' takes 0.3 s, one of 'mini' 5 s and less than 4 GiB.

Sources: sizes of nanoGPT and GPT-2 (here 15 blocks); DiLoCo, Douillard et al.,
arXiv:2311.08105, with a new AdamW in each round; SAFL, Chen, Li, Banerjee,
arXiv:2411.06770, with tables of 1 % of the model. 'onebit' is DiLoCo with
one-bit tables up, in 1 % of the bytes.
"""

from . import ConfigDict, femnist

PARAMETERS = {'micro': 463_872, 'mini': 10_712_832, 'small': 106_450_176}
ALGORITHMS = 'fedavg', 'diloco', 'safl', 'onebit'
# Of SGD, and of AdamW on clients or Adam on the server.
_RATES = {'micro': (0.3, 3e-3), 'mini': (0.1, 1e-3), 'small': (0.03, 3e-4)}


def get_config(variant: str = '') -> ConfigDict:
  """Return the config; words of `variant` are as above."""
  given = {*variant.split(',')} - {''}
  sizes, methods = given & {*PARAMETERS}, given & {*ALGORITHMS}
  if given - sizes - methods - {'quick'} or max(len(sizes), len(methods)) > 1:
    raise ValueError(
      f'{variant=} must be a size of {(*PARAMETERS,)}, an algorithm of '
      f"{ALGORITHMS}, and 'quick'."
    )
  (size,), (name,) = sizes or {'micro'}, methods or {'fedavg'}
  c = femnist.clients('plays', population=141, cohort=8)
  c.model, c.loss = f'gpt_{size}', 'tokens'
  if size == 'small':
    c.model_options.depth = 15
    c.model_options.scan = c.model_options.remat = True
    c.compute_dtype = 'bfloat16'
  c.rounds, c.local_steps, c.batch_size = 500, 4, 4
  of_sgd, adaptive = _RATES[size]
  if name in ('diloco', 'onebit'):
    c.local_optimizer.kind, c.client_lr = 'adamw', adaptive
    c.client_schedule.kind = 'cosine'
    c.server_optimizer, c.momentum, c.server_lr = 'nesterov', 0.9, 0.7
  else:
    c.client_lr, c.client_clip, c.server_lr = of_sgd, 1.0, 1.0
  if name == 'safl':
    c.algorithm, c.sketch.kind = 'safl', 'block_cyclic'
    c.sketch.size = PARAMETERS[size] // 100
    c.server_optimizer, c.b2, c.server_lr = 'adam', 0.99, adaptive
  elif name == 'onebit':
    c.algorithm, c.sketch.kind = 'safl', 'block_srht'
    c.sketch.size = PARAMETERS[size] * 32 // 100
    c.codec.kind, c.codec.rotate = 'eden', False
  if 'quick' in given:
    c.cohort, c.rounds, c.local_steps = 2, 2, 1
    c.eval_every = c.checkpoint_every = 2
  return c
