"""A problem of arrays and a function, and starts of its run in a folder."""

import functools

from fl_sketch import runs
from fl_sketch.data import store
from fl_sketch.runs import config, custom, noise_secret, same_run, workdir
import jax
import jax.numpy as jnp
import numpy as np

_X = np.arange(48, dtype=np.float32).reshape(12, 4) % 7
CLIENTS = [{'x': _X[i : i + 4], 'y': _X[i : i + 4, 0]} for i in (0, 4, 8)]
START = {'w': np.linspace(-1, 1, 4, dtype=np.float32)}
SHIFT = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)
FIELDS = {'population': 3, 'cohort': 3, 'rounds': 2, 'standardize': False}
PRIVATE = FIELDS | {
  'algorithm': 'dp_fedavg', 'sampling': 'poisson', 'cohort': 2,
  'noise_multiplier': 1.0, 'clip_norm': 1.0, 'delta': 1e-2,
}  # fmt: skip


def values(params, batch, activation=jax.nn.relu, shift=SHIFT, scale=1.0):
  guess = activation(batch['x'] @ params['w'] + shift[0, 0])
  for row in shift:  # captured by a loop's body
    guess = jax.lax.fori_loop(0, 2, lambda _, g, row=row: g + row[0], guess)
  return {'loss': scale * jnp.square(guess - batch['y'])}


def changed(x, index=-1):
  return np.concatenate([x[:index], x[index:] + 1])


ONE_IMAGE = [*CLIENTS[:2], CLIENTS[2] | {'x': changed(CLIENTS[2]['x'])}]


def build(
  fields=FIELDS, values_fn=values, start=START, clients=CLIENTS,
  test=CLIENTS[0], **more,
):  # fmt: skip
  task = custom.problem((start, values_fn), clients, test)
  partition = more.pop('partition', task.partition)
  c = config.Config(**fields)
  return runs.assemble(c, task._replace(**more), partition)


@functools.cache
def private():
  """The experiment of `PRIVATE`, which tests share."""
  return build(PRIVATE)


def record(exp, _known={}):  # noqa: B006
  """`same_run.problem_of`, once of each experiment: it traces a round."""
  _, found = _known.setdefault(id(exp), (exp, {}))
  if not found:
    found.update(same_run.problem_of(exp))
  return dict(found)


def begin(folder, exp):
  """What a run leaves that was killed before its first checkpoint."""
  run = workdir.Workdir(folder, exp.config, record(exp))
  if same_run.has_secret(exp.config):
    noise_secret.keep(folder, resumed=False)
  run.begin(0)
  run.write({'round': 0})
  run.close()


def start(folder, exp):
  workdir.Workdir(folder, exp.config, record(exp)).close()


def store_of(folder, x, fields):
  """The experiment of a store of these samples, which it writes."""
  arrays = {'x': x, 'y': np.arange(12) % 2}
  store.write(folder, [(np.full(3, 4), arrays)], arrays, num_classes=2)
  options = {'dataset_options': {'folder': str(folder)}, 'dataset': 'store'}
  options |= {'model': 'linear', 'model_options': None}
  return runs.build(fields | options)
