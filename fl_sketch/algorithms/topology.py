"""Graphs of decentralised clients, and their mixing matrices.

A graph is its adjacency matrix, bool[n, n]: symmetric, connected, without self
loops. A mixing matrix is f64[n, n], symmetric, with rows that sum to 1, and
multiplies the clients' payloads f64[n, b] from the left. Each function raises
ValueError if n is too small.
"""

from collections.abc import Iterable
import math

from fl_sketch.utils import checks
import numpy as np
import scipy  # its packages load on first use


def from_edges(n: int, edges: Iterable[tuple[int, int]]) -> np.ndarray:
  """Return the graph of n clients with edges (i, j), if it is connected."""
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
  on the diagonal what is missing to 1. Source: Xiao, Boyd, Lall, IPSN 2005.
  """
  weight = 1 / (1 + graph.sum(1))
  mixing = np.where(graph, np.minimum(weight, weight[:, None]), 0)
  # 1 minus the row's sum, without its rounding: a complete graph has 1/n.
  excess = np.where(graph, weight[:, None] - mixing, 0).sum(1)
  return mixing + np.diag(weight + excess)
