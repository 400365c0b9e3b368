import itertools

from fl_sketch.algorithms import topology
import numpy as np
import pytest
from refusals import refused

GRAPHS = {
  **{f'ring-{n}': topology.ring(n) for n in (3, 8, 9)},
  **{f'grid-{a}x{b}': topology.grid(a, b) for a, b in ((4, 4), (1, 6), (1, 1))},
  'star-7': topology.star(7),
  'complete-6': topology.complete(6),
  'edges': topology.from_edges(
    6, [(5, 1), (1, 3), (3, 5), (3, 5), (3, 0), (0, 4), (4, 2)]
  ),
}


def edges(graph):
  return [tuple(pair) for pair in np.argwhere(np.triu(graph)).tolist()]


def second_eigenvalue(mixing):
  """The largest modulus of an eigenvalue but the first."""
  moduli = np.sort(np.abs(np.linalg.eigvalsh(mixing)))
  return moduli[-2] if len(mixing) > 1 else 0.0


def test_families_have_the_edges_of_their_definitions():
  near = lambda rows, cols: [
    (a * cols + b, c * cols + d)
    for a, b, c, d in itertools.product(*[range(rows), range(cols)] * 2)
    if (a, b) < (c, d) and abs(a - c) + abs(b - d) == 1
  ]
  assert edges(topology.make('ring', 4)) == [(0, 1), (0, 3), (1, 2), (2, 3)]
  assert edges(topology.make('star', 4)) == [(0, 1), (0, 2), (0, 3)]
  assert edges(topology.make('path', 4)) == [(0, 1), (1, 2), (2, 3)]
  for n, (rows, cols) in {4: (2, 2), 12: (3, 4), 14: (2, 7)}.items():
    assert edges(topology.make('grid', n)) == near(rows, cols)
  pairs = [*itertools.combinations(range(5), 2)]
  assert edges(topology.make('complete', 5)) == pairs


@pytest.mark.parametrize('graph', GRAPHS.values(), ids=GRAPHS)
def test_metropolis_is_doubly_stochastic_on_the_graph_with_a_gap(graph):
  mixing = topology.metropolis(graph)
  n = len(mixing)
  np.testing.assert_array_equal(mixing, mixing.T)
  np.testing.assert_allclose(mixing.sum(0), 1, rtol=1e-14)
  np.testing.assert_array_equal(mixing > 0, graph | np.eye(n, dtype=bool))
  degree = graph.sum(1)
  for i, j in edges(graph):
    assert mixing[i, j] == 1 / (1 + max(degree[i], degree[j]))
  assert second_eigenvalue(mixing) < 1 - 1e-3


test_what_is_no_graph_is_refused = refused(
  lambda call: call(),
  (lambda: topology.from_edges(2, [(-1, 0)]), 'edge'),
  (lambda: topology.from_edges(4, [(0, 1), (2, 3)]), 'parts'),
)
