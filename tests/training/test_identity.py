"""What a record of a problem holds, and what it does not depend on."""

import json

from fl_sketch import experiment, models
from fl_sketch.experiment import config
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.training import identity, same_run
from fl_sketch.utils import digests
import jax
import jax.numpy as jnp
import numpy as np
from own_problem import CLIENTS, PRIVATE, build, store_of
import registered
import runs


def twice(slope):
  fn = jax.custom_vjp(lambda x: 2 * x)
  fn.defvjp(lambda x: (2 * x, None), lambda _, g: (slope * g,))
  return jax.value_and_grad(lambda w, _: fn(w).sum())


def test_gradients_that_no_loss_shows_are_seen():
  """Catches another rule of a gradient under the same forward pass."""
  x = CLIENTS[0]['x']
  records = [identity.record([(twice(k), {})], x, {}) for k in (2, 3)]
  assert same_run.differences(*records).keys() == {'model and loss'}


FRESH = """
import json
from tests.training import test_identity
print(json.dumps([*map(test_identity.identity.of, test_identity.two())]))
"""


def two():
  """Experiments of a function with constants in loops, and of a module."""
  return build(PRIVATE), experiment.build(runs.SMALL, draw=False)


def test_a_fresh_process_makes_the_same_records():
  """Catches addresses, orders of sets and caches in a digest."""
  mesh = mesh_lib.cohort_mesh(1)  # there is one device
  there = json.loads(runs.python('-c', FRESH, PYTHONHASHSEED='7'))
  here = [identity.of(exp, mesh) for exp in two()]
  for record in (*there, *here):
    record.pop('device')
  assert there == here


def dropped(num_classes, rate=0.1, scale=1.0):
  """A linear model whose inputs drop out, with a hyperparameter."""

  def apply(params, x, key):
    x = x.reshape(len(x), -1)
    if key is not None:
      x = jnp.where(jax.random.bernoulli(key, rate, x.shape), 0.0, x)
    return scale * x @ params

  return models.Model(lambda key, x: jnp.zeros((64, num_classes)), apply)


def test_dropout_of_a_model_with_hyperparameters_is_seen():
  """Catches a loss that is never traced with a key."""
  fields = runs.SMALL | {'model': 'own_dropped'}
  with registered.forgotten():
    models.register(dropped, name='own_dropped', hyper=('scale',))
    records = [
      identity.of(experiment.build(fields | {'model_options': options}))
      for options in ({'scale': 2.0}, {'scale': 2.0, 'rate': 0.2})
    ]
  assert same_run.differences(*records).keys() == {'model and loss'}


def test_every_file_of_the_source_counts(tmp_path, monkeypatch):
  """Catches an upgrade under the same version number."""
  package = tmp_path / 'fl_sketch' / 'utils'
  package.mkdir(parents=True)
  monkeypatch.setattr(digests, 'ROOT', package.parent)
  of_source = digests.of_source.__wrapped__
  found = [of_source()]
  for name, text in (('a.py', ''), ('a.py', '1'), ('b.py', ''), ('c.txt', '')):
    (package / name).write_text(text)
    found.append(of_source())
  (package / 'b.py').rename(package / 'd.py')
  found.append(of_source())
  assert len({*found}) == len(found) - 1
  assert found[3] == found[4]  # c.txt is no source


def test_a_store_is_read_in_private_runs_alone(tmp_path, monkeypatch):
  """Catches a private run on a store that was changed under its times."""
  x = np.arange(48, dtype=np.uint8).reshape(12, 4)
  private = store_of(tmp_path / 'store', x, PRIVATE)
  plain = private._replace(guarantee=None)
  read, of_array = [], digests.of_array
  note = lambda x: read.append(isinstance(x, np.memmap)) or of_array(x)
  monkeypatch.setattr(digests, 'of_array', note)
  want = identity.of(plain)
  assert not any(read)
  found = identity.of(private)
  assert any(read)
  assert found.pop('noise multiplier') == 1
  assert found.pop('one round')  # which an ordinary run does not trace
  assert found == want
  in_memory = plain._replace(data={k: v[:] for k, v in plain.data.items()})
  assert identity.of(in_memory) == want


def test_hyperparameters_are_no_part_of_a_round():
  """Catches a resumed run, or a point of a sweep, that is refused."""
  fields = PRIVATE | {
    'noise_multiplier': 3.0, 'clip_norm': 0.5, 'client_lr': 0.3, 'rounds': 9,
    'eval_every': 3, 'rounds_per_dispatch': 4, 'seed': 1,
  }  # fmt: skip
  exp = build(PRIVATE)
  first, other = identity.of(exp), identity.of(build(fields))
  assert first['one round'] == other['one round']
  point = experiment.reconfigured(exp, config.Config(**fields))
  assert identity.of(point) == other
