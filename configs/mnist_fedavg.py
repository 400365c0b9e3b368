"""FedAvg with LeNet-5 on MNIST: the dense baseline of the sketched configs.

  fl-sketch train mnist_fedavg --data_dir=DIR --workdir=runs/mnist_fedavg

Source: the setting of Haddadpour et al., arXiv:2008.04975, section 6: 50
clients, half of them a round, here with equal iid shares of the 60,000 images
and 5 local steps of batch 32. 40 s on 2 cores.
"""

from . import ConfigDict, is_quick, new


def get_config(variant: str = '') -> ConfigDict:
  """Return the config; `variant` is '' or 'quick' (6 rounds)."""
  quick = is_quick(variant)
  c = new()
  c.dataset, c.model = 'mnist', 'lenet5'
  c.population, c.cohort = 50, 25
  c.rounds = 6 if quick else 300
  c.local_steps, c.batch_size, c.client_lr = 5, 32, 0.05
  c.algorithm, c.server_lr = 'fedavg', 1.0
  c.eval_every = 3 if quick else 20
  c.checkpoint_every = 3 if quick else 50
  return c
