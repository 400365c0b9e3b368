"""Laws of every partition, whatever it does with the labels."""

from fl_sketch.data import partitions
import numpy as np
import pytest
from refusals import refused_calls

LABELS = np.random.Generator(np.random.Philox(7)).integers(10, size=1200)
LABELS.setflags(write=False)
# kind, population, options, whether every sample is used
CASES = {
  'iid': ('iid', 37, {}, True),
  'iid capped': ('iid', 37, {'samples_per_client': 20}, False),
  'five shards': ('label_shards', 40, {}, True),
  'one shard': ('label_shards', 37, {'shards_per_client': 1}, True),
  'one class': ('classes_per_client', 37, {'classes': 1}, True),
  'two classes': ('classes_per_client', 37, {'classes': 2}, True),
  'all classes': ('classes_per_client', 37, {'classes': 10}, True),
  'dirichlet 100': ('dirichlet', 37, {'alpha': 100}, True),
  'dirichlet 0.01': ('dirichlet', 300, {'alpha': 0.01}, True),
  'dirichlet min': ('dirichlet', 60, {'alpha': 0.1, 'min_size': 20}, True),
  'size skew': ('size_skew', 37, {'sigma': 2.0}, True),
  'no skew': ('size_skew', 37, {'sigma': 0.0}, True),
  'sample a client': ('iid', 1200, {}, True),
  'one client': ('iid', 1, {}, True),
  'one each': ('one_each', 1200, {}, True),
}
each_case = pytest.mark.parametrize('case', CASES.values(), ids=CASES.keys())


def make(kind, population, seed=0, **options):
  return partitions.partition(kind, LABELS, population, seed, **options)


def label_counts(p):
  labels_of = [LABELS[p.client(i)] for i in range(p.population)]
  return np.stack([np.bincount(labels, minlength=10) for labels in labels_of])


@each_case
def test_every_sample_at_most_once_and_no_empty_client(case):
  kind, population, options, uses_all = case
  p = make(kind, population, **options)
  assert p.indices.dtype == p.offsets.dtype == np.int64
  assert p.population == population == len(p.sizes)
  assert p.offsets[0] == 0
  assert p.offsets[-1] == len(p.indices)
  assert p.sizes.min() >= 1
  assert len(np.unique(p.indices)) == len(p.indices)
  assert np.all((p.indices >= 0) & (p.indices < len(LABELS)))
  if uses_all:
    assert len(p.indices) == len(LABELS)
  clients = [p.client(i) for i in range(population)]
  np.testing.assert_array_equal(np.concatenate(clients), p.indices)


@each_case
def test_only_the_arguments_decide(case):
  kind, population, options, _ = case
  p, again = (make(kind, population, **options) for _ in range(2))
  np.testing.assert_array_equal(p.indices, again.indices)
  np.testing.assert_array_equal(p.offsets, again.offsets)
  if kind != 'one_each':
    other = make(kind, population, seed=1, **options)
    assert not np.array_equal(p.indices, other.indices)


@pytest.mark.parametrize('population', [1, 7, 600, 1199, 1200])
def test_iid_and_unskewed_sizes_differ_by_at_most_one(population):
  assert np.ptp(make('iid', population).sizes) <= 1
  assert np.ptp(make('size_skew', population, sigma=0.0).sizes) <= 1


def test_a_number_stands_for_labels_that_are_not_looked_at():
  for kind in ('iid', 'size_skew', 'one_each'):
    p = partitions.partition(kind, 1200, 1200 if kind == 'one_each' else 37)
    np.testing.assert_array_equal(p.indices, make(kind, p.population).indices)


@pytest.mark.covers('S1-AppG')
@pytest.mark.parametrize('shards', [1, 2, 5])
def test_label_shards_hold_few_labels_and_have_near_equal_sizes(shards):
  p = make('label_shards', 37, shards_per_client=shards)
  per_shard = len(LABELS) / (37 * shards)
  assert p.sizes.min() >= shards * np.floor(per_shard)
  assert p.sizes.max() <= shards * np.ceil(per_shard)
  # Ten sorted labels have nine borders, each inside at most one shard.
  held = (label_counts(p) > 0).sum(1)
  assert held.sum() <= 37 * shards + 9
  assert held.max() <= shards + 9


