# %% [markdown]
"""# Compressed gradients in your own training loop.

Four workers, here devices of one CPU, average their gradients through a
compressor. You will see the loop, the bytes that leave a worker as the compiled
program sends them, and the loss against steps and bytes. It takes about a
minute on two CPU cores.
"""

# %%
from fl_sketch import distributed, models
from fl_sketch.data import sources
from fl_sketch.models import losses
from fl_sketch.runs import compression, figures
from fl_sketch.utils import markdown
from IPython.display import Markdown
import jax
import numpy as np
import optax

jax.config.update('jax_num_cpu_devices', 4)
mesh = jax.make_mesh((4,), ('data',))

# %% [markdown]
# ## A model and batches
#
# Any `loss(params, batch)` will do. Below: a network of two layers on
# scikit-learn's digits, 16 images a worker and step.

# %%
digits = sources.load('digits')
model = models.make('mlp', digits.num_classes)
loss_fn = losses.classification(model)
params = models.init_params(model, jax.random.key(0), (8, 8, 1))
d, STEPS = models.num_params(params), 150


def batch(step):
  """The batch of a step, 16 images for each of 4 workers."""
  draw = np.random.default_rng(step).integers(0, 1000, 64)
  return {name: samples[draw] for name, samples in digits.train.items()}


# %% [markdown]
# ## The loop
#
# `mean_over` is an optax transformation: the gradients of a worker become the
# same estimate of the mean on all workers, and Adam follows. `train_step` jits
# a step over the mesh; `init` places the state, with what each worker keeps.


# %%
def train(compressor, **options):
  """The losses by step, and the bytes out of a worker per step."""
  mean = distributed.mean_over('data', compressor, **options)
  tx = optax.chain(mean, optax.adam(3e-3))
  step = distributed.train_step(loss_fn, tx, mesh)
  state = distributed.init(tx, params, mesh)
  p, seen = jax.tree.map(np.asarray, params), []
  for i in range(STEPS):
    p, state, loss = step(p, state, batch(i))
    seen.append(float(loss))
  return np.array(seen), distributed.bytes_per_step(tx, params, mesh).out


ONE_BIT = 'block_srht(size=0.32) | eden(rotate=False)'
SIGNS = 'sign(error_feedback=True)'
runs = {
  'dense': train('dense'),
  'two bits': train('eden(bits=2)', both_ways=True),
  'signs, error feedback': train(SIGNS, both_ways=True),
  'one-bit tables of d / 3': train(ONE_BIT, both_ways=True),
}
dense = runs['dense'][1]
rows = [
  (name, f'{out:,.0f}', f'{dense / out:.0f}', f'{seen[-20:].mean():.3f}')
  for name, (seen, out) in runs.items()
]
head = 'compressor', 'bytes out of a worker', 'times fewer', 'loss at the end'
Markdown(markdown.table(head, rows, left=1))

# %% [markdown]
# ## What travels
#
# `bytes_per_step` reads the types of what is sent. A compressed step has no
# array of floats of the model's size; most of it is one `uint8` array for each
# of the two stages.

# %%
tx = distributed.mean_over('data', ONE_BIT, both_ways=True)
sent = distributed.bytes_per_step(tx, params, mesh)
Markdown(str(sent))

# %% [markdown]
# ## Loss against steps and bytes

# %%
LOOKS = ('dense', 0), ('safl', 0), ('safl', 1), ('safl', 2)
by_step, by_bytes = [], []
for (name, (seen, out)), (family, variant) in zip(
  runs.items(), LOOKS, strict=True
):
  smooth = np.convolve(seen, np.ones(10) / 10, 'valid')
  done = np.arange(10, STEPS + 1)
  look = {'family': family, 'variant': variant}
  by_step.append(figures.Line(name, done, smooth, **look))
  by_bytes.append(figures.Line(name, done * out / 1e3, smooth, **look))
figures.draw(
  [
    figures.Panel('step', 'loss', by_step, y_scale='log'),
    figures.Panel(
      'kB out of a worker', 'loss', by_bytes, x_scale='log', y_scale='log'
    ),
  ]
)

# %% [markdown]
# ## Which compressor
#
# `compression.advise_gradients` compares compressors within a budget of bytes
# by the noise that they add to the mean of your own gradients.

# %%
split = jax.tree.map(lambda x: x.reshape(4, 16, *x.shape[1:]), batch(0))
grads = jax.vmap(jax.grad(loss_fn), (None, 0))(params, split)
choices = compression.advise_gradients(grads, d // 25)
best = {c.compressor: c for c in reversed(choices)}  # of all downlinks
rows = [
  (name.replace('|', r'\|'), f'{c.up:,}', f'{c.alpha:.1f}')
  for name, c in sorted(best.items(), key=lambda item: item[1].alpha)
]
Markdown(markdown.table(('compressor', 'bytes', 'noise'), rows, left=1))

# %%
assert sent.largest_float == 0
assert all(out < dense / 15 for _, out in list(runs.values())[1:])
assert all(seen[-20:].mean() < seen[0] / 4 for seen, _ in runs.values())
