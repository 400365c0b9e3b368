"""Communication graphs of decentralised clients, averages over them, and costs.

Sketches are linear, so any average over a graph can replace the server's mean.
`tree_all_reduce` and `flooding` are exact; `gossip` and `chebyshev` shrink the
disagreement of the clients by a known factor. A mixing matrix is
f64[n, n], symmetric with rows that sum to 1, and acts on the clients' payloads
f64[n, b] from the left. All is NumPy on the host, and every function raises
ValueError for an n, b or number of steps too small for it, and TypeError for
what is no number.
"""

import math
from typing import NamedTuple

from fl_sketch.utils import checks
import numpy as np
import scipy  # its packages load on first use


class Graph(NamedTuple):
  """A connected graph; adjacency is bool[n, n], symmetric, no self loops."""

  name: str
  adjacency: np.ndarray


class Cost(NamedTuple):
  """Communication cost of one average over a graph.

  Attributes:
    hops: sequential rounds of messages.
    traffic: int64[n, n], the floats that client i sends to client j in all.
  """

  hops: int
  traffic: np.ndarray

  @property
  def sent(self) -> np.ndarray:
    """int64[n], the floats that each client sends."""
    return self.traffic.sum(1)

  @property
  def total(self) -> int:
    """The floats over all edges, both directions."""
    return int(self.traffic.sum())


def from_edges(n: int, edges, name: str = 'edges') -> Graph:
  """The graph of n clients with these edges.

  >>> from_edges(3, [(0, 1), (2, 1)]).adjacency.sum(1).tolist()
  [1, 2, 1]

  Args:
    n: number of clients.
    edges: int[m, 2]; an edge may stand in either direction, or in both.
    name: for reports.

  Raises:
    ValueError: an edge is no pair of clients, or the graph is not connected.
  """
  checks.at_least('n', n, 1)
  adjacency = np.zeros((n, n), bool)
  for i, j in edges:
    if not 0 <= i < n or not 0 <= j < n or i == j:
      raise ValueError(f'Expected edge=({i}, {j}) of two clients below {n=}.')
    adjacency[i, j] = adjacency[j, i] = True
  matrix = scipy.sparse.csr_array(adjacency)
  parts = scipy.sparse.csgraph.connected_components(matrix)[0]
  if parts > 1:
    raise ValueError(f'Expected a connected graph, got {parts=}.')
  return Graph(name, adjacency)


def ring(n: int) -> Graph:
  """A cycle of n >= 3 clients; its diameter is ⌊n / 2⌋."""
  checks.at_least('n', n, 3)
  return from_edges(n, [(i, (i + 1) % n) for i in range(n)], f'ring-{n}')


def grid(rows: int, cols: int) -> Graph:
  """A grid of diameter rows + cols - 2, client r·cols + c at (r, c)."""
  checks.at_least('rows', rows, 1)
  checks.at_least('cols', cols, 1)
  ids = np.arange(rows * cols).reshape(rows, cols)
  along = zip(ids[:, :-1].flat, ids[:, 1:].flat, strict=True)
  down = zip(ids[:-1].flat, ids[1:].flat, strict=True)
  return from_edges(rows * cols, [*along, *down], f'grid-{rows}x{cols}')


def star(n: int) -> Graph:
  """Client 0 in the middle of n - 1 others."""
  return from_edges(n, [(0, i) for i in range(1, n)], f'star-{n}')


def complete(n: int) -> Graph:
  """The complete graph; its `metropolis` is 11ᵀ/n, the server's mean.

  >>> metropolis(complete(4))[0].tolist()
  [0.25, 0.25, 0.25, 0.25]
  """
  pairs = [(i, j) for i in range(n) for j in range(i)]
  return from_edges(n, pairs, f'complete-{n}')


def make(kind: str, n: int) -> Graph:
  """The graph of a config: 'ring', 'path', 'grid', 'star' or 'complete'.

  A grid is as square as n allows; for a prime n, and 1, it is refused.

  >>> make('grid', 12).name, make('path', 12).name
  ('grid-3x4', 'grid-1x12')

  Raises:
    ValueError: there is no such kind, or none of it with n clients.
  """
  path = lambda n: grid(1, n)
  kinds = dict(ring=ring, path=path, grid=_square, star=star, complete=complete)
  if kind not in kinds:
    raise ValueError(f'Expected {kind=} in {sorted(kinds)}.')
  return kinds[kind](n)


