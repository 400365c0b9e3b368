# %% [markdown]
"""# Accuracy against bytes.

Five algorithms train the same small network on images of digits that 40 clients
hold. You will see the test accuracy of each against the bytes that all clients
sent and received, and a table of both. It takes less than a minute on two
CPU cores.
"""

# %%
import tempfile

from fl_sketch import models, runs
from fl_sketch.runs import figures
from fl_sketch.utils import markdown
from IPython.display import Markdown

# %% [markdown]
# ## The experiment
#
# A mapping of fields describes an experiment; `fl_sketch/runs/config.py`
# lists all fields with their defaults. Here 20 of the 40 clients take part in
# each round, with five local steps of SGD on batches of 16 images.

# %%
COMMON = {
  'dataset': 'digits',  # 8 x 8 images, from scikit-learn
  'model': 'mlp',
  'model_options': {'widths': (64,)},
  'population': 40,
  'cohort': 20,
  'rounds': 100,
  'local_steps': 5,
  'batch_size': 16,
  'client_lr': 0.3,
  'rounds_per_dispatch': 10,
}
d = models.num_params(runs.build(COMMON).params)
print(f'The model has d = {d:,} parameters.')

# %% [markdown]
# ## Five algorithms
#
# * **FedAvg** (arXiv:1602.05629): clients send their whole update.
# * **Top-k with error feedback**: each client sends its k largest coordinates
#   with their indices, and keeps the rest for its next round.
# * **FedSKETCH** (PRIVIX, arXiv:2008.04975): clients send a count sketch of
#   their update.
# * **SAFL** (arXiv:2411.06770), at two sizes: clients send a random sketch of
#   their update; server and clients read the mean of the sketches back and
#   take a step of Adam.

# %%
ADAM = {'server_optimizer': 'adam', 'server_lr': 0.02, 'final_server_lr': 1e-5}
COUNT_SKETCH = {'kind': 'count_sketch', 'rows': 5, 'cols': d // 80}


def safl(size):
  """The fields of SAFL with a sketch of so many numbers."""
  sketch = {'kind': 'block_cyclic', 'size': size}
  return {'algorithm': 'safl', 'sketch': sketch, 'b2': 0.99, **ADAM}


METHODS = {
  'FedAvg': {'algorithm': 'fedavg', 'client_lr': 0.5},
  'top-k, k = d / 32': {
    'algorithm': 'fedcom',
    'codec': {'kind': 'top_k', 'k': d // 32},
    'options': {'error_feedback': True},
  },
  'FedSKETCH, d / 16': {
    'algorithm': 'fedsketch_privix',
    'sketch': COUNT_SKETCH,
    'server_lr': 0.3,
  },
  'SAFL, d / 16': safl(d // 16),
  'SAFL, d / 64': safl(d // 64),
}


def train(fields):
  """The metrics of a run, where the model was tested."""
  with tempfile.TemporaryDirectory() as folder:
    runs.train(runs.build(COMMON | fields), folder, progress=False)
    rows = runs.read_metrics(folder)
  return [row for row in rows if 'test_accuracy' in row]


runs = {name: train(fields) for name, fields in METHODS.items()}

# %% [markdown]
# ## Accuracy against bytes
#
# Bytes are counted from the arrays that are sent. The total is that of all
# clients in all rounds so far, up and down.


# %%
def megabytes(row):
  """What all clients have sent and received."""
  return (row['total_uplink_bytes'] + row['total_downlink_bytes']) / 1e6


LOOKS = ('dense', 0), ('codecs', 0), ('fedsketch', 0), ('safl', 0), ('safl', 1)
lines = [
  figures.Line(
    name,
    [megabytes(row) for row in rows],
    [100 * row['test_accuracy'] for row in rows],
    family=family,
    variant=variant,
  )
  for (name, rows), (family, variant) in zip(runs.items(), LOOKS, strict=True)
]
figures.draw(
  [
    figures.Panel(
      'total bytes up and down, MB',
      'test accuracy, %',
      lines,
      x_scale='log',
      y_limits=(60, 100),
    )
  ]
)

# %%
last = {name: rows[-1] for name, rows in runs.items()}
head = 'method', 'test accuracy, %', 'MB up and down', 'bytes up', 'bytes down'
cells = [
  (
    name,
    f'{100 * row["test_accuracy"]:.1f}',
    f'{megabytes(row):.2f}',
    f'{row["uplink_bytes"]:,}',
    f'{row["downlink_bytes"]:,}',
  )
  for name, row in last.items()
]
Markdown(markdown.table(head, cells, left=1))

# %% [markdown]
# MB are those of all clients in all rounds, bytes those of one client in one
# round. Clients with top-k choose different coordinates, so the mean of their
# updates has many more than k of them, and the server sends a dense model.
# Sketches of one round share a random key, so their mean is as small as each of
# them, and it is all that the server sends.
#
# This is one seed, with learning rates that were hardly tuned. `fl-sketch
# compare` tunes all algorithms alike, on MNIST.

# %%
accuracy = {name: row['test_accuracy'] for name, row in last.items()}
assert last['FedAvg']['uplink_bytes'] == 4 * d
assert last['SAFL, d / 64']['uplink_bytes'] == 4 * (d // 64)
assert megabytes(last['SAFL, d / 64']) < megabytes(last['FedAvg']) / 20
assert accuracy['FedAvg'] > 0.95
assert min(accuracy.values()) > 0.88
