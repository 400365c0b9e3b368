# %% [markdown]
"""# What a private run guarantees.

In a private run each client's contribution is clipped, and noise is added to
the sum, so that what is published hardly depends on any one client. Epsilon and
delta say how little. You will see a config and its privacy statement, epsilon
over the rounds, and the accuracy of private SAFL at two values of epsilon. It
takes less than a minute on two CPU cores.
"""

# %%
import tempfile

from fl_sketch import accounting, runs
from fl_sketch.runs import figures
from fl_sketch.utils import markdown
from IPython.display import Markdown
import numpy as np

# %% [markdown]
# ## From a config to its statement
#
# A config is private if it sets `epsilon`, with `delta` and `clip_norm`. The
# unit is the *client*: all data that it holds. Delta should be well below one
# over the number of clients. `standardize` must be off, since the mean of all
# pixels has no noise. What is clipped is the table, *after* sketching, and the
# noise has 128 numbers, not one for each parameter.

# %%
ROUNDS = 40
PRIVATE = {
  'dataset': 'digits',
  'model_options': {'widths': (32,)},
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
  'delta': 1e-4,
  'eval_every': 5,
}
EPSILONS = 8.0, 1.0
experiments = {
  epsilon: runs.build(PRIVATE | {'epsilon': epsilon}) for epsilon in EPSILONS
}
guarantees = {epsilon: exp.guarantee for epsilon, exp in experiments.items()}
statement = guarantees[8.0].statement.sentence()
Markdown('\n>\n'.join(f'> {line}' for line in statement.split('\n')))

# %% [markdown]
# The noise multiplier z is the standard deviation of the noise on the sum, in
# units of the clip norm. It is calibrated to epsilon. Under Poisson sampling
# each client takes part independently with a secret coin, which needs less
# noise than if every client took part in every round:

# %%
everybody = {
  epsilon: accounting.calibrate_noise_multiplier(
    epsilon=epsilon, delta=PRIVATE['delta'], steps=ROUNDS
  )
  for epsilon in EPSILONS
}
head = 'epsilon', 'z of this config', 'z if every client took part'
cells = [
  (f'{e:g}', f'{guarantees[e].noise_multiplier:.2f}', f'{everybody[e]:.2f}')
  for e in EPSILONS
]
Markdown(markdown.table(head, cells, left=0))


# %% [markdown]
# ## Epsilon and accuracy over the rounds
#
# Every published round adds to epsilon. The rows of a run have it too, often
# as that of a later round, since the accountant is slow; `epsilons` computes it
# for the rounds that it is given.


# %%
def train(exp):
  """The metrics of a run, where the model was tested."""
  with tempfile.TemporaryDirectory() as folder:
    runs.train(exp, folder, progress=False)
    rows = runs.read_metrics(folder)
  return [row for row in rows if 'test_accuracy' in row]


runs = {epsilon: train(exp) for epsilon, exp in experiments.items()}
rounds = [row['round'] + 1 for row in runs[8.0]]  # the first has number 0
exact = {e: guarantee.epsilons(rounds) for e, guarantee in guarantees.items()}
spent, reached = [], []
for epsilon, rows in runs.items():
  name = f'epsilon {epsilon:g} after {ROUNDS} rounds'
  accuracy = [100 * row['test_accuracy'] for row in rows]
  spent.append(figures.Line(name, rounds, exact[epsilon]))
  reached.append(figures.Line(name, rounds, accuracy))
figures.draw(
  [
    figures.Panel('rounds', f'epsilon at delta {PRIVATE["delta"]:g}', spent),
    figures.Panel('rounds', 'test accuracy, %', reached),
  ]
)

# %% [markdown]
# ## What is not guaranteed
#
# * Nothing covers what was chosen by looking at the same data: learning rates,
#   the clip norm, the number of rounds.
# * Under `trust='central'`, the default, the server sees every table.
#   `secure_aggregation` and `local` do not trust it.
# * The files of a simulation (train losses, participants, checkpoints) are for
#   the experimenter. The folder `secret/` has the seed of the noise: whoever
#   reads it can subtract the noise.
# * A sketch alone guarantees nothing: it is linear and public. The notebook
#   `attack` reconstructs images from tables.

# %%
last = {epsilon: rows[-1] for epsilon, rows in runs.items()}
assert guarantees[8.0].noise_multiplier < everybody[8.0] / 2
assert guarantees[1.0].noise_multiplier > guarantees[8.0].noise_multiplier
assert all(np.isclose(row['epsilon'], e, 0.01) for e, row in last.items())
assert all(row['epsilon'] <= e + 1e-6 for e, row in last.items())
assert all(np.all(np.diff(epsilons) > 0) for epsilons in exact.values())
assert last[8.0]['uplink_bytes'] == 4 * 128
assert last[8.0]['test_accuracy'] > 0.75