def edges(graph: Graph) -> np.ndarray:
  """int32[m, 2], every edge once, as (i, j) with i < j, in order.

  >>> edges(ring(3)).tolist()
  [[0, 1], [0, 2], [1, 2]]
  """
  return np.argwhere(np.triu(graph.adjacency)).astype(np.int32)


def diameter(graph: Graph) -> int:
  """The most hops between two clients, max_ij d(i, j).

  >>> diameter(ring(8)), diameter(grid(4, 4)), diameter(star(9))
  (4, 6, 2)
  """
  return int(_distances(graph).max())


def metropolis(graph: Graph) -> np.ndarray:
  r"""The mixing matrix of Metropolis weights, f64[n, n].

  :math:`W_{ij} = 1 / (1 + \max(\deg_i, \deg_j))` on edges, zero off them, and
  on the diagonal what is missing to 1, which is above 0: gossip with W always
  converges. Source: Xiao, Boyd, Lall, IPSN 2005, Metropolis weights.
  """
  weight = 1 / (1 + graph.adjacency.sum(1))
  mixing = np.where(graph.adjacency, np.minimum(weight, weight[:, None]), 0)
  # 1 minus the row's sum, without its rounding: a complete graph has 1/n.
  excess = np.where(graph.adjacency, weight[:, None] - mixing, 0).sum(1)
  return mixing + np.diag(weight + excess)


def second_eigenvalue(mixing: np.ndarray) -> float:
  r"""The largest modulus of an eigenvalue but the first, ‖W − 11ᵀ/n‖₂.

  One step of gossip shrinks the disagreement ‖y − ȳ‖₂ by this factor or more.

  >>> f'{second_eigenvalue(metropolis(ring(4))):.6f}'
  '0.333333'

  Raises:
    ValueError: W is not a mixing matrix: symmetric, with rows that sum to 1.
  """
  n = len(mixing)
  if mixing.shape != (n, n) or not np.allclose(mixing, mixing.T):
    raise ValueError(f'Expected a symmetric matrix, got {mixing=}.')
  if not np.allclose(mixing.sum(1), 1):
    raise ValueError(f'Expected rows that sum to 1, got {mixing.sum(1)=}.')
  return float(np.linalg.norm(mixing - 1 / n, 2))


def gossip(mixing: np.ndarray, steps: int) -> np.ndarray:
  """W^steps, f64[n, n]: the matrix of `steps` rounds of y_i ← Σ_j W_ij y_j.

  The sum is kept; disagreement falls to `second_eigenvalue` to that power or
  less.
  """
  checks.at_least('steps', steps, 0)
  return np.linalg.matrix_power(mixing, steps)


def chebyshev(mixing: np.ndarray, steps: int) -> np.ndarray:
  r"""The matrix of `steps` rounds of Chebyshev-accelerated gossip, f64[n, n].

  :math:`T_q(W/λ) / T_q(1/λ)`, with λ the `second_eigenvalue`, by recurrence:
  the messages are those of `gossip`, but a client keeps its last two values.
  Rows sum to 1, entries may be negative, and disagreement falls to
  :math:`1/T_q(1/λ)` or less, after about the square root of gossip's rounds.
  Source: Golub, Varga, Numer. Math. 3, 1961; Scaman et al., arXiv:1702.08704.
  """
  checks.at_least('steps', steps, 0)
  half = second_eigenvalue(mixing) / 2
  last, now, omega = np.eye(len(mixing)), mixing, 2.0
  for _ in range(steps - 1):
    omega = 1 / (1 - half**2 * omega)
    last, now = now, omega * (mixing @ now) + (1 - omega) * last
  return now if steps else last


