"""Simulated clients, clients' own arrays; false alarms have rate < 1e-6."""

import chex
from fl_sketch import runs
from fl_sketch.data import partitions, store, synthetic
from fl_sketch.runs import sampler
import numpy as np
import pytest


@pytest.fixture(scope='module')
def many(tmp_path_factory):
  """Simulated clients of more than one chunk."""
  folder = tmp_path_factory.mktemp('cache') / 'many'
  synthetic.write_simulated(folder, 1500)
  return store.open(folder)


@pytest.mark.parametrize('population', [1, 1030])
def test_simulated_clients_do_not_depend_on_how_many_there_are(
  population, many, tmp_path
):
  """Catches draws of a client that others shift."""
  synthetic.write_simulated(tmp_path / 'some', population)
  some = store.open(tmp_path / 'some')
  np.testing.assert_array_equal(some.offsets, many.offsets[: population + 1])
  held = some.partition.samples
  first = {name: x[:held] for name, x in many.train.items()}
  chex.assert_trees_all_equal((some.train, some.test), (first, many.test))


def test_simulated_clients_are_ragged_and_labelled_by_the_teacher(many):
  sizes, x, y = many.partition.sizes, many.train['x'], many.train['y']
  assert (sizes.min(), sizes.max()) == (1, 39)
  # Uniform on 1 to 39; six standard errors.
  assert abs(sizes.mean() - 20) < 6 * np.sqrt((39**2 - 1) / 12 / 1500)
  scores = (np.asarray(x, np.float32) - 127) @ synthetic.teacher()
  np.testing.assert_array_equal(scores, np.rint(scores))
  assert 0.8 < np.mean(scores.argmax(1) == y) < 0.9
  means = np.stack([x[many.partition.client(i)].mean(0) for i in range(500)])
  # Shifts spread the means of clients; noise alone would make this about 1.
  assert np.mean(means.var(0)) > 1.3 * np.mean(x.var(0) * np.mean(1 / sizes))


def test_the_simulated_store_is_made_once(tmp_path, monkeypatch):
  """Catches a store that each start writes, or that another start writes."""
  write = synthetic.write_simulated

  def at_once(folder, population):
    write(folder, population)
    write(folder, population)  # what another process does

  monkeypatch.setenv('FL_SKETCH_CACHE', str(tmp_path))
  monkeypatch.setattr(synthetic, 'write_simulated', at_once)
  assert synthetic.simulated(3).partition.population == 3
  monkeypatch.setattr(synthetic, 'write_simulated', None)
  synthetic.simulated(3)


def test_a_run_of_a_store_is_that_of_the_same_arrays_in_memory(tmp_path):
  """Catches rows of other clients, and a store that is held in memory."""
  synthetic.write_simulated(tmp_path / 'clients', 40)
  exp = runs.build({
    'dataset': 'store', 'dataset_options': {'folder': f'{tmp_path}/clients'},
    'model': 'linear', 'population': 40, 'cohort': 12, 'weights': 'samples',
  })  # fmt: skip
  assert store.is_mapped(exp.data)
  offsets = exp.partition.offsets
  memory = partitions.Partition(np.arange(offsets[-1]), offsets)
  arrays = {name: np.array(x) for name, x in exp.data.items()}
  sample = sampler.sampler(exp.config, memory)
  for r in range(3):
    a, b = exp.sample(r), sample(r)
    chex.assert_trees_all_equal(a, b)
    batches = exp.fetch(exp.data, a.batches)
    assert not store.is_mapped(batches)
    chex.assert_trees_all_equal(batches, exp.fetch(arrays, b.batches))
