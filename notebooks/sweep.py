# %% [markdown]
"""# Many runs as one program.

Learning rates, clip norms and seeds are arrays to a round, so one compiled
program plays all points of a grid. You will see `jax.vmap` over a round, with a
heat map of 36 runs, and then `fl_sketch.runs`, which tests the models, counts
bytes, averages over seeds, writes files and resumes. It takes less than a
minute on two CPU cores.
"""

# %%
import tempfile

from fl_sketch import algorithms, models, rounds, runs, sketches
from fl_sketch.data import sources
from fl_sketch.models import losses
from fl_sketch.runs import figures, sweep
from fl_sketch.utils import markdown
from IPython.display import Markdown, display
import jax
import jax.numpy as jnp
import numpy as np

# %% [markdown]
# ## A vmapped round
#
# `algorithms.make` returns hp -> `Algorithm`, which runs inside the trace. So
# hyperparameters may be batched, and keys too: each point has its own sketches.
# The model is logistic regression on scikit-learn's digits, held by 10 clients.

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

CLIENTS, STEPS, BATCH, ROUNDS = 10, 4, 32, 30
batches = {
  name: samples[: CLIENTS * STEPS * BATCH].reshape(
    CLIENTS, STEPS, BATCH, *samples.shape[1:]
  )
  for name, samples in digits.train.items()
}
equal_weights = np.ones(CLIENTS, np.float32)
cohort = rounds.Cohort(np.arange(CLIENTS), equal_weights, batches)

# %%
CLIENT_LRS = jnp.logspace(-2.5, 0, 6)
SERVER_LRS = jnp.logspace(-3, 0, 6)
grid = jnp.meshgrid(CLIENT_LRS, SERVER_LRS, indexing='ij')
hps = algorithms.Hyper(client_lr=grid[0].ravel(), server_lr=grid[1].ravel())
keys = jax.random.split(jax.random.key(0), hps.client_lr.size)

round_fn = rounds.run_round(make, rounds.cohort_mesh())
sweep_fn = jax.jit(jax.vmap(round_fn, in_axes=(0, 0, None, 0)))
init = lambda hp: rounds.init(make(hp), params, CLIENTS)

states, curves = jax.vmap(init)(hps), []
for _ in range(ROUNDS):
  states, metrics = sweep_fn(hps, states, cohort, keys)
  curves.append(metrics['train_loss'])
curves = np.array(curves)  # [rounds, points]

# %%
fig = runs.new_figure(5.5, 3.8)
ax = fig.add_subplot()
last = curves[-1].reshape(6, 6)
ax.imshow(np.log10(last), cmap='viridis_r', origin='lower')
for (i, j), loss in np.ndenumerate(last):
  colour = 'white' if loss > (last.min() * last.max()) ** 0.5 else 'black'
  ax.text(j, i, f'{loss:.2f}', ha='center', va='center', color=colour)
ax.set_xticks(range(6), [f'{lr:.2g}' for lr in SERVER_LRS])
ax.set_yticks(range(6), [f'{lr:.2g}' for lr in CLIENT_LRS])
ax.set(
  xlabel='server learning rate',
  ylabel='client learning rate',
  title=f'train loss in round {ROUNDS}',
)
display(fig)

# %% [markdown]
# A point of the sweep has the losses of the same run by itself:

# %%
POINT = 14
alone_fn = jax.jit(round_fn)
hp = jax.tree.map(lambda x: x[POINT], hps)
state, alone = init(hp), []
for _ in range(ROUNDS):
  state, metrics = alone_fn(hp, state, cohort, keys[POINT])
  alone.append(metrics['train_loss'].item())
print(f'Largest difference: {abs(alone - curves[:, POINT]).max():.0e}')

# %% [markdown]
# ## The library's sweep
#
# `sweep` in a config lists values of any field. Points that differ in arrays
# share a program; other fields, here the size of the sketch, make programs of
# their own. On a CPU the points of a program run one after another, which is
# faster there; on an accelerator as many are vmapped as its memory holds.

# %%
SIZES, RATES, SEEDS = (40, 160), (0.01, 0.05, 0.2, 1.0), (0, 1, 2)
config = {
  'dataset': 'digits',
  'model': 'linear',
  'population': 40,
  'cohort': 20,
  'rounds': 30,
  'batch_size': 16,
  'client_lr': 0.3,
  'algorithm': 'safl',
  'sketch': {'kind': 'block_cyclic'},
  'server_optimizer': 'adam',
  'rounds_per_dispatch': 10,
  'sweep': {'server_lr': RATES, 'sketch': {'size': SIZES}, 'seed': SEEDS},
}
with tempfile.TemporaryDirectory() as folder:
  rows = sweep.run(config, folder, progress=False)

lines, cells = [], []
for i, size in enumerate(SIZES):
  accuracy = np.array(
    [
      [
        100 * row['test_accuracy']
        for row in rows
        if row['values']['sketch.size'] == size
        and row['values']['server_lr'] == rate
      ]
      for rate in RATES
    ]
  )  # [rates, seeds]
  ends = accuracy.mean(1), accuracy.min(1), accuracy.max(1)
  lines.append(figures.Line(f'{size} numbers', RATES, *ends, 'safl', i))
  cells.append((f'{size}', *(f'{mean:.1f}' for mean in ends[0])))
figures.draw(
  [
    figures.Panel(
      'server learning rate',
      'test accuracy, %',
      lines,
      x_scale='log',
      title=f'mean and range of {len(SEEDS)} seeds',
    )
  ]
)

# %%
head = 'numbers in a sketch', *(f'rate {rate:g}' for rate in RATES)
Markdown(markdown.table(head, cells, left=0))

# %%
assert curves.shape == (ROUNDS, 36)
assert np.allclose(alone, curves[:, POINT], rtol=1e-3)
assert curves[-1].min() < curves[0].min() / 3
assert len(rows) == len(SIZES) * len(RATES) * len(SEEDS)
assert not any(row['diverged'] for row in rows)
assert max(row['test_accuracy'] for row in rows) > 0.85
