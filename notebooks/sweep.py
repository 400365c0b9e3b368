# %% [markdown]
"""# Many runs as one program.

Learning rates, clip norms and seeds are arrays to a round, not structure: one
compiled program plays all points of a grid. This notebook does it twice: by
`jax.vmap` over a plain round, to show each step, and by
`fl_sketch.sweeps`, which also writes files, averages over seeds, and resumes.
"""

# %%
import os
import tempfile

from fl_sketch import algorithms, models, rounds, sketches, sweeps
from fl_sketch.data import sources
from fl_sketch.models import losses
from fl_sketch.rounds import mesh as mesh_lib
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

QUICK = bool(os.environ.get('FL_SKETCH_QUICK'))  # CI sweeps fewer points

# %% [markdown]
# ## A vmapped round
#
# `algorithms.make` returns hp -> `Algorithm`, which runs inside the trace, so
# that hyperparameters may be batched like anything else. So may keys: each
# point has its own sketches.

# %%
digits = sources.load('digits')
model = models.make('linear', digits.num_classes)
params = models.init_params(model, jax.random.key(0), (8, 8, 1))
d = models.num_params(params)
make = algorithms.make(
  'safl',
  losses.classification(model),
  sketch=sketches.block_cyclic(d // 8),
  server_optimizer='adam',
)

CLIENTS, STEPS, BATCH = 10, 4, 32
held = slice(0, CLIENTS * STEPS * BATCH)
batches = {
  name: samples[held].reshape(CLIENTS, STEPS, BATCH, *samples.shape[1:])
  for name, samples in digits.train.items()
}
everybody, equal = np.arange(CLIENTS), np.ones(CLIENTS, np.float32)
cohort = rounds.Cohort(everybody, equal, batches)

# %%
RATES = jnp.logspace(-3, 0, 4 if QUICK else 13)
hps = algorithms.Hyper(client_lr=jnp.full_like(RATES, 0.3), server_lr=RATES)
keys = jax.random.split(jax.random.key(0), len(RATES))

round_fn = rounds.run_round(make, mesh_lib.cohort_mesh())
sweep_fn = jax.jit(jax.vmap(round_fn, in_axes=(0, 0, None, 0)))
init = lambda hp: rounds.init(make(hp), params, CLIENTS)

states, curves = jax.vmap(init)(hps), []
for _ in range(30):
  states, metrics = sweep_fn(hps, states, cohort, keys)
  curves.append(metrics['train_loss'])
curves = np.array(curves)  # [rounds, points]

plt.figure(figsize=(5, 3))
plt.semilogy(curves, label=[f'{rate:.3g}' for rate in RATES])
plt.xlabel('round')
plt.ylabel('train loss')
plt.legend(title='server_lr', ncols=2, fontsize='small')
plt.show()

# %% [markdown]
# A point of it is the run that it would be alone:

# %%
alone_fn = jax.jit(round_fn)
point = lambda tree, i: jax.tree.map(lambda x: x[i], tree)
state, alone = init(point(hps, 1)), []
for _ in range(30):
  state, metrics = alone_fn(point(hps, 1), state, cohort, keys[1])
  alone.append(metrics['train_loss'].item())
print('alone and among others:', np.abs(alone - curves[:, 1]).max())

# %% [markdown]
# ## The library's sweep
#
# A config's `sweep` lists values of any field. What is an array shares a
# program, other fields (here the size of the sketch) loop outside; on a CPU the
# points of a program run one after another, which is faster there, on an
# accelerator vmapped, as many as its memory holds. The folder has `table.md`,
# the best point and a picture, and an interrupted sweep goes on. The data are
# MNIST where it is on disk, else scikit-learn's digits.

# %%
dataset = 'digits'
if not QUICK:
  try:
    dataset = sources.load('mnist').name
  except sources.DataError as error:
    print(error)

config = {
  'dataset': dataset,
  'model': 'linear',
  'population': 40,
  'cohort': 20,
  'rounds': 30 if QUICK else 100,
  'batch_size': 16,
  'client_lr': 0.3,
  'algorithm': 'safl',
  'sketch': {'kind': 'block_cyclic'},
  'server_optimizer': 'adam',
  'eval_every': 10,
  'rounds_per_dispatch': 10,
  'checkpoint_every': 10,
  'sweep': {
    'server_lr': (0.003, 0.03) if QUICK else (0.001, 0.003, 0.01, 0.03, 0.1),
    'sketch': {'size': (40, 160)},
    'seed': (0, 1) if QUICK else (0, 1, 2),
  },
}
with tempfile.TemporaryDirectory() as folder:
  rows = sweeps.run(config, folder, progress=False)
  with open(f'{folder}/table.md') as file:
    print(file.read())

# %%
plt.figure(figsize=(5, 3))
for size in (40, 160):
  matches = [row for row in rows if row['values']['sketch.size'] == size]
  rates = [row['values']['server_lr'] for row in matches]
  accuracy = [row['test_accuracy'] for row in matches]
  plt.semilogx(rates, accuracy, 'o', label=f'a table of {size}')
plt.xticks(rates, rates)
plt.minorticks_off()
plt.xlabel('server_lr')
plt.ylabel('test accuracy')
plt.legend()
plt.show()

# %%
best = max(rows, key=lambda row: row['test_accuracy'])
assert curves.shape == (30, len(RATES))
assert np.allclose(alone, curves[:, 1], rtol=1e-3)
assert curves[-1].min() < curves[0].min() / 3
assert len(rows) == len(sweeps.points(config))
assert not any(row['diverged'] for row in rows)
assert best['test_accuracy'] > 0.85
