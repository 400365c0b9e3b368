"""Files of sites: a config, and what each client of a simulation holds."""

import numpy as np

# Clients keep residuals.
FEEDBACK = {
  'algorithm': 'fedcom', 'codec': {'kind': 'top_k', 'k': 50},
  'options': {'error_feedback': True}, 'sketch': {'kind': None},
  'server_lr': 1.0,
}  # fmt: skip


def write_config(path, fields):
  """Writes a config that sets fields."""
  path.write_text(
    f"from configs import new\n\ndef get_config(variant=''):\n"
    f'  c = new()\n  c.update({fields!r})\n  return c\n'
  )


def write_data(exp, folder):
  """Writes FOLDER/N/train.npz for each client N."""
  for i in range(exp.config.population):
    (folder / f'{i}').mkdir(parents=True, exist_ok=True)
    held = exp.partition.client(i)
    arrays = {k: x[held] for k, x in exp.data.items()}
    np.savez(folder / f'{i}' / 'train.npz', **arrays)
