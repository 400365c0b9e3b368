"""Graphs of decentralised clients, and their mixing matrices.

A graph is its adjacency matrix, bool[n, n]: symmetric, connected, without self
loops. A mixing matrix is f64[n, n], symmetric, with rows that sum to 1, and
multiplies the clients' payloads f64[n, b] from the left. Each function raises
ValueError if n or the number of steps is too small.
"""

from collections.abc import Iterable
import math

from fl_sketch.utils import checks
import numpy as np
import scipy  # its packages load on first use


def from_edges(n: int, edges: Iterable[tuple[int, int]]) -> np.ndarray:
  """Return the graph of n clients with edges (i, j), either way or both.

  Raises ValueError if an edge is no pair, or the graph is not connected.
  """
  checks.at_least('n', n, 1)
  graph = np.zeros((n, n), bool)
  for i, j in edges:
    if not 0 <= i < n or not 0 <= j < n or i == j:
      raise ValueError(f'edge=({i}, {j}) must be two ids from 0 to {n - 1}.')
    graph[i, j] = graph[j, i] = True
  matrix = scipy.sparse.csr_array(graph)
  parts, _ = scipy.sparse.csgraph.connected_components(matrix)
  if parts > 1:
    raise ValueError(f'The graph has {parts=}: add edges that connect them.')
  return graph


def ring(n: int) -> np.ndarray:
  """Return a cycle of n >= 3 clients."""
  checks.at_least('n', n, 3)
  return from_edges(n, [(i, (i + 1) % n) for i in range(n)])


def grid(rows: int, cols: int) -> np.ndarray:
  """Return a grid, with client r·cols + c at (r, c)."""
  checks.at_least('rows', rows, 1)
  checks.at_least('cols', cols, 1)
  n = rows * cols
  along = [(i, i + 1) for i in range(n) if (i + 1) % cols]
  return from_edges(n, along + [(i, i + cols) for i in range(n - cols)])


def star(n: int) -> np.ndarray:
  """Return client 0 in the middle of n - 1 others."""
  return from_edges(n, [(0, i) for i in range(1, n)])


def complete(n: int) -> np.ndarray:
  """Return the complete graph; its Metropolis matrix is 11ᵀ/n."""
  return from_edges(n, [(i, j) for i in range(n) for j in range(i)])


def make(kind: str, n: int) -> np.ndarray:
  """Build a 'ring', 'path', 'grid', 'star' or 'complete' graph of n clients.

  A grid is as square as n allows; one of one row raises ValueError.
  """
  path = lambda n: grid(1, n)
  kinds = dict(ring=ring, path=path, grid=_square, star=star, complete=complete)
  if kind not in kinds:
    raise ValueError(f'{kind=} is no graph; use one of {sorted(kinds)}.')
  return kinds[kind](n)


def _square(n):
  checks.at_least('n', n, 1)
  rows = max(k for k in range(1, math.isqrt(n) + 1) if n % k == 0)
  if rows == 1:
    raise ValueError(f"{n=} clients have no grid of >= 2 rows; use 'path'.")
  return grid(rows, n // rows)


def metropolis(graph: np.ndarray) -> np.ndarray:
  r"""Return the mixing matrix of Metropolis weights, f64[n, n].

  :math:`W_{ij} = 1 / (1 + \max(\deg_i, \deg_j))` on edges, zero off them, and
  on the diagonal what is missing to 1, which is above 0: gossip with W always
  converges. Source: Xiao, Boyd, Lall, IPSN 2005, Metropolis weights.
  """
  weight = 1 / (1 + graph.sum(1))
  mixing = np.where(graph, np.minimum(weight, weight[:, None]), 0)
  # 1 minus the row's sum, without its rounding: a complete graph has 1/n.
  excess = np.where(graph, weight[:, None] - mixing, 0).sum(1)
  return mixing + np.diag(weight + excess)


def second_eigenvalue(mixing: np.ndarray) -> float:
  """Return the largest modulus of an eigenvalue but the first, ‖W − 11ᵀ/n‖₂.

  One step of gossip multiplies ‖y − ȳ‖₂ by this factor or less.
  """
  return float(np.linalg.norm(mixing - 1 / len(mixing), 2))


def gossip(mixing: np.ndarray, steps: int) -> np.ndarray:
  """Return W^steps, f64[n, n]: `steps` rounds of y_i ← Σ_j W_ij y_j."""
  checks.at_least('steps', steps, 0)
  return np.linalg.matrix_power(mixing, steps)


def chebyshev(mixing: np.ndarray, steps: int) -> np.ndarray:
  r"""Return the matrix of `steps` rounds of accelerated gossip, f64[n, n].

  :math:`T_q(W/λ) / T_q(1/λ)`, with λ the `second_eigenvalue`, by recurrence:
  the messages are those of `gossip`; a client keeps its last two values.
  Disagreement falls to :math:`1/T_q(1/λ)` or less.
  Source: Golub, Varga, Numer. Math. 3, 1961; Scaman et al., arXiv:1702.08704.
  """
  checks.at_least('steps', steps, 0)
  half = second_eigenvalue(mixing) / 2
  last, now, omega = np.eye(len(mixing)), mixing, 2.0
  for _ in range(steps - 1):
    omega = 1 / (1 - half**2 * omega)
    last, now = now, omega * (mixing @ now) + (1 - omega) * last
  return now if steps else last
