# %% [markdown]
"""# A sketch is a random linear map.

A client holds an update x of d numbers and sends R x, a *table* of b < d
numbers. Everybody knows the key, and so R; nobody ever stores it. R is
*linear*, so that the server may add up tables in place of updates, and R^T R is
the identity *in the mean*, so that what the server reads back is unbiased. This
notebook measures both, and what they cost: the error falls as d / b.
"""

# %%
from fl_sketch import sketches
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

KEY = jax.random.key(0)
D, B = 1024, 128

# %% [markdown]
# ## Three functions of a key
#
# `sketch(key, tree)` makes the table, `desketch(key, table, like)` reads it
# back, `like(tree)` is a table of zeros. A tree is anything that JAX takes for
# one: the parameters of a model, or a vector.

# %%
op = sketches.block_cyclic(size=B)
x, y = jax.random.normal(KEY, (2, D))
table = op.sketch(KEY, x)
print(f'{x.nbytes:,} bytes become {table.nbytes:,}')

# %% [markdown]
# **Linear:** the table of a sum is the sum of the tables. That is all a server
# needs, which sees clients' tables and never their updates.
#
# **Adjoint:** `desketch` is the transpose of `sketch`, up to a constant that
# the operator states: ⟨R x, t⟩ = c ⟨x, R^T t⟩.

# %%
mixed = op.sketch(KEY, 2 * x + y)
nonlinear = jnp.abs(mixed - (2 * op.sketch(KEY, x) + op.sketch(KEY, y))).max()
scale = sketches.properties(op).adjoint_scale
left = jnp.vdot(op.sketch(KEY, x), table)
right = scale * jnp.vdot(x, op.desketch(KEY, table, x))
print(f'linear up to {nonlinear:.1e}; {left:.3f} = {right:.3f}')

# %% [markdown]
# ## Unbiased
#
# One draw of R^T R x is far from x. The mean of n draws, each with a key of its
# own, comes closer as 1 / √n, for there is no bias to stop it: which is why a
# round has a fresh key.

# %%
keys = jax.random.split(KEY, 4096)
there_and_back = lambda key: op.desketch(key, op.sketch(key, x), x)
back = jax.jit(jax.vmap(there_and_back))(keys)
counts = 4 ** np.arange(7)
norm = jnp.linalg.norm(x)
errors = [float(jnp.linalg.norm(back[:n].mean(0) - x) / norm) for n in counts]

alpha = sketches.properties(op).alpha(D)
plt.figure(figsize=(5, 3))
plt.loglog(counts, errors, 'o', label='measured')
plt.loglog(counts, np.sqrt(alpha / counts), '-', label='√(alpha / n)')
plt.xlabel('draws in the mean')
plt.ylabel('relative error')
plt.legend()
plt.show()

# %% [markdown]
# ## Error against size
#
# Every operator states the least alpha with E‖R^T R x - x‖² ≤ alpha ‖x‖². Below
# are the stated constants as lines, and 300 draws as points; they fall on two
# curves. With b = d an operator with orthogonal rows (`block_cyclic`, `srht`)
# loses nothing; one with independent columns (`gaussian`, `count_sketch`) still
# loses as much as ‖x‖².

# %%
OPERATORS = {
  'gaussian': sketches.gaussian,
  'count_sketch, mean': lambda b: sketches.count_sketch(1, b, combine='mean'),
  'block_cyclic': sketches.block_cyclic,
  'srht': sketches.srht,
}
SIZES = 4 ** np.arange(2, 6)


def squared_errors(op, keys):
  """‖R^T R x - x‖² / ‖x‖² for every key."""

  def one(key):
    return jnp.sum((op.desketch(key, op.sketch(key, x), x) - x) ** 2) / norm**2

  return jax.jit(lambda keys: jax.lax.map(one, keys))(keys)


plt.figure(figsize=(5, 3))
gaps = {}
for i, (name, make) in enumerate(OPERATORS.items()):
  stated = [sketches.properties(make(int(b))).alpha(D) for b in SIZES]
  samples = [squared_errors(make(int(b)), keys[:300]) for b in SIZES]
  means = np.array([f.mean() for f in samples])
  deviations = np.array([f.std() for f in samples]) / np.sqrt(300)
  gaps[name] = np.abs(means - stated) / (deviations + 1e-6)
  plt.plot(SIZES, stated, f'C{i}{"-:"[i % 2]}')
  plt.plot(SIZES, means, f'C{i}{"o+"[i % 2]}', markersize=10 - i, label=name)
plt.xscale('log', base=2)
plt.yscale('symlog', linthresh=1)
plt.ylim(-0.1)
plt.xlabel('numbers in the table, of 1,024')
plt.ylabel('squared relative error')
plt.legend()
plt.show()

# %% [markdown]
# `sketches.verify` measures everything that an operator promises, with
# intervals; the README has the table of all of them.

# %%
report = sketches.verify(sketches.srht(16), 64, KEY, draws=500)

# %%
assert nonlinear < 1e-4
assert abs(left - right) < 1e-3 * abs(left)
assert np.allclose(errors, np.sqrt(alpha / counts), rtol=0.2)
assert all(gap.max() < 6 for gap in gaps.values()), gaps
assert report.ok
