# %% [markdown]
"""# Bring your own model and data.

You have arrays of every client, and a model: a flax module or a plain function.
You will see both forms become experiments that train with sketches, the first
one with differential privacy. It takes less than a minute on two CPU cores.
The data are scikit-learn's, in place of yours.
"""

# %%
import tempfile

from fl_sketch import runs
from fl_sketch.data import sources
from fl_sketch.runs import config, custom, figures
import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from sklearn import datasets

rng = np.random.default_rng(0)

# %% [markdown]
# ## Arrays per client
#
# The data are a list with a dict of arrays for every client, and such a dict of
# test examples. Clients may hold different numbers of samples; names, shapes
# and types must agree.

# %%
digits = sources.load('digits')
order = rng.permutation(len(digits.train['y']))
ends = np.sort(rng.choice(np.arange(1, len(order)), 399, replace=False))
clients = [
  {'x': digits.train['x'][ids], 'y': digits.train['y'][ids]}
  for ids in np.split(order, ends)
]
sizes = [len(client['y']) for client in clients]
print(f'{len(clients)} clients with {min(sizes)} to {max(sizes)} images each')

# %% [markdown]
# ## A flax module
#
# It maps 'x' to logits of the labels 'y'; images of uint8 arrive as x / 255. It
# may have parameters only, no other state: a GroupNorm, not a BatchNorm.


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
# The config describes the run: the algorithm, the size of the sketch, epsilon.
# Its fields that name a dataset, a model or a partition are not used. The
# guarantee is known before any training; the notebook `privacy` explains it.

# %%
c = config.Config(
  population=len(clients),
  cohort=100,
  sampling='poisson',
  rounds=40,
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
exp = runs.build(c, problem=mine)
statement = exp.guarantee.statement
print(f'epsilon {statement.epsilon:.2f} at delta {statement.delta:g}')


def train(exp):
  """The metrics of a run, where the model was tested."""
  with tempfile.TemporaryDirectory() as folder:
    runs.train(exp, folder, progress=False)
    rows = runs.read_metrics(folder)
  return [row for row in rows if 'test_loss' in row]


private = train(exp)

# %% [markdown]
# ## A plain function
#
# The other form has parameters, any tree of arrays, and a function of them and
# a batch that returns values of *each sample*: the loss, and what else should
# be evaluated. Below: linear regression on diabetes, without privacy.

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
  rounds=40,
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
errors = train(runs.build(c, problem=plain))

# %% [markdown]
# ## Results
#
# Rows of metrics are those of any run; `test_NAME` is the mean of what the
# model reports. With a folder of your own the same call resumes from its last
# checkpoint. The folder knows model, loss, first parameters and data by their
# digests: with others the call is refused, by the name of what differs.


# %%
def panel(title, rows, metric, label, scale):
  """A test metric against what all clients have sent and received."""
  sent = [
    row['total_uplink_bytes'] + row['total_downlink_bytes'] for row in rows
  ]
  values = [scale * row[metric] for row in rows]
  line = figures.Line('', np.array(sent) / 1e3, values, family='safl')
  x_label = 'total bytes up and down, kB'
  return figures.Panel(x_label, label, [line], title, x_scale='log')


figures.draw(
  [
    panel(
      'digits, epsilon 8', private, 'test_accuracy', 'test accuracy, %', 100
    ),
    panel(
      'diabetes',
      errors,
      'test_absolute_error',
      'absolute error, standard deviations',
      1,
    ),
  ]
)

# %%
assert mine.partition.sizes.tolist() == sizes
assert private[-1]['uplink_bytes'] == 4 * 128
assert private[-1]['epsilon'] <= 8 + 1e-6
assert private[-1]['test_accuracy'] > 0.7
assert errors[-1]['uplink_bytes'] == 4 * 6
assert errors[-1]['test_loss'] < 0.75  # 1 knows nothing
