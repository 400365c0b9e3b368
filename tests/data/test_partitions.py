"""Laws of every partition, whatever it does with the labels."""

from fl_sketch.data import partitions
import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

LABELS = np.random.Generator(np.random.Philox(7)).integers(10, size=1200)
LABELS.setflags(write=False)
OPTIONS = {
  'iid': {}, 'one_each': {},
  'label_shards': {'shards_per_client': st.integers(1, 5)},
  'classes_per_client': {'classes': st.integers(1, 4)},
  'dirichlet': {'alpha': st.floats(0.01, 100)},
  'size_skew': {'sigma': st.floats(0, 3)},
}  # fmt: skip


def make(kind, population, seed=0, **options):
  return partitions.partition(kind, LABELS, population, seed, **options)


def label_counts(p):
  labels_of = [LABELS[p.client(i)] for i in range(p.population)]
  return np.stack([np.bincount(labels, minlength=10) for labels in labels_of])


@st.composite
def drawn(draw):
  """A kind, labels, a population and options that suit it."""
  kind = draw(st.sampled_from(sorted(OPTIONS)))
  labels = np.array(draw(st.lists(st.integers(0, 4), min_size=1, max_size=60)))
  population = draw(st.integers(1, len(labels)))
  options = draw(st.fixed_dictionaries(OPTIONS[kind]))
  return kind, labels, population, options


@hypothesis.settings(deadline=None, derandomize=True, max_examples=120)
@hypothesis.given(case=drawn(), seed=st.integers(0, 9), most=st.integers(1, 9))
def test_every_sample_at_most_once_and_no_empty_client(case, seed, most):
  """Catches lost or doubled samples, empty clients, and other randomness."""
  kind, labels, population, options = case
  try:
    p = partitions.partition(kind, labels, population, seed, **options)
  except ValueError as error:  # fewer samples, or pairs of client and label
    assert 'population=' in str(error)  # noqa: PT017
    assert any(name in str(error) for name in options)  # noqa: PT017
    return
  assert p.indices.dtype == p.offsets.dtype == np.int64
  assert p.population == population == len(p.sizes)
  assert p.offsets[0] == 0
  assert p.offsets[-1] == len(p.indices)
  assert p.sizes.min() >= 1
  whole = np.arange(population if kind == 'one_each' else len(labels))
  np.testing.assert_array_equal(np.sort(p.indices), whole)
  clients = [p.client(i) for i in range(population)]
  np.testing.assert_array_equal(np.concatenate(clients), p.indices)
  again = partitions.partition(kind, labels, population, seed, **options)
  np.testing.assert_array_equal(p.indices, again.indices)
  np.testing.assert_array_equal(p.offsets, again.offsets)
  options['samples_per_client'] = most
  capped = partitions.partition(kind, labels, population, seed, **options)
  for i, client in enumerate(clients):
    np.testing.assert_array_equal(capped.client(i), client[:most])
  if kind == 'iid' or options.get('sigma') == 0:
    assert np.ptp(p.sizes) <= 1
  if kind not in partitions.BY_LABEL:  # a number stands for labels
    number = len(labels)
    p = partitions.partition(kind, number, population, seed, **options)
    np.testing.assert_array_equal(p.indices, capped.indices)


@pytest.mark.parametrize('kind', [x for x in OPTIONS if x != 'one_each'])
def test_the_seed_matters(kind):
  """Catches a partition that ignores its seed."""
  p, other = (make(kind, 37, seed=seed) for seed in (0, 1))
  assert not np.array_equal(p.indices, other.indices)


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
  if classes == 2:  # pairs are not always the same
    assert len(np.unique(counts > 0, axis=0)) > 20  # of 45


def test_skew_grows_as_alpha_falls_and_as_sigma_grows():
  """Catches a parameter that is inverted or ignored."""
  share = np.bincount(LABELS) / len(LABELS)

  def skew(alpha, seed):  # mean total variation from the overall shares
    counts = label_counts(make('dirichlet', 20, seed, alpha=alpha))
    shares = counts / counts.sum(1, keepdims=True)
    return np.abs(shares - share).sum(1).mean() / 2

  means = [np.mean([skew(a, s) for s in range(5)]) for a in (100, 1, 0.1, 0.01)]
  assert np.all(np.diff(means) > 0.1)
  assert means[0] < 0.15
  assert means[-1] > 0.7
  spread = [make('size_skew', 40, sigma=s).sizes.std() for s in (0, 0.5, 1, 2)]
  assert np.all(np.diff(spread) > 0)
