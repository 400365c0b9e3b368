# %% [markdown]
"""# Bring your own model and data.

You have arrays of every client and a model. This notebook takes both, a flax
module and then a plain function, to a sketched and private run. The data are
scikit-learn's: stand-ins for yours, so that nothing is downloaded.
"""

# %%
import os
import tempfile

from fl_sketch import experiment, reporting, training
from fl_sketch.data import sources
from fl_sketch.experiment import config, custom
import flax.linen as nn
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from sklearn import datasets

QUICK = bool(os.environ.get('FL_SKETCH_QUICK'))  # CI plays fewer rounds
ROUNDS = 40 if QUICK else 150
rng = np.random.default_rng(0)

# %% [markdown]
# ## Arrays per client
#
# A list with a dict of arrays for every client, and such a dict of test
# examples. Clients may hold different numbers of samples; names, shapes and
# types must agree.

# %%
digits = sources.load('digits')
order = rng.permutation(len(digits.train['y']))
ends = np.sort(rng.choice(np.arange(1, len(order)), 399, replace=False))
clients = [
  {'x': digits.train['x'][ids], 'y': digits.train['y'][ids]}
  for ids in np.split(order, ends)
]
sizes = [len(client['y']) for client in clients]
print(f'{len(clients)} clients with {min(sizes)} to {max(sizes)} samples')

# %% [markdown]
# ## A flax module
#
# From 'x' to logits of the labels 'y'; bytes arrive as x / 255. It may keep
# parameters only: a GroupNorm, not a BatchNorm.


# %%
class Net(nn.Module):
  """Any linen module of one argument."""

  @nn.compact
  def __call__(self, x):
    """Returns the logits, f32[batch, 10]."""
    x = nn.relu(nn.Dense(32)(x.reshape(x.shape[0], -1)))
    return nn.Dense(10)(x)


mine = custom.problem(Net(), clients, digits.test)

# %% [markdown]
# ## A sketched private run
#
# The config says what is done with the problem: which algorithm, how much is
# sent, which epsilon. Its fields that name a dataset, a model or a partition
# are not used. `guarantee` is there before any training.

# %%
c = config.Config(
  population=len(clients),
  cohort=100,
  sampling='poisson',
  rounds=ROUNDS,
  local_steps=5,
  batch_size=4,
  client_lr=0.3,
  algorithm='safl',
  sketch={'kind': 'block_cyclic', 'size': 128},
  server_optimizer='adam',
  server_lr=0.03,
  standardize=False,
  clip_norm=0.5,
  epsilon=8.0,
  delta=1e-4,
  eval_every=5,
)
exp = experiment.assemble(c, mine, mine.partition)
print(exp.guarantee.statement.sentence())


def play(exp):
  """The rows of metrics of a run."""
  with tempfile.TemporaryDirectory() as folder:
    training.train(exp, folder, progress=False)
    return reporting.read_metrics(folder)


private = play(exp)

# %% [markdown]
# ## A plain function
#
# The other form: parameters, any tree of arrays, and a function from them and
# a batch to values of *each sample*: the loss, and whatever else should be
# evaluated. Means and masks are the library's. Below a regression, of
# diabetes, without privacy.

# %%
x, y = datasets.load_diabetes(return_X_y=True)
x, y = np.float32(x / x.std(0)), np.float32((y - y.mean()) / y.std())
parts = np.array_split(rng.permutation(len(y)), 21)
*shares, test = [{'x': x[part], 'y': y[part]} for part in parts]


def regression(params, batch):
  """Squared and absolute errors of each sample."""
  miss = batch['x'] @ params['w'] + params['b'] - batch['y']
  return {'loss': miss**2, 'absolute_error': jnp.abs(miss)}


start = {'w': np.zeros(10), 'b': np.zeros(())}
plain = custom.problem((start, regression), shares, test)
c = config.Config(
  population=len(shares),
  cohort=10,
  rounds=ROUNDS,
  local_steps=2,
  batch_size=8,
  client_lr=0.02,
  algorithm='safl',
  sketch={'kind': 'count_sketch', 'rows': 1, 'cols': 6, 'combine': 'mean'},
  server_optimizer='adam',
  server_lr=0.03,
  final_server_lr=1e-3,
  eval_every=5,
)
errors = play(experiment.assemble(c, plain, plain.partition))

# %% [markdown]
# ## What came out
#
# Rows of metrics are those of any run: `test_...` is the mean of what the model
# reports, `uplink_bytes` is of one client in one round, `epsilon` what has been
# spent. The folder would also have checkpoints, from which the same call goes
# on. It cannot know your model and data: take another folder for others.

# %%
figure, axes = plt.subplots(1, 2, figsize=(8, 3), layout='constrained')
tested = [row for row in private if 'test_accuracy' in row]
axes[0].plot(
  [row['epsilon'] for row in tested], [row['test_accuracy'] for row in tested]
)
axes[0].set(xlabel='epsilon spent', ylabel='test accuracy')
tested = [row for row in errors if 'test_absolute_error' in row]
axes[1].plot(
  [row['total_uplink_bytes'] / 1e3 for row in tested],
  [row['test_absolute_error'] for row in tested],
)
axes[1].set(xlabel='uplink of all clients, kB', ylabel='absolute error')
plt.show()
print(f'{private[-1]["test_accuracy"]:.1%} at epsilon 8, in digits')
print(f'{errors[-1]["test_absolute_error"]:.2f} deviations, in diabetes')

# %%
assert mine.partition.sizes.tolist() == sizes
assert private[-1]['uplink_bytes'] == 4 * 128
assert private[-1]['epsilon'] <= 8 + 1e-6
assert private[-1]['test_accuracy'] > 0.7
assert errors[-1]['uplink_bytes'] == 4 * 6
assert errors[-1]['test_loss'] < 0.75  # 1 knows nothing
