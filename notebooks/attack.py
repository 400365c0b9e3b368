# %% [markdown]
"""# What an update gives away.

Who sees what one client sends, and knows the model, can look for the inputs
that would have sent the same. From a gradient they are often simply there; from
a table they come out as long as it has more numbers than the inputs; from a
private table they do not. This notebook does all three to images of digits.
"""

# %%
import os

from fl_sketch import attacks, models, sketches
from fl_sketch.attacks import defences
from fl_sketch.data import sources
from fl_sketch.models import losses
from fl_sketch.privacy import accounting
import jax
import matplotlib.pyplot as plt
import numpy as np

QUICK = bool(os.environ.get('FL_SKETCH_QUICK'))  # CI attacks fewer images
IMAGES, STEPS = (3, 150) if QUICK else (6, 400)

# %% [markdown]
# ## The victim
#
# A client with one image, and a small network that was just initialised. The
# images are MNIST where it is on disk, else scikit-learn's digits.

# %%
data = sources.load('digits')
if not QUICK:
  try:
    data = sources.load('mnist')
  except sources.DataError as error:
    print(error)

model = models.make('mlp', data.num_classes, widths=(32,), activation='tanh')
shape = data.test['x'].shape[1:]
params = models.init_params(model, jax.random.key(0), shape)
loss_fn = losses.classification(model)
unknowns, d = int(np.prod(shape)), models.num_params(params)
images = data.test['x'][:: len(data.test['x']) // IMAGES][:IMAGES]
images = images.astype(np.float32) / 255
labels = data.test['y'][:: len(data.test['y']) // IMAGES][:IMAGES]
print(f'{unknowns} unknown pixels behind an update of {d:,} numbers')

# %% [markdown]
# ## From the gradient, by division
#
# The gradient of a dense layer is the input times the error at each output; the
# bias's gradient is that error. Their ratio is the image (Geiping et al.,
# arXiv:2003.14053, Proposition 3.1), and the sign of the last bias's gradient
# is the label. No search, no guess.

# %%
see = attacks.view(loss_fn)


def of_one(image, label):
  """What the client of this image sends without a sketch."""
  return see(params, {'x': image[None], 'y': label[None]}, None)


sent = jax.jit(jax.vmap(of_one))(images, labels)
first, last = sent['Dense_0'], sent['Dense_1']
divided = jax.vmap(attacks.dense_input)(first['kernel'], first['bias'])
divided = np.asarray(divided).reshape(images.shape)
read = jax.vmap(attacks.last_layer_label)(last['bias'])

# %% [markdown]
# ## From a table, by search
#
# A table has no such ratio. But it is a public linear function of the gradient,
# hence b equations for m pixels: the attacker searches for the image that has
# this table, here by L-BFGS with the label known. With b well above m a single
# round determines the image.

# %%
SIZES = (unknowns // 4, 4 * unknowns)


def attacked(image, label, key, op, defence):
  """What an attacker makes of what the client of this image sends."""
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
    steps=STEPS,
  )
  return result.x[0]


def attack(size, defence):
  """The guess for every image, one after another."""
  op = sketches.block_cyclic(size)
  keys = jax.random.split(jax.random.key(1), IMAGES)
  one = lambda args: attacked(*args, op, defence)
  return np.asarray(
    jax.jit(lambda *args: jax.lax.map(one, args))(images, labels, keys)
  )


small, large = (attack(size, defences.none()) for size in SIZES)

# %% [markdown]
# ## From a private table
#
# Clipped, and with the noise that 100 rounds at epsilon 8 ask for, under
# Poisson sampling of one client in ten. The attacker is the one that
# differential privacy supposes: it knows all other clients' tables and takes
# them off the sum, so that one client's table is left with all of the noise.

# %%
z = accounting.calibrate_noise_multiplier(
  epsilon=8.0,
  delta=1e-5,
  steps=100,
  sampling=accounting.Sampling.POISSON,
  sampling_probability=0.1,
)
private = attack(SIZES[-1], defences.gaussian_mechanism(1.0, z))

# %%
columns = {
  'image': images,
  'gradient': divided,
  f'{SIZES[1]} numbers': large,
  f'{SIZES[0]} numbers': small,
  'private': private,
}
figure, axes = plt.subplots(
  IMAGES, len(columns), figsize=(7, 1.4 * IMAGES), squeeze=False
)
for j, (name, column) in enumerate(columns.items()):
  axes[0, j].set_title(name, fontsize='small')
  for i in range(IMAGES):
    axes[i, j].imshow(column[i, ..., 0], cmap='gray', vmin=0, vmax=1)
    axes[i, j].axis('off')
plt.show()

error = {
  name: np.median(attacks.scores.relative_error(column, images))
  for name, column in columns.items()
}
for name, value in error.items():
  print(f'{name:12} relative error {value:.2g}')

# %% [markdown]
# A table of fewer numbers than pixels does not determine the image in one
# round; in several rounds, with fresh keys, tables of the same images add up
# (`pooled=True`). Do not take a small sketch for privacy.

# %%
by_division, by_search, too_few, against_noise = [*error.values()][1:]
assert by_division < 1e-3
assert (np.asarray(read) == labels).all()
assert by_search < 0.1
assert too_few > 0.3
assert against_noise > 0.5
