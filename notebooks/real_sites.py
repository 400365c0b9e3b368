# %% [markdown]
"""# From a simulation to real sites.

Two sites hold their own images. You will see a config simulated, then the same
config between the two sites: their data, the parameters, a site that is cut off
and comes back, and the bytes of messages beside the bytes that a run counts.
Here the sites are functions of this process; Flower or NVFlare carry the same
messages between machines. It takes less than a minute on two CPU cores.
"""

# %%
import contextlib
import functools
import pathlib
import sys
import tempfile

from fl_sketch import runs
from fl_sketch.runs import config, figures
from fl_sketch.sites import federation, own_data, site, wire
from fl_sketch.sites.transport import LocalSites
from jax import flatten_util
import numpy as np

work = pathlib.Path(tempfile.mkdtemp())

# %% [markdown]
# ## The simulation
#
# SAFL with a sketch of a sixteenth of the model, on two clients.

# %%
c = config.Config(
  dataset='digits', model='mlp', population=2, cohort=2, rounds=20,
  local_steps=5, batch_size=16, client_lr=0.3, eval_every=2,
  rounds_per_dispatch=1, algorithm='safl', sketch='block_cyclic(size=301)',
  server_optimizer='adam', server_lr=0.02,
)  # fmt: skip
exp = runs.build(c)
simulated = runs.train(exp, progress=False)
print(f'test accuracy {100 * simulated.row["test_accuracy"]:.1f} %')

# %% [markdown]
# ## What a site holds
#
# A folder with train.npz: arrays of its samples, by the names of the dataset.
# To compare, each site gets what its client held in the simulation.

# %%
folders = [work / 'data-0', work / 'data-1']
for number, folder in enumerate(folders):
  own = exp.partition.client(number)
  folder.mkdir()
  np.savez(folder / 'train.npz', **{k: x[own] for k, x in exp.data.items()})

# %% [markdown]
# ## The same config over sites
#
# `site.client` reads the data and keeps the state of a site; its method
# `handle` turns a request into a reply. `federation.run` is `runs.train` with
# rounds over messages: the server never sees the data. In place of a network
# there is a function of ours, which counts bytes, and cuts site 1 off in some
# rounds.


# %%
def over_sites(name, cut=()):
  """The result of a run; bytes by round, up and down; rounds of site 1."""
  sent, worked, sites = np.zeros((c.rounds + 1, 2), int), [], {}

  def carry(client, request):
    asked = wire.decode_request(request)
    if asked.kind == wire.RequestKind.WORK and asked.client == 1:
      if asked.round in cut:
        raise ConnectionError
      worked.append(asked.round)
    reply = client.handle(request)
    sent[asked.round] += len(reply), len(request)
    return reply

  for i, where in enumerate(map(str, folders)):
    problem = functools.partial(own_data.of_site, client=i, where=where)
    client = site.client(c, i, problem, work / name / f'site-{i}')
    sites[f'site {i}'] = functools.partial(carry, client)
  with contextlib.redirect_stderr(sys.stdout):  # what it says at its end
    result = federation.run(c, LocalSites(sites), work / name, progress=False)
  return result, sent, worked


def distance(a, b):
  """The largest difference of two runs' parameters."""
  x, y = (flatten_util.ravel_pytree(run.state.params)[0] for run in (a, b))
  return float(abs(x - y).max())


deployed, sent, _ = over_sites('deployed')
print(f'largest difference of parameters {distance(deployed, simulated):.1e}')

# %% [markdown]
# The parameters are equal up to rounding, which depends on the compiler's
# options: the simulation computes both clients in one program.
#
# ## A site that is cut off
#
# Site 1 does not answer in round 8. The server does not wait for it in the next
# round, but greets it again. Then the site gets what was announced meanwhile,
# and takes part. The run ends as a simulation in which client 1 was absent.

# %%
interrupted, _, worked = over_sites('interrupted', cut=(8,))
absent = sorted({*range(c.rounds)} - {*worked})
print('site 1 was absent in rounds', absent)


def sample(number, seed=None):
  """The cohort of a round, without client 1 where it was absent."""
  cohort = exp.sample(number, seed)
  there = (cohort.ids != 1) | (number not in absent)
  return cohort._replace(weight=cohort.weight * there)


without = runs.train(exp._replace(sample=sample), progress=False)
print(f'largest difference of parameters {distance(interrupted, without):.1e}')

# %% [markdown]
# ## Bytes
#
# A request has a header, and what the server announced in rounds that the site
# does not know; a reply has a header and the table. Engines add their own
# bytes. The run itself counts tables alone, as the simulation does.

# %%
up, down = sent.sum(0)
row, tables = deployed.row, c.rounds * 2 * 4 * 301
print(f'up:   {up:,} bytes of messages, {tables:,} of tables')
print(f'down: {down:,} bytes of messages, {tables:,} of tables')
rows = runs.read_metrics(work / 'deployed')
rows = [row for row in rows if 'test_accuracy' in row]
accuracy = [100 * row['test_accuracy'] for row in rows]
done = np.array([row['round'] for row in rows])
lines = [
  figures.Line('messages', sent.sum(1).cumsum()[done] / 1e3, accuracy),
  figures.Line('tables', 2 * tables * done / c.rounds / 1e3, accuracy),
]
figures.draw([figures.Panel('kB up and down', 'test accuracy, %', lines)])

# %%
assert distance(deployed, simulated) < 1e-6
assert distance(interrupted, without) < 1e-6
assert 8 in absent
assert row['total_uplink_bytes'] == row['total_downlink_bytes'] == tables
assert tables < min(up, down) <= max(up, down) < 1.2 * tables
assert row['test_accuracy'] > 0.85
