"""Table 1 (b) and (c) of Das et al.: CIFAR by 512 features of ImageNet.

  fl-sketch sweep das_features:cifar10,normalise,5 --workdir=DIR

Source: Das, Hashemi, Sanghavi, Dhillon, arXiv:2106.07094, section 6 and
appendix G. Words of a variant, the first by default: 'cifar10', 'cifar100';
'clip', 'normalise', 'fedavg'; '5', '1.5' (epsilon); and 'quick', two rounds of
digits. The features, before the last layer of a ResNet-18 that was trained on
ImageNet, are not in the project: papers/das/README.md says how they become the
store runs/das_cifar10. Ours are the 200 rounds, as the paper prints no number,
and noise by an accountant. A noise_seed pairs the algorithms.
"""

from . import new, words

_WORDS = ('cifar10', 'cifar100'), ('clip', 'normalise', 'fedavg'), ('5', '1.5')


def get_config(variant: str = ''):
  """Returns the config; words of `variant` are as above."""
  data, method, epsilon, quick = words(variant, *_WORDS)
  c = new()
  c.dataset, c.dataset_options.folder = 'store', f'runs/das_{data}'
  c.model, c.local_work, c.standardize = 'linear', 'gram', False
  c.population, c.cohort, c.sampling = 5000, 1000, 'poisson'
  c.local_steps, c.batch_size, c.weight_decay = 20, 0, 1e-4
  c.client_lr, c.lr_decay, c.momentum = 0.064, 0.99, 0.8  # appendix G
  c.server_optimizer, c.feed, c.rounds = 'momentum', 'device', 200
  c.eval_every, c.checkpoint_every = 1, 200
  c.sweep.client_lr = tuple(0.001 * 2**i for i in range(7))
  if method != 'fedavg':
    c.algorithm = {'clip': 'dp_fedavg', 'normalise': 'dp_normfedavg'}[method]
    c.epsilon, c.delta, c.noise_seed = float(epsilon), 1e-5, 0
    c.clip_norm = 62.5
    c.sweep.clip_norm = 62.5, tuple(500 / 2**i for i in range(6))
  if quick:
    c.dataset, c.dataset_options.folder, c.rounds = 'digits', None, 2
    c.partition, c.population, c.cohort = 'label_shards', 60, 12
  return c
