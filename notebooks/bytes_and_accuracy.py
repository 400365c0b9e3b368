# %% [markdown]
"""# Accuracy for bytes.

What does a federated run lose if its clients send a hundredth of their update?
This notebook trains FedAvg, FedAdam (FedAvg with Adam on the server) and SAFL
(FedAdam on sketches, Chen et al., arXiv:2411.06770) at several sketch sizes and
draws accuracy against all bytes that clients sent.
"""

# %%
import os
import tempfile

from fl_sketch import experiment, models, reporting, training
from fl_sketch.data import sources
import matplotlib.pyplot as plt

QUICK = bool(os.environ.get('FL_SKETCH_QUICK'))  # CI plays fewer rounds

# %% [markdown]
# Real MNIST where tensorflow-datasets has it on disk (`TFDS_DATA_DIR`), else
# the digits that come with scikit-learn.

# %%
dataset = 'digits'
if not QUICK:
  try:
    dataset = sources.load('mnist').name
  except sources.DataError as error:
    print(error)
print('data:', dataset)

# %% [markdown]
# ## Runs are configs
#
# `fl_sketch/experiment/config.py` lists all fields. `build` checks them and
# reads the data; `train` plays the rounds in a folder, from which the same call
# goes on if it was stopped.

# %%
# The best of a few: launch.compare's on MNIST, configs/digits_fedavg.py's.
MNIST = dataset == 'mnist'
COMMON = {
  'dataset': dataset,
  'model': 'mlp',
  'widths': (64,),
  'population': 40,
  'cohort': 20,
  'rounds': 60 if QUICK else 300,
  'local_steps': 5,
  'batch_size': 16,
  'client_lr': 0.1 if MNIST else 0.3,
  'eval_every': 10,
  'rounds_per_dispatch': 10,
  'checkpoint_every': 60,
}
ADAM = {
  'server_optimizer': 'adam',
  'server_lr': 0.01 if MNIST else 0.02,
  'b2': 0.99,
  'final_server_lr': 1e-5,
}
FRACTIONS = (4, 64) if QUICK else (4, 16, 64)

d = models.num_params(experiment.build(COMMON).params)
runs = {
  'FedAvg': {'algorithm': 'fedavg', 'client_lr': 0.1 if MNIST else 0.5},
  'FedAdam': {'algorithm': 'fedavg', **ADAM},
}
for fraction in FRACTIONS:
  sketch = {'kind': 'block_cyclic', 'size': d // fraction}
  runs[f'SAFL, d / {fraction}'] = {'algorithm': 'safl', 'sketch': sketch} | ADAM


def play(fields):
  """The rows of metrics of one run."""
  with tempfile.TemporaryDirectory() as folder:
    training.train(experiment.build(COMMON | fields), folder, progress=False)
    return reporting.read_metrics(folder)


rows = {name: play(fields) for name, fields in runs.items()}

# %% [markdown]
# ## Accuracy against bytes
#
# `uplink_bytes` are those of one client in one round, `total_uplink_bytes` of
# all clients in all rounds so far; both come from the arrays that are sent.

# %%
plt.figure(figsize=(6, 3.5))
for name, history in rows.items():
  tested = [row for row in history if 'test_accuracy' in row]
  sent = [row['total_uplink_bytes'] / 1e6 for row in tested]
  plt.semilogx(sent, [row['test_accuracy'] for row in tested], label=name)
plt.xlabel('uplink of all clients, MB')
plt.ylabel('test accuracy')
plt.legend()
plt.show()

last = {name: history[-1] for name, history in rows.items()}
for name, row in last.items():
  print(
    f'{name:12} {row["test_accuracy"]:.1%} with {row["uplink_bytes"]:6,} bytes '
    f'a client and round, {row["total_uplink_bytes"] / 1e6:.2f} MB in all'
  )

# %% [markdown]
# One seed and hardly tuned: read the curves for their shape, and see
# `launch.compare` for a comparison at equal budgets of tuning.

# %%
accuracy = {name: row['test_accuracy'] for name, row in last.items()}
sent = {name: row['uplink_bytes'] for name, row in last.items()}
assert sent['FedAvg'] == sent['FedAdam'] == 4 * d
assert all(sent[f'SAFL, d / {f}'] == 4 * (d // f) for f in FRACTIONS)
assert accuracy['SAFL, d / 4'] > accuracy['FedAdam'] - 0.05
assert accuracy['SAFL, d / 64'] > (0.7 if QUICK else 0.85)
