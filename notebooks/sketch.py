# %% [markdown]
"""# A sketch is a random linear map.

A client holds an update x of d numbers and sends R x, a *table* of b < d
numbers. The matrix R is drawn from a key that everybody knows, and is never
stored. You will see an image go through a sketch, how averaging removes the
error, and how the error depends on the size of the table. It takes less than
half a minute on two CPU cores.
"""

# %%
from fl_sketch import runs, sketches
from fl_sketch.data import sources
from fl_sketch.runs import figures
from fl_sketch.utils import markdown
from IPython.display import Markdown, display
import jax
import jax.numpy as jnp
import numpy as np

KEY = jax.random.key(0)

# %% [markdown]
# ## Three functions of a key
#
# `sketch(key, tree)` makes the table, `desketch(key, table, like)` maps it back
# by R^T, and `like(tree)` is a table of zeros. A tree is a vector, or all
# parameters of a model.
#
# * **Linear**: the table of a sum is the sum of the tables. So the server can
#   add up tables instead of updates.
# * **Adjoint**: `desketch` is the transpose of `sketch` up to a constant c that
#   the operator states: ⟨R x, t⟩ = c ⟨x, R^T t⟩.

# %%
D, B = 1024, 128
op = sketches.block_cyclic(size=B)
x, y = jax.random.normal(KEY, (2, D))
table = op.sketch(KEY, x)
print(f'{x.nbytes:,} bytes become {table.nbytes:,}.')

of_sum = op.sketch(KEY, x + y)
gap = jnp.abs(of_sum - (table + op.sketch(KEY, y))).max()
print(f'R(x + y) differs from R x + R y by at most {gap:.0e}.')

c = op.properties.adjoint_scale
left = jnp.vdot(of_sum, table)
right = c * jnp.vdot(x + y, op.desketch(KEY, table, x))
print(f'The two sides of the adjoint law are {left:.2f} and {right:.2f}.')

# %% [markdown]
# ## Unbiased
#
# One R^T R x is far from x, but its expectation over keys is x. So the mean of
# n draws, each with a key of its own, approaches x. Below, the table of an
# image of 64 pixels has 16 numbers. The operator states a constant alpha with
# E‖R^T R x - x‖² ≤ alpha ‖x‖², so the relative error of a mean of n draws is at
# most √(alpha / n), in root mean square.

# %%
image = sources.load('digits').test['x'][0, ..., 0] / np.float32(255)
small = sketches.block_cyclic(size=16)
keys = jax.random.split(KEY, 4096)
back = jax.jit(
  jax.vmap(lambda key: small.desketch(key, small.sketch(key, image), image))
)(keys)

DRAWS = np.array([1, 16, 256, 4096])
means = [back[:n].mean(0) for n in DRAWS]
norm = np.linalg.norm
errors = [norm(mean - image) / norm(image) for mean in means]
stated = np.sqrt(small.properties.alpha(image.size) / DRAWS)

names = 'image', 'one draw', *(f'mean of {n:,} draws' for n in DRAWS[1:])
fig = runs.new_figure(8, 1.9)
axes = fig.subplots(1, len(names))
for ax, name, pixels in zip(axes, names, (image, *means), strict=True):
  ax.imshow(pixels, cmap='gray', vmin=0, vmax=1)
  ax.set_title(name, fontsize='small')
  ax.axis('off')
display(fig)
cells = [
  (f'{n:,}', f'{error:.3f}', f'{bound:.3f}')
  for n, error, bound in zip(DRAWS, errors, stated, strict=True)
]
Markdown(markdown.table(('draws', 'relative error', '√(alpha / n)'), cells, 0))

# %% [markdown]
# ## Error against size
#
# Lines are the constants alpha that two operators state, points the mean
# squared errors of 300 draws. `block_cyclic` has orthogonal rows and
# alpha = d / b - 1, as has `srht`; a count sketch has about d / b, as has
# `gaussian`. The difference matters for large tables.

# %%
SIZES = 2 ** np.arange(4, 10)
OPERATORS = {
  'count sketch': lambda b: sketches.count_sketch(1, b, combine='mean'),
  'block cyclic': sketches.block_cyclic,
}


def squared_errors(op):
  """‖R^T R x - x‖² / ‖x‖² of 300 keys."""

  def one(key):
    return jnp.sum((op.desketch(key, op.sketch(key, x), x) - x) ** 2)

  return jax.jit(lambda keys: jax.lax.map(one, keys))(keys[:300]) / norm(x) ** 2


lines, gaps = [], {}
for name, make in OPERATORS.items():
  ops = [make(int(b)) for b in SIZES]
  alphas = [op.properties.alpha(D) for op in ops]
  samples = np.array([squared_errors(op) for op in ops])
  measured = samples.mean(1)
  gaps[name] = abs(measured - alphas) / (samples.std(1) / 300**0.5 + 1e-6)
  lines.append(figures.Line('', SIZES, alphas, family=name))
  lines.append(figures.Line(name, SIZES, measured, points=True))
figures.draw(
  [
    figures.Panel(
      f'numbers in the table, of {D:,}',
      'squared relative error',
      lines,
      x_scale='log',
      y_scale='log',
    )
  ]
)

# %% [markdown]
# `sketches.verify` measures bias, alpha, linearity and the adjoint.

# %%
assert gap < 1e-4
assert abs(left - right) < 1e-3 * abs(left)
assert np.allclose(errors, stated, rtol=0.3)
assert all(gap.max() < 6 for gap in gaps.values()), gaps
