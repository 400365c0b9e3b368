# %% [markdown]
"""# A round, from a loss to bytes on the wire.

An algorithm here is local work and one chain of optax transformations; a round
is a pure function (hyperparameters, state, cohort, key) -> (state, metrics).
This notebook plays FedAvg by hand, then by the library, then puts a sketch into
the chain, and reads off what a client sends.
"""

# %%
from fl_sketch import algorithms, models, rounds, sketches
from fl_sketch.data import sources
from fl_sketch.models import losses
from fl_sketch.rounds import mesh as mesh_lib
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

# %% [markdown]
# ## A loss and a cohort
#
# Local work asks for `loss_fn(params, batch)`, of any parameters and batches.
# Below: logistic regression on scikit-learn's digits, 8 clients, each with two
# batches of 32 samples, one for each local step.

# %%
digits = sources.load('digits')
model = models.make('linear', digits.num_classes)
loss_fn = losses.classification(model)
params = models.init_params(model, jax.random.key(0), (8, 8, 1))
d = models.num_params(params)

CLIENTS, STEPS, BATCH = 8, 2, 32
held = slice(0, CLIENTS * STEPS * BATCH)
batches = {
  name: samples[held].reshape(CLIENTS, STEPS, BATCH, *samples.shape[1:])
  for name, samples in digits.train.items()
}
everybody, equal = np.arange(CLIENTS), np.ones(CLIENTS, np.float32)
cohort = rounds.Cohort(everybody, equal, batches)

# %% [markdown]
# ## FedAvg by hand
#
# Each client makes its steps of SGD from the same parameters; the server goes
# to the mean of where they end.

# %%
LR = 0.5


def local_steps(params, batches):
  """Where one client ends."""
  for k in range(STEPS):
    batch = {name: samples[k] for name, samples in batches.items()}
    grads = jax.grad(loss_fn)(params, batch)
    params = jax.tree.map(lambda p, g: p - LR * g, params, grads)
  return params


ends = jax.jit(jax.vmap(local_steps, in_axes=(None, 0)))(params, batches)
by_hand = jax.tree.map(lambda x: x.mean(0), ends)

# %% [markdown]
# ## The same by the library
#
# `algorithms.make` returns hp -> `Algorithm`; `run_round` turns it into a round
# over a mesh of all devices there are. The bill is in the metrics: bytes that
# one client sent (`up`) and received (`down`), counted from the arrays sent.

# %%
mesh = mesh_lib.cohort_mesh()
hp = algorithms.Hyper(client_lr=jnp.float32(LR), server_lr=jnp.float32(1))


def play(name, count, hp=hp, **options):
  """Plays rounds with the same batches: parameters, losses, last metrics."""
  make = algorithms.make(name, loss_fn, **options)
  round_fn = jax.jit(rounds.run_round(make, mesh))
  state = mesh_lib.place(mesh, rounds.init(make(hp), params, CLIENTS))
  seen = []
  for _ in range(count):
    state, metrics = round_fn(hp, state, cohort, jax.random.key(0))
    seen.append(metrics['train_loss'].item())
  return state.params, seen, metrics


def distance(a, b):
  """The largest difference between two trees."""
  gaps = jax.tree.map(lambda x, y: jnp.abs(x - y).max(), a, b)
  return float(max(jax.tree.leaves(gaps)))


one_round, _, fedavg = play('fedavg', 1)
print('by hand and by the library:', distance(by_hand, one_round))
print(f'{d} float32 numbers are {fedavg["up"]} bytes up')

# %% [markdown]
# ## With a sketch in the chain
#
# In `iterative_sketching` (Song et al., arXiv:2210.08371) clients send tables
# of their updates, whose mean is read back. With the identity for a sketch it
# *is* FedAvg, to the last byte; with a table of a quarter of the numbers it
# sends a quarter of the bytes.

# %%
identity, _, full = play('iterative_sketching', 1, sketch=sketches.identity())
quarter = sketches.block_cyclic(d // 4)
_, _, sketched = play('iterative_sketching', 1, sketch=quarter)
for name, metrics in (('identity', full), ('a quarter', sketched)):
  print(f'{name}: {metrics["up"]} bytes up, {metrics["down"]} down')

# %% [markdown]
# ## Rounds
#
# A server that trusts every step (`server_lr=1`) also takes all of the sketch's
# noise; an adaptive one (`safl`, Chen et al., arXiv:2411.06770) averages it
# out over rounds.

# %%
adam = hp._replace(server_lr=jnp.float32(0.03))
curves = {
  'FedAvg': play('fedavg', 60),
  'SAFL, a quarter': play('safl', 60, adam, sketch=quarter),
  'SAFL, a sixteenth': play(
    'safl', 60, adam, sketch=sketches.block_cyclic(d // 16)
  ),
}
plt.figure(figsize=(5, 3))
for name, (_, seen, metrics) in curves.items():
  plt.semilogy(seen, label=f'{name}: {metrics["up"]:,} bytes a round')
plt.xlabel('round')
plt.ylabel('train loss')
plt.legend()
plt.show()

# %%
assert distance(by_hand, one_round) < 1e-6
assert distance(identity, one_round) < 1e-6
assert fedavg['up'] == full['up'] == 4 * d
assert sketched['up'] == 4 * (d // 4)
assert all(seen[-1] < seen[0] / 3 for _, seen, _ in curves.values())
