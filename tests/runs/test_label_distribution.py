"""Pictures are drawn for any number of clients and labels."""

from fl_sketch.data import partitions
from fl_sketch.runs import figures, plots
import numpy as np
import pytest


@pytest.mark.parametrize(('population', 'num_classes'), [(5, 2), (501, 30)])
def test_label_distribution_has_the_shares(
  population, num_classes, tmp_path, monkeypatch
):
  """Catches labels of other clients, and shares of all samples."""
  axes = []
  new_axes = figures.new_axes
  monkeypatch.setattr(
    figures,
    'new_axes',
    lambda *names: axes.append(new_axes(*names)) or axes[-1],
  )
  labels = np.arange(6000) % num_classes
  p = partitions.partition('dirichlet', labels, population, alpha=0.3)
  path = tmp_path / 'labels.png'
  plots.draw_labels(labels, p, path, num_classes)
  assert path.read_bytes().startswith(b'\x89PNG')
  shares = axes[0].images[0].get_array()
  assert shares.shape == (num_classes, min(population, 500))
  held = [labels[p.client(i)] for i in range(population)]
  of_first = sorted((y == 0).mean() if len(y) else 0.0 for y in held)
  if population < 500:
    np.testing.assert_allclose(sorted(shares[0]), of_first)
