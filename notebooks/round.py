# %% [markdown]
"""# A round, from a loss to bytes sent.

A round is a pure function (hyperparameters, state, cohort, key) -> (state,
metrics) to jit, vmap or scan. You will see FedAvg written by hand and by the
library, what changes when clients send sketches, and the loss against rounds
and against bytes. It takes less than half a minute on two CPU cores.
"""

# %%
from fl_sketch import algorithms, models, rounds, sketches
from fl_sketch.data import sources
from fl_sketch.models import losses
from fl_sketch.runs import figures
from fl_sketch.utils import markdown
from IPython.display import Markdown
import jax
import jax.numpy as jnp
import numpy as np

# %% [markdown]
# ## A loss and a cohort
#
# Local work needs `loss_fn(params, batch)`, for any tree of parameters and any
# batches. Below: logistic regression on scikit-learn's digits. Each of 8
# clients has two batches of 32 images, one for each local step.

# %%
digits = sources.load('digits')
model = models.make('linear', digits.num_classes)
loss_fn = losses.classification(model)
params = models.init_params(model, jax.random.key(0), (8, 8, 1))
d = models.num_params(params)

CLIENTS, STEPS, BATCH = 8, 2, 32
batches = {
  name: samples[: CLIENTS * STEPS * BATCH].reshape(
    CLIENTS, STEPS, BATCH, *samples.shape[1:]
  )
  for name, samples in digits.train.items()
}
equal_weights = np.ones(CLIENTS, np.float32)
cohort = rounds.Cohort(np.arange(CLIENTS), equal_weights, batches)

# %% [markdown]
# ## FedAvg by hand
#
# Each client makes its steps of SGD from the same parameters; the server takes
# the mean of the results.

# %%
LR = 0.5


def local_steps(params, batches):
  """The parameters of one client after its local steps."""
  for k in range(STEPS):
    batch = {name: samples[k] for name, samples in batches.items()}
    grads = jax.grad(loss_fn)(params, batch)
    params = jax.tree.map(lambda p, g: p - LR * g, params, grads)
  return params


ends = jax.jit(jax.vmap(local_steps, in_axes=(None, 0)))(params, batches)
by_hand = jax.tree.map(lambda x: x.mean(0), ends)

# %% [markdown]
# ## FedAvg by the library
#
# `algorithms.make` returns hp -> `Algorithm`, and `run_round` makes a round of
# it on a mesh of devices. The metrics count the bytes that one client sends
# (`up`) and receives (`down`) from the arrays that are sent.

# %%
mesh = rounds.cohort_mesh()
hp = algorithms.Hyper(client_lr=jnp.float32(LR), server_lr=jnp.float32(1))


def play(name, count, hp=hp, **options):
  """Plays rounds with the same batches: parameters, losses, last metrics."""
  make = algorithms.make(name, loss_fn, **options)
  round_fn = jax.jit(rounds.run_round(make, mesh))
  state = rounds.place(mesh, rounds.init(make(hp), params, CLIENTS))
  seen = []
  for _ in range(count):
    state, metrics = round_fn(hp, state, cohort, jax.random.key(0))
    seen.append(metrics['train_loss'].item())
  return state.params, seen, metrics


def distance(a, b):
  """The largest difference between two trees."""
  gaps = jax.tree.map(lambda x, y: jnp.abs(x - y).max(), a, b)
  return float(max(jax.tree.leaves(gaps)))


one_round, *_ = play('fedavg', 1)
print(
  f'Largest difference to FedAvg by hand: {distance(by_hand, one_round):.0e}'
)

# %% [markdown]
# ## Sketches instead of updates
#
# In `iterative_sketching` (arXiv:2210.08371) clients send tables of their
# updates, and the server reads back the mean of the tables. With the identity
# for a sketch it equals FedAvg. A smaller table adds noise to every step, which
# `safl` (arXiv:2411.06770) averages out over rounds by Adam on the server.

# %%
identity, *_ = play('iterative_sketching', 1, sketch=sketches.identity())
print(f'Identity: largest difference {distance(identity, one_round):.0e}')

adam = hp._replace(server_lr=jnp.float32(0.03))
safl = lambda size: play('safl', 60, adam, sketch=sketches.block_cyclic(size))
runs = {
  'FedAvg': play('fedavg', 60),
  'SAFL, d / 4': safl(d // 4),
  'SAFL, d / 16': safl(d // 16),
}
LINKS = 'uplink_bytes', 'downlink_bytes'
head = 'algorithm', 'bytes up', 'bytes down', 'train loss in the last round'
cells = [
  (name, *(f'{metrics[x]:,}' for x in LINKS), f'{losses[-1]:.3f}')
  for name, (_, losses, metrics) in runs.items()
]
Markdown(markdown.table(head, cells, left=1))

# %% [markdown]
# ## Loss against rounds and bytes

# %%
LOOKS = ('dense', 0), ('safl', 0), ('safl', 1)
by_round, by_bytes = [], []
for (name, run), (family, variant) in zip(runs.items(), LOOKS, strict=True):
  _, seen, metrics = run
  played = np.arange(1, len(seen) + 1)
  sent = played * CLIENTS * sum(metrics[x] for x in LINKS) / 1e3
  look = {'family': family, 'variant': variant}
  by_round.append(figures.Line(name, played, seen, **look))
  by_bytes.append(figures.Line(name, sent, seen, **look))
figures.draw(
  [
    figures.Panel('round', 'train loss', by_round, y_scale='log'),
    figures.Panel(
      'total bytes up and down, kB',
      'train loss',
      by_bytes,
      x_scale='log',
      y_scale='log',
    ),
  ]
)

# %%
sent = {name: metrics['uplink_bytes'] for name, (_, _, metrics) in runs.items()}
assert distance(by_hand, one_round) < 1e-6
assert distance(identity, one_round) < 1e-6
assert sent['FedAvg'] == 4 * d
assert sent['SAFL, d / 4'] == 4 * (d // 4)
assert all(seen[-1] < seen[0] / 3 for _, seen, _ in runs.values())
