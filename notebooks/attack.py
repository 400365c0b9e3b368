# %% [markdown]
"""# What an update reveals.

Whoever sees what one client sends, and knows the model, can search for the
inputs that would have sent the same. You will see three images of digits
reconstructed from a gradient, from sketches of several sizes and from a private
sketch, and the error against the size of the sketch. It takes less than a
minute on two CPU cores.
"""

# %%
from fl_sketch import accounting, attacks, models, runs, sketches
from fl_sketch.attacks import defences
from fl_sketch.data import sources
from fl_sketch.models import losses
from fl_sketch.runs import figures
from IPython.display import display
import jax
import numpy as np

# %% [markdown]
# ## The victim
#
# A client with one image, and a small network that was just initialised.

# %%
data = sources.load('digits')
images = data.test['x'][[0, 120, 240]].astype(np.float32) / 255
labels = data.test['y'][[0, 120, 240]]
model = models.make('mlp', data.num_classes, widths=(32,), activation='tanh')
params = models.init_params(model, jax.random.key(0), images.shape[1:])
loss_fn = losses.classification(model)
m = images[0].size
print(
  f'{m} unknown pixels, a gradient of {models.num_params(params):,} numbers'
)

# %% [markdown]
# ## From the gradient, by division
#
# The gradient of a dense layer is the input times the error of each output, and
# the gradient of its bias is that error. Their ratio is the image
# (arXiv:2003.14053, Proposition 3.1), and the sign of the gradient of the last
# bias gives the label.

# %%
see = attacks.view(loss_fn)
of_one = lambda x, y: see(params, {'x': x[None], 'y': y[None]}, None)
sent = jax.jit(jax.vmap(of_one))(images, labels)
first, last = sent['Dense_0'], sent['Dense_1']
divided = jax.vmap(attacks.dense_input)(first['kernel'], first['bias'])
divided = np.asarray(divided).reshape(images.shape)
read = np.asarray(jax.vmap(attacks.last_layer_label)(last['bias']))
print(f'labels: {labels.tolist()}, read from the gradient: {read.tolist()}')

# %% [markdown]
# ## From a sketch, by search
#
# A table has no such ratio. But it is a public linear function of the gradient,
# so its b numbers are b equations for m pixels. The attacker knows the label
# and searches by L-BFGS for the image that has this table.
#
# The private table is the largest one, clipped, with the noise of epsilon 8
# after 100 rounds under Poisson sampling of one client in ten. Differential
# privacy assumes that the attacker knows the tables of all other clients and
# subtracts them from the sum: one table remains, with all of the noise.


# %%
def attack(size, defence):
  """The attacker's images, one client after another."""
  op = sketches.block_cyclic(size)

  def one(image, label, key):
    hashes, noise, start = jax.random.split(key, 3)
    batch = {'x': image[None], 'y': label[None]}
    table = attacks.view(loss_fn, sketch=op)(params, batch, hashes)
    result = attacks.reconstruct(
      loss_fn,
      params,
      defence.apply(noise, table),
      batch['x'],
      start,
      labels=batch['y'],
      sketch=op,
      sketch_key=hashes,
      start_scale=0.1,
      box=(0.0, 1.0),
      steps=150,
    )
    return result.x[0]

  keys = jax.random.split(jax.random.key(1), len(images))
  play = jax.jit(lambda *args: jax.lax.map(lambda each: one(*each), args))
  return np.asarray(play(images, labels, keys))


SIZES = m // 4, m // 2, m, 4 * m
z = accounting.calibrate_noise_multiplier(
  epsilon=8.0, delta=1e-5, steps=100, sampling_probability=0.1
)
guesses = {size: attack(size, defences.none()) for size in SIZES}
private = attack(SIZES[-1], defences.gaussian_mechanism(1.0, z))

# %%
columns = {'image': images, 'gradient': divided}
columns |= {f'b = {size}': guess for size, guess in guesses.items()}
columns['private'] = private
fig = runs.new_figure(8, 3.3)
axes = fig.subplots(len(images), len(columns))
for column, (name, shown) in zip(axes.T, columns.items(), strict=True):
  column[0].set_title(name, fontsize='small')
  for ax, pixels in zip(column, shown, strict=True):
    ax.imshow(pixels[..., 0], cmap='gray', vmin=0, vmax=1)
    ax.axis('off')
display(fig)

# %% [markdown]
# ## Error against the size of the sketch

# %%
relative = lambda guess: attacks.scores.relative_error(guess, images)
errors = {size: relative(guess) for size, guess in guesses.items()}
ends = [
  [reduce(error) for error in errors.values()]
  for reduce in (np.median, np.min, np.max)
]
noisy = [[reduce(relative(private))] for reduce in (np.median, np.min, np.max)]
figures.draw(
  [
    figures.Panel(
      f'b, numbers in a sketch (line: the {m} pixels)',
      'relative error',
      [
        figures.Line('sketch', SIZES, *ends),
        figures.Line('private sketch', SIZES[-1:], *noisy, points=True),
      ],
      title=f'median and range of {len(images)} images',
      x_scale='log',
      y_scale='log',
      x_mark=m,
    )
  ]
)

# %% [markdown]
# A sketch of fewer numbers than pixels does not determine the image in one
# round. But the sketches of several rounds, with fresh keys, add up
# (`pooled=True`): a small sketch alone is no protection.

# %%
assert relative(divided).max() < 1e-3
assert (read == labels).all()
assert np.median(errors[SIZES[-1]]) < 0.1
assert np.median(errors[SIZES[0]]) > 0.3
assert np.median(relative(private)) > 0.5