@pytest.mark.covers('S2-Fig2')
@pytest.mark.parametrize('classes', [1, 2, 3, 10])
def test_classes_per_client_is_exact_and_as_even_as_the_labels_allow(classes):
  p = make('classes_per_client', 50, classes=classes)
  counts = label_counts(p)
  assert np.all((counts > 0).sum(1) == classes)
  for label in range(10):
    held = counts[:, label]
    assert np.ptp(held[held > 0]) <= 1
  # Taking a place from any label would leave its clients with more samples
  # than now lie in a place of the label that is worst off.
  places, total = (counts > 0).sum(0), counts.sum(0)
  if np.any(places < 50):
    worst = (total / places)[places < 50].max()
    several = places > 1
    assert np.all(total[several] / (places[several] - 1) >= worst)


def test_pairs_of_classes_are_not_always_the_same():
  counts = label_counts(make('classes_per_client', 200, classes=2)) > 0
  assert len(np.unique(counts, axis=0)) > 30  # of 45


def test_dirichlet_skew_grows_as_alpha_falls():
  share = np.bincount(LABELS) / len(LABELS)

  def skew(alpha, seed):  # mean total variation from the overall shares
    counts = label_counts(make('dirichlet', 20, seed, alpha=alpha))
    shares = counts / counts.sum(1, keepdims=True)
    return np.abs(shares - share).sum(1).mean() / 2

  means = [np.mean([skew(a, s) for s in range(5)]) for a in (100, 1, 0.1, 0.01)]
  assert np.all(np.diff(means) > 0.1)
  assert means[0] < 0.15
  assert means[-1] > 0.7


def test_dirichlet_min_size_holds_where_drawing_again_would_never_end():
  p = make('dirichlet', 300, alpha=0.01, min_size=4)
  assert np.all(p.sizes == 4)
  assert make('dirichlet', 100, alpha=0.05, min_size=5).sizes.min() >= 5


def test_size_skew_grows_with_sigma():
  spread = [make('size_skew', 40, sigma=s).sizes.std() for s in (0, 0.5, 1, 2)]
  assert np.all(np.diff(spread) > 0)


@each_case
def test_cap_keeps_the_head_of_every_client(case):
  kind, population, options, _ = case
  p = make(kind, population, **options)
  capped = partitions.cap(p, 3)
  for i in range(0, population, 17):
    np.testing.assert_array_equal(capped.client(i), p.client(i)[:3])


test_unknown_names_and_impossible_numbers_are_refused = refused_calls(
  *[
    (lambda k=kind, n=n: make(k, n), f'population={n} {bound}')
    for kind in partitions.KINDS
    for n, bound in ((1201, 'must be <= samples=1'), (0, 'must be >= 1'))
  ],
  (lambda: make('no', 3), r"kind='no' must be one of \('iid', 'label_"),
  (lambda: make('dirichlet', 3, beta=1), "has no option='beta'"),
  (lambda: make('dirichlet', 3, alpha=0), 'alpha='),
  (lambda: make('size_skew', 3, sigma=-1), 'sigma='),
  (lambda: make('label_shards', 3, shards_per_client=0), 'shards_per_client='),
  (lambda: make('classes_per_client', 3, classes=0), 'classes='),
  (lambda: make('classes_per_client', 5, classes=1), r'5 \* classes=1'),
  (
    lambda: make('classes_per_client', 50, classes=11),
    r'classes=11 must be .* <= 500',
  ),
  (
    lambda: make('dirichlet', 300, min_size=5),
    r'300 \* min_size=5 must be <= sampl',
  ),
  (lambda: make('iid', 3, samples_per_client=0), 'samples_per_client='),
  (lambda: make('iid', 3).client(-1), 'client=-1 must be 0 to 2'),
)
