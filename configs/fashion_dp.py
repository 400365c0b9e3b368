"""DP-FedAvg against DP-NormFedAvg: Fashion-MNIST, each client's 20 images.

  fl-sketch train fashion_dp --data_dir=DIR --workdir=runs/fashion_dp
  fl-sketch account fashion_dp

Source: Das, Hashemi, Sanghavi, Dhillon, arXiv:2106.07094, section 6 and
Appendix G: logistic regression on raw pixels, 3000 clients with 5 shards of the
images sorted by label, 600 of them expected in a round, 20 full-batch steps,
rates that fall by 1 % a round, server momentum 0.8, weight decay 1e-4. The
paper does not print the number of rounds; 60 are ours. Test accuracy:
docs/results/S1-Tab1.json; 5 s on 2 cores.
"""

from . import ConfigDict, is_quick, new


def get_config(variant: str = '') -> ConfigDict:
  """Return the config; 'quick' has 6 rounds, 'fedavg' no privacy."""
  quick = is_quick(variant, ('', 'quick', 'fedavg'))
  c = new()
  c.dataset, c.standardize, c.model = 'fashion_mnist', False, 'linear'
  c.population, c.partition = 3000, 'label_shards'
  c.shards_per_client, c.samples_per_client = 5, 20
  c.cohort, c.sampling = 600, 'poisson'

  c.rounds = 6 if quick else 60
  c.local_steps, c.batch_size, c.local_work = 20, 0, 'gram'
  c.client_lr, c.lr_decay, c.weight_decay = 0.032, 0.99, 1e-4

  if variant == 'fedavg':
    c.algorithm = 'fedavg'
  else:
    c.algorithm = 'dp_normfedavg'
    c.clip_norm, c.epsilon, c.delta = 62.5, 5.0, 1e-5
  c.server_optimizer, c.momentum, c.server_lr = 'momentum', 0.8, 1.0
  c.eval_every = c.rounds if quick else 1
  c.checkpoint_every = 3 if quick else 30
  return c
