"""Haddadpour et al.: what stored numbers of every seed say on its words."""

import numpy as np
from papers import catalog
import pytest

RESULTS = {r['name']: r for r, _ in catalog.stored_results()}
STORED = {name: result['seeds'] for name, result in RESULTS.items()}
SMALL, LARGE = '(20, 40)', '(50, 100)'


@pytest.mark.parametrize('name', ['S2-Fig1', 'S2-Fig2'])
def test_the_figures_have_their_panels_as_curves(name):
  """Twelve panels, with a line of each method that is one of the paper's."""
  (picture,) = RESULTS[name]['pictures']
  assert len(picture['panels']) == 12
  for panel in picture['panels']:
    lines = [line for line in panel['lines'] if len(line['x']) >= 8]
    assert len(lines) >= 3 + ('tau = 1' in panel['title'])


def sent(name, *links):
  runs = STORED['S2-Fig1'][name]
  return np.mean([[run[f'total_{x}_bytes'] for x in links] for run in runs], 0)


def test_compression_counts_both_tables_and_both_ways():
  """Catches bills of one table, or of the uplink alone."""
  for name, up, down, both in (
    (f'PRIVIX, tau = 5, {SMALL}', 77.1, 39.7, 52.4),
    (f'PRIVIX, tau = 5, {LARGE}', 12.3, 6.4, 8.4),
    (f'HEAPRIX, tau = 5, {SMALL}', 37.6, 19.4, 25.6),
    (f'HEAPRIX, tau = 5, {LARGE}', 6.1, 3.2, 4.2),
  ):
    links = 'uplink', 'downlink'
    dense, ours = sent('FedSGD, tau = 5', *links), sent(f'FS-{name}', *links)
    assert dense / ours == pytest.approx([up, down], abs=0.05)
    assert dense.sum() / ours.sum() == pytest.approx(both, abs=0.05)


def test_a_count_sketch_gives_inputs_back():
  """Inputs of 12 numbers, to 1 %, of 100: 96 from 16 numbers, none from 8."""
  (attacks,) = (
    r for r, _ in catalog.stored_results() if r['name'] == 'S0-NoHarder'
  )
  shares = {row[0]: row[1:] for row in attacks['tables'][0]['rows']}
  found = [float(x) for x in shares['`count_sketch`']]
  assert found == [0, 0, 0.41, 0.96, 0.99, 1]
