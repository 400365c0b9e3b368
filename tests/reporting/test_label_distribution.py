"""Pictures are drawn for any number of clients and labels."""

from fl_sketch.data import partitions
from fl_sketch.reporting import label_distribution
import numpy as np
import pytest


@pytest.mark.parametrize(('population', 'num_classes'), [(5, 2), (61, 30)])
def test_label_distribution_is_a_png(population, num_classes, tmp_path):
  labels = np.arange(6000) % num_classes
  p = partitions.partition('dirichlet', labels, population, alpha=0.3)
  counts = label_distribution._counts(labels, p, num_classes)
  np.testing.assert_array_equal(counts.sum(0), np.bincount(labels))
  np.testing.assert_array_equal(counts.sum(1), p.sizes)
  path = tmp_path / 'labels.png'
  label_distribution.draw(labels, p, path, num_classes)
  assert path.read_bytes().startswith(b'\x89PNG')


def test_label_distribution_refuses_labels_out_of_range(tmp_path):
  p = partitions.partition('iid', 30, 3)
  with pytest.raises(
    ValueError, match=r'Labels are 0 to 29, not 0 to num_classes=10 - 1'
  ):
    label_distribution.draw(np.arange(30), p, tmp_path / 'x.png', 10)
