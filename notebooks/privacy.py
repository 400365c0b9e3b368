# %% [markdown]
"""# What a private run guarantees.

Clip what each client sends, add it up, add one draw of noise: then what is
published hardly depends on any one client. How little is (epsilon, delta). This
notebook calibrates the noise, follows epsilon over the rounds, trains private
SAFL, whose noise is in the tables, and says what all of it does not promise.
"""

# %%
import os
import tempfile

from fl_sketch import experiment, reporting, training
from fl_sketch.data import sources
from fl_sketch.privacy import accounting
import matplotlib.pyplot as plt
import numpy as np

QUICK = bool(os.environ.get('FL_SKETCH_QUICK'))  # CI plays fewer rounds

# %% [markdown]
# ## From epsilon to noise
#
# The noise multiplier z is the deviation of the noise on the sum, in units of
# the clip norm. If each client participates independently with a secret coin,
# much less noise is needed: *Poisson sampling* amplifies privacy.

# %%
ROUNDS, DELTA = (40, 1e-4) if QUICK else (150, 1e-4)
POISSON = {
  'sampling': accounting.Sampling.POISSON,
  'sampling_probability': 0.25,
}
alone, sampled = (
  accounting.calibrate_noise_multiplier(
    epsilon=8.0, delta=DELTA, steps=ROUNDS, **options
  )
  for options in ({}, POISSON)
)
print(f'epsilon 8 after {ROUNDS} rounds, everybody in each: z = {alone:.2f}')
print(f'a coin of 1/4 in each: z = {sampled:.2f}')

# %% [markdown]
# Epsilon grows with every round that is published. A number z alone means
# nothing: say the rounds, the sampling and delta with it.

# %%
some = np.unique(np.linspace(1, ROUNDS, 5).astype(int))
plt.figure(figsize=(5, 3))
for z in (1.0, 2.0):
  mechanism = accounting.GaussianMechanism(
    noise_multiplier=z, steps=ROUNDS, **POISSON
  )
  curve = accounting.epsilon_curve(mechanism, some, delta=DELTA)
  plt.plot(some, curve, marker='.', label=f'z = {z}')
plt.xlabel('round')
plt.ylabel(f'epsilon at delta {DELTA:g}')
plt.legend()
plt.show()

# %% [markdown]
# ## A private run
#
# A config is private if it sets `epsilon`, with `delta` and `clip_norm`. The
# unit is the *client*: all that it holds. Delta should be well below one over
# the number of clients. `standardize` must be off, as a mean of all pixels has
# no noise. Data: MNIST where it is on disk, else scikit-learn's digits.

# %%
dataset = 'digits'
if not QUICK:
  try:
    dataset = sources.load('mnist').name
  except sources.DataError as error:
    print(error)

PRIVATE = {
  'dataset': dataset,
  'widths': (32,),
  'standardize': False,
  'population': 400,
  'cohort': 100,
  'sampling': 'poisson',
  'rounds': ROUNDS,
  'local_steps': 5,
  'batch_size': 4,
  'client_lr': 0.3,
  'algorithm': 'safl',
  'sketch': {'kind': 'block_cyclic', 'size': 128},
  'server_optimizer': 'adam',
  'server_lr': 0.03,
  'clip_norm': 0.5,
  'delta': DELTA,
  'eval_every': 5,
}

# %% [markdown]
# What is bounded is what is sent: a client's table is clipped *after* it was
# sketched. The noise has 128 numbers, not one for each parameter.

# %%
rows, guarantees = {}, {}
for epsilon in (8.0, 1.0):
  exp = experiment.build(PRIVATE | {'epsilon': epsilon})
  with tempfile.TemporaryDirectory() as folder:
    training.train(exp, folder, progress=False)
    rows[epsilon] = reporting.read_metrics(folder)
  guarantees[epsilon] = exp.guarantee
print(guarantees[8.0].statement.sentence())

# %%
plt.figure(figsize=(5, 3))
for epsilon, history in rows.items():
  tested = [row for row in history if 'test_accuracy' in row]
  spent = [row['epsilon'] for row in tested]
  accuracy = [row['test_accuracy'] for row in tested]
  plt.plot(spent, accuracy, marker='.', label=f'ends at {epsilon:g}')
plt.xlabel('epsilon spent')
plt.ylabel('test accuracy')
plt.legend()
plt.show()
for epsilon, history in rows.items():
  accuracy = history[-1]['test_accuracy']
  print(f'epsilon {epsilon:g}: {accuracy:.1%}')

# %% [markdown]
# ## What is not guaranteed
#
# * Nothing about what was chosen by looking at the same data: rates, clip norm,
#   the number of rounds. The statement lists these caveats.
# * Nothing against the server itself under `trust='central'`: it sees every
#   table. `secure_aggregation` and `local` need no such trust.
# * Nothing about the files of a simulation: train losses, participants and
#   checkpoints' random states are for the experimenter.
# * A sketch is no mechanism. Linear and public, it hides nothing by itself:
#   the notebook on attacks reads images out of tables.
# * The folder `secret/` holds the seed of the noise: whoever reads it can
#   subtract the noise.

# %%
final = {epsilon: history[-1] for epsilon, history in rows.items()}
assert sampled < alone / 2
assert all(row['epsilon'] <= eps + 1e-6 for eps, row in final.items())
assert all(row['epsilon'] > eps - 0.05 for eps, row in final.items())
assert guarantees[1.0].noise_multiplier > guarantees[8.0].noise_multiplier
assert np.all(np.diff([row['epsilon'] for row in rows[8.0]]) >= 0)
assert final[8.0]['uplink_bytes'] == 4 * 128
assert final[8.0]['test_accuracy'] > 0.75