def steps_to(mixing: np.ndarray, tolerance: float) -> int:
  """The least number of steps q with ‖W^q − 11ᵀ/n‖₂ = λ^q ≤ tolerance.

  >>> steps_to(metropolis(ring(4)), 1e-6)  # 3^-13 < 1e-6 < 3^-12
  13

  Raises:
    ValueError: tolerance is not above 0, or gossip with W does not converge.
  """
  if not tolerance > 0:
    raise ValueError(f'Expected {tolerance=} > 0.')
  rate = second_eigenvalue(mixing)
  if len(mixing) == 1 or tolerance >= 1:
    return 0
  if rate <= tolerance:
    return 1
  if rate >= 1 - len(mixing) * np.finfo(float).eps:
    raise ValueError(f'Expected a second eigenvalue of {rate=} < 1.')
  return math.ceil(math.log(tolerance) / math.log(rate))


def tree_schedule(graph: Graph) -> list[list[tuple[int, int]]]:
  """The messages of an exact sum over a breadth-first tree, hop by hop.

  First the converge-cast, in which a client sends its parent the sum of its
  subtree, then the broadcast of the root's sum. The root has the least
  eccentricity, r, which makes 2r ≤ 2·diameter hops.

  >>> tree_schedule(grid(1, 3))  # (sender, receiver)
  [[(0, 1), (2, 1)], [(1, 0), (1, 2)]]
  """
  distances = _distances(graph)
  root = int(distances.max(1).argmin())
  matrix = scipy.sparse.csr_array(graph.adjacency)
  _, parents = scipy.sparse.csgraph.breadth_first_order(matrix, root)
  level = lambda k: np.flatnonzero(distances[root] == k).tolist()
  levels = [level(k) for k in range(1, distances[root].max() + 1)]
  up = [[(i, int(parents[i])) for i in nodes] for nodes in reversed(levels)]
  return up + [[(j, i) for i, j in hop] for hop in reversed(up)]


def tree_all_reduce(graph: Graph, b: int) -> Cost:
  """Cost of an exact sum of b floats by `tree_schedule`: 2(n − 1)b in all.

  >>> cost = tree_all_reduce(star(5), b=10)
  >>> cost.hops, cost.total, cost.sent.tolist()
  (2, 80, [40, 10, 10, 10, 10])
  """
  checks.at_least('b', b, 1)
  schedule = tree_schedule(graph)
  traffic = np.zeros(graph.adjacency.shape, np.int64)
  for message in (message for hop in schedule for message in hop):
    traffic[message] += b
  return Cost(len(schedule), traffic)


def gossip_cost(graph: Graph, b: int, steps: int) -> Cost:
  """Cost of `steps` rounds of `gossip` or `chebyshev`: 2·edges·b·steps floats.

  >>> gossip_cost(ring(8), b=10, steps=3).total
  480
  """
  checks.at_least('b', b, 1)
  checks.at_least('steps', steps, 0)
  return Cost(steps, graph.adjacency.astype(np.int64) * b * steps)


def flooding(graph: Graph, b: int) -> Cost:
  """Cost of an exact sum in the least number of hops, the diameter D.

  So that none is counted twice, a client keeps all sketches apart, and forwards
  each on first receipt to all neighbours that did not just send it: i sends j
  those of all k with d(i, k) ≤ d(j, k) and d(i, k) < D, up to n·b floats.

  >>> flooding(ring(8), b=1).total, tree_all_reduce(ring(8), b=1).total
  (64, 14)
  """
  checks.at_least('b', b, 1)
  distances, depth = _distances(graph), diameter(graph)
  traffic = np.zeros(graph.adjacency.shape, np.int64)
  for i, j in np.argwhere(graph.adjacency):
    forwards = (distances[i] <= distances[j]) & (distances[i] < depth)
    traffic[i, j] = forwards.sum() * b
  return Cost(depth, traffic)


def _square(n):
  checks.at_least('n', n, 1)
  rows = max(k for k in range(1, math.isqrt(n) + 1) if n % k == 0)
  if rows == 1:
    raise ValueError(f'Expected {n=} with rows, cols >= 2; 1 x n is a path.')
  return grid(rows, n // rows)


def _distances(graph):
  paths = scipy.sparse.csgraph.shortest_path
  return paths(graph.adjacency, unweighted=True).astype(int)
