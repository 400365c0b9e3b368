"""The grid of DP-FedAvg against DP-NormFedAvg on Fashion-MNIST.

  fl-sketch sweep fashion_dp_sweep --data_dir=DIR

Both algorithms run under each of four noise multipliers: those of the paper's
formula with its constant at 1, to four digits, for (5, 1e-5) and (1.5, 1e-5),
whose true epsilons are 10.18 and 1.87, and those calibrated to these two.
"""

from . import ConfigDict, fashion_dp

# The noise calibrated to (5, 1e-5) and (1.5, 1e-5) over 60 rounds.
CALIBRATED = (1.65398, 4.22342)


def get_config(variant: str = '') -> ConfigDict:
  """Return the config; `variant` is '' or 'quick' (6 rounds, 4 points)."""
  c = fashion_dp.get_config(variant)
  c.epsilon, c.noise_multiplier = None, CALIBRATED[0]
  c.sweep.algorithm = ('dp_fedavg', 'dp_normfedavg')
  if variant == 'quick':
    c.sweep.clip_norm = (31.25, 62.5)
    return c
  c.sweep.noise_multiplier = (1.05125, 3.50417, *CALIBRATED)
  c.sweep.clip_norm = (15.625, 31.25, 62.5, 125.0, 250.0, 500.0)
  c.sweep.client_lr = (0.004, 0.008, 0.016, 0.032)
  return c
