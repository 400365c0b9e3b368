"""Clients' data are looked at once: every form of them, and what is refused."""

import chex
from fl_sketch import data, runs
from fl_sketch.data import own_arrays, partitions, store
from fl_sketch.runs import config, custom
import numpy as np
import pytest
from refusals import refused


def arrays(samples, **other):
  rng = np.random.default_rng(samples)
  x, y = rng.normal(size=(samples, 3)), rng.integers(0, 2, samples)
  return {'x': x.astype(np.float32), 'y': y} | other


def rows(arrays):
  return [*zip(arrays['x'], arrays['y'], strict=True)]


class Table(list):
  """As a Hugging Face `Dataset`: a slice has the columns, by name."""

  def with_format(self, kind):
    return self if kind == 'numpy' else None

  def __getitem__(self, i):
    columns = zip(*super().__getitem__(i), strict=True)
    return dict(zip('xy', columns, strict=True))


FORMS = [
  rows,  # as a torch `Dataset` has them
  lambda arrays: Table(rows(arrays)),
  lambda arrays: tuple(arrays.values()),
  lambda arrays: [{'x': x, 'y': y} for x, y in rows(arrays)],
]


@pytest.mark.parametrize('form', FORMS, ids='0123')
def test_every_form_of_data_is_its_arrays(form):
  """Catches a form that is refused, or rows that are taken for columns."""
  clients = {'anna': arrays(2), 'emil': arrays(5)}
  given = {name: form(x) for name, x in clients.items()}
  made = data.from_clients(given, form(arrays(3)))
  want = data.from_clients(iter(clients.values()), arrays(3))
  chex.assert_trees_all_equal((made.train, made.test), (want.train, want.test))
  np.testing.assert_array_equal(made.partition.offsets, [0, 2, 7])


WORDS = arrays(2, y=np.array(['no', 'yes']))
RAGGED = arrays(2, x=[[1, 2], [3]])
test_what_is_no_data_is_refused = refused(
  lambda clients: data.from_clients(clients, arrays(3)),
  ({'emil': WORDS}, 'emil'), ([arrays(2), RAGGED], 'client 1'),
  ([arrays(2)['x']], 'client 0'), ([arrays(2), arrays(0)], 'client 1'),
  # JAX would wrap the first, and make the second infinite.
  ([arrays(2), arrays(2, y=np.array([0, 2**40]))], 'client 1.* int32'),
  ([arrays(2, x=np.full((2, 3), 1e300))], 'client 0.* float32'),
)  # fmt: skip


def spoiled(samples, value=np.nan, row=0):
  x = arrays(samples)['x']
  x[row, 1:] = value
  return arrays(samples, x=x)


def test_numbers_that_are_not_finite_are_refused():
  """Catches a NaN that a round rejects as a byzantine client."""
  loss = lambda params, batch: {'loss': batch['x'].sum(1) * params}
  for clients, test, who in (
    ({'a': arrays(2), 'b': spoiled(3)}, arrays(3), "client 'b'"),
    ([arrays(2)], spoiled(2), 'the test'),
  ):
    problem = custom.problem((0.0, loss), clients, test)
    c = config.Config(population=len(clients), cohort=1, rounds=1)
    with pytest.raises(ValueError, match=who):
      runs.assemble(c, problem, problem.partition)


def test_samples_that_nobody_holds_may_be_anything():
  """Catches owners that are looked up by the wrong index."""
  x = np.array([0, 0, np.nan, np.inf])
  own_arrays.check_finite(
    {'x': x}, partitions.Partition(np.array([1, 0]), np.array([0, 2]))
  )
  part = partitions.Partition(np.array([0, 3, 1]), np.array([0, 1, 3]))
  with pytest.raises(ValueError, match=r'^client 1: '):
    own_arrays.check_finite({'x': x}, part)


@pytest.mark.parametrize('ids', [None, 'abcd'])
def test_a_store_is_looked_at_when_it_is_written(tmp_path, ids):
  """Catches a store whose NaN no start would see."""
  first, last = ([*ids[:2]], [*ids[2:]]) if ids else (None, None)
  chunks = [
    store.Chunk([1, 2], arrays(3), ids=first),
    store.Chunk([2, 3], spoiled(5, np.inf, -1), ids=last),
  ]
  with pytest.raises(ValueError, match="client 'd'" if ids else 'client 3'):
    store.write(tmp_path / 'store', chunks, arrays(3), None)
