import functools
import itertools

from fl_sketch.algorithms import topology
import numpy as np
import pytest
from refusals import refused_calls

GRAPHS = [
  *map(topology.ring, (3, 8, 9)),
  *(topology.grid(*sides) for sides in ((4, 4), (2, 5), (1, 6), (1, 1))),
  *map(topology.star, (2, 7)),
  *map(topology.complete, (1, 6)),
  topology.from_edges(
    6, [(5, 1), (1, 3), (3, 5), (3, 5), (3, 0), (0, 4), (4, 2)]
  ),
]
graphs = pytest.mark.parametrize('graph', GRAPHS, ids=lambda graph: graph.name)
B = 3


def neighbours(graph):
  return [np.flatnonzero(row).tolist() for row in graph.adjacency]


def payloads(graph):
  rng = np.random.default_rng(0)
  return rng.integers(-99, 99, (len(graph.adjacency), B)).astype(float)


def disagreement(y):
  return np.linalg.norm(y - y.mean(0), 2)


def away(matrix):
  """The most by which a matrix of averages leaves a unit disagreement."""
  return np.linalg.norm(matrix - 1 / len(matrix), 2)


def brute_diameter(graph):
  """The least power of the adjacency with self loops that has no zero."""
  n = len(graph.adjacency)
  closed = np.eye(n, dtype=np.int64) + graph.adjacency
  powers = (np.linalg.matrix_power(closed, k) for k in itertools.count())
  return next(k for k, power in enumerate(powers) if power.all())


@graphs
def test_graphs_are_simple_and_their_edges_give_them_back(graph):
  n = len(graph.adjacency)
  assert graph.adjacency.dtype == bool
  np.testing.assert_array_equal(graph.adjacency, graph.adjacency.T)
  assert not graph.adjacency.diagonal().any()
  pairs = topology.edges(graph)
  assert pairs.dtype == np.int32
  assert pairs.shape == (graph.adjacency.sum() // 2, 2)
  assert (pairs[:, 0] < pairs[:, 1]).all()
  again = topology.from_edges(n, pairs[::-1, ::-1], graph.name)
  np.testing.assert_array_equal(again.adjacency, graph.adjacency)


def test_families_have_the_edges_of_their_definitions():
  near = lambda rows, cols: [
    (a * cols + b, c * cols + d)
    for a, b, c, d in itertools.product(*[range(rows), range(cols)] * 2)
    if (a, b) < (c, d) and abs(a - c) + abs(b - d) == 1
  ]
  edges = lambda graph: [tuple(pair) for pair in topology.edges(graph).tolist()]
  assert edges(topology.ring(4)) == [(0, 1), (0, 3), (1, 2), (2, 3)]
  assert edges(topology.star(4)) == [(0, 1), (0, 2), (0, 3)]
  assert edges(topology.grid(3, 4)) == near(3, 4)
  assert len(near(3, 4)) == 17
  assert edges(topology.complete(5)) == [*itertools.combinations(range(5), 2)]


@graphs
def test_metropolis_is_doubly_stochastic_on_the_graph_with_a_gap(graph):
  mixing = topology.metropolis(graph)
  n = len(mixing)
  np.testing.assert_array_equal(mixing, mixing.T)
  np.testing.assert_allclose(mixing.sum(0), 1, rtol=1e-14)
  np.testing.assert_array_equal(
    mixing > 0, graph.adjacency | np.eye(n, dtype=bool)
  )
  degree = graph.adjacency.sum(1)
  for i, j in topology.edges(graph):
    assert mixing[i, j] == 1 / (1 + max(degree[i], degree[j]))
  moduli = np.sort(np.abs(np.linalg.eigvalsh(mixing)))[::-1]
  second = topology.second_eigenvalue(mixing)
  np.testing.assert_allclose(second, moduli[1] if n > 1 else 0, atol=1e-14)
  assert second < 1 - 1e-3


@pytest.mark.parametrize('n', [1, 2, 3, 6, 7, 49, 50])
def test_one_step_on_a_complete_graph_is_the_servers_mean(n):
  mixing = topology.metropolis(topology.complete(n))
  np.testing.assert_array_equal(mixing, np.full((n, n), 1 / n))


def test_second_eigenvalue_of_a_ring_is_its_closed_form():
  for n in range(3, 20):
    value = topology.second_eigenvalue(topology.metropolis(topology.ring(n)))
    moduli = np.abs(1 + 2 * np.cos(2 * np.pi * np.arange(1, n) / n)) / 3
    np.testing.assert_allclose(value, moduli.max(), rtol=1e-12, atol=1e-14)


@graphs
def test_gossip_keeps_the_sum_and_contracts_step_by_step(graph):
  mixing, start = topology.metropolis(graph), payloads(graph)
  second = topology.second_eigenvalue(mixing)
  y = start
  for steps in range(8):
    applied = topology.gossip(mixing, steps) @ start
    np.testing.assert_allclose(applied, y, atol=1e-11)
    np.testing.assert_allclose(y.sum(0), start.sum(0), atol=1e-10)
    bound = second**steps * disagreement(start)
    assert disagreement(y) <= bound + 1e-10
    inbox = [
      mixing[i, near] @ y[near] for i, near in enumerate(neighbours(graph))
    ]
    y = mixing.diagonal()[:, None] * y + np.stack(inbox)


@graphs
@pytest.mark.parametrize('steps', [0, 1, 2, 5, 12])
def test_chebyshev_keeps_the_sum_and_contracts_by_its_polynomial(graph, steps):
  mixing = topology.metropolis(graph)
  second = topology.second_eigenvalue(mixing)
  applied = topology.chebyshev(mixing, steps)
  np.testing.assert_allclose(applied.sum(0), 1, rtol=1e-12)
  np.testing.assert_allclose(applied.sum(1), 1, rtol=1e-12)
  far = np.linalg.matrix_power(mixing, steps) == 0
  np.testing.assert_array_equal(applied[far], 0)
  rate = float(len(mixing) > 1 and steps == 0)
  if second > 1e-9:
    rate = 1 / np.cosh(steps * np.arccosh(1 / second))
  np.testing.assert_allclose(away(applied), rate, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize('n', [5, 8, 16, 33])
def test_chebyshev_is_ahead_of_gossip_on_rings(n):
  mixing = topology.metropolis(topology.ring(n))
  for steps in range(2, 12):
    plain = away(topology.gossip(mixing, steps))
    assert away(topology.chebyshev(mixing, steps)) < 0.99 * plain
  np.testing.assert_array_equal(topology.chebyshev(mixing, 1), mixing)


@graphs
@pytest.mark.parametrize('tolerance', [2.0, 1.0, 0.7, 1e-2, 1e-6])
def test_steps_to_is_the_least_that_is_enough(graph, tolerance):
  mixing = topology.metropolis(graph)
  steps = topology.steps_to(mixing, tolerance)
  power = functools.partial(np.linalg.matrix_power, mixing)
  assert away(power(steps)) <= tolerance * (1 + 1e-9)
  assert steps == 0 or away(power(steps - 1)) > tolerance


def run_schedule(graph):
  """Every client's sum, and the floats counted on every directed edge."""
  total, counts = payloads(graph), np.zeros(graph.adjacency.shape, int)
  schedule = topology.tree_schedule(graph)
  for index, hop in enumerate(schedule):
    before = total.copy()  # all messages of a hop leave at once
    for sender, receiver in hop:
      assert graph.adjacency[sender, receiver]
      counts[sender, receiver] += before[sender].size
      if index < len(schedule) // 2:
        total[receiver] += before[sender]
      else:
        total[receiver] = before[sender]
  return total, counts


@pytest.mark.covers('S0-Alg1-dec')
@graphs
def test_the_tree_schedule_ends_with_the_exact_sum_everywhere(graph):
  (total, counts), y = run_schedule(graph), payloads(graph)
  np.testing.assert_array_equal(total, np.broadcast_to(y.sum(0), y.shape))
  cost = topology.tree_all_reduce(graph, B)
  np.testing.assert_array_equal(cost.traffic, counts)
  np.testing.assert_array_equal(cost.sent, counts.sum(1))
  assert set(np.unique(counts)) <= {0, B}
  np.testing.assert_array_equal(counts, counts.T)
  assert cost.total == 2 * (len(y) - 1) * B
  assert cost.hops == len(topology.tree_schedule(graph))
  diameter = brute_diameter(graph)
  assert diameter <= cost.hops <= 2 * diameter


def test_the_root_of_the_tree_is_in_the_middle():
  hops = lambda graph: topology.tree_all_reduce(graph, 1).hops
  assert hops(topology.star(7)) == hops(topology.complete(5)) == 2
  assert hops(topology.ring(8)) == 2 * 4
  assert hops(topology.grid(1, 7)) == 2 * 3
  assert hops(topology.grid(4, 4)) == 2 * 4
  late = topology.from_edges(4, [(3, 0), (3, 1), (3, 2)])
  assert topology.tree_schedule(late)[0] == [(0, 3), (1, 3), (2, 3)]


def run_flooding(graph):
  """Simulates flooding with sets: hops until completion, and all floats."""
  n = len(graph.adjacency)
  sets = [{i} for i in range(n)]
  fresh = [{i: set()} for i in range(n)]  # sketch -> who just sent it
  counts = np.zeros((n, n), int)
  for hop in itertools.count():
    if all(len(ids) == n for ids in sets):
      return hop, counts
    inbox = [{} for _ in range(n)]
    for i, j in np.argwhere(graph.adjacency).tolist():
      for sketch in (k for k, senders in fresh[i].items() if j not in senders):
        counts[i, j] += B
        if sketch not in sets[j]:
          inbox[j].setdefault(sketch, set()).add(i)
    fresh = inbox
    sets = [ids | set(new) for ids, new in zip(sets, inbox, strict=True)]


@pytest.mark.covers('S0-Alg1-dec')
@graphs
def test_flooding_takes_the_diameter_and_the_floats_that_are_counted(graph):
  hops, counts = run_flooding(graph)
  cost = topology.flooding(graph, B)
  assert cost.hops == hops == brute_diameter(graph)
  np.testing.assert_array_equal(cost.traffic, counts)
  assert counts.max() <= len(counts) * B


@graphs
@pytest.mark.parametrize('steps', [0, 1, 4])
def test_gossip_costs_every_edge_a_payload_a_step_and_direction(graph, steps):
  counts = np.zeros(graph.adjacency.shape, int)
  for _ in range(steps):
    for i, near in enumerate(neighbours(graph)):
      counts[i, near] += payloads(graph)[i].size
  cost = topology.gossip_cost(graph, B, steps)
  np.testing.assert_array_equal(cost.traffic, counts)
  assert cost.hops == steps
  assert cost.total == 2 * len(topology.edges(graph)) * B * steps


def test_costs_are_exact_past_32_bits():
  graph = topology.complete(3)
  assert topology.gossip_cost(graph, 2**33, 9).total == 6 * 9 * 2**33
  assert topology.flooding(graph, 2**33).total == 6 * 2**33
  assert topology.tree_all_reduce(graph, 2**33).total == 4 * 2**33


def test_make_finds_graphs_by_name():
  name = lambda kind, n: topology.make(kind, n).name
  assert (name('ring', 8), name('path', 7)) == ('ring-8', 'grid-1x7')
  assert (name('star', 5), name('complete', 4)) == ('star-5', 'complete-4')
  for n, shape in {4: '2x2', 12: '3x4', 14: '2x7', 36: '6x6'}.items():
    assert name('grid', n) == f'grid-{shape}'


SWAP = np.array([[0.0, 1.0], [1.0, 0.0]])
PAIR = topology.complete(2)


test_refusals_name_the_value_and_the_bound = refused_calls(
  (lambda: topology.ring(2), 'n=2 >= 3'),
  (lambda: topology.star(0), 'n=0 >= 1'),
  (lambda: topology.complete(0), 'n=0 >= 1'),
  (lambda: topology.grid(0, 3), 'rows=0 >= 1'),
  (lambda: topology.grid(3, 0), 'cols=0 >= 1'),
  (lambda: topology.from_edges(2, [(0, 2)]), r'\(0, 2\).*below n=2'),
  (lambda: topology.from_edges(2, [(-1, 0)]), r'\(-1, 0\).*below n=2'),
  (lambda: topology.from_edges(2, [(1, 1)]), r'\(1, 1\) of two clients'),
  (lambda: topology.from_edges(4, [(0, 1), (2, 3)]), 'parts=2'),
  (lambda: topology.make('torus', 4), "kind='torus' in"),
  (lambda: topology.make('grid', 7), 'n=7 .*path'),
  (lambda: topology.make('grid', 1), 'n=1 .*path'),
  (lambda: topology.make('grid', 0), 'n=0 >= 1'),
  (lambda: topology.second_eigenvalue(np.ones((2, 3))), 'symmetric'),
  (lambda: topology.second_eigenvalue(np.eye(3)[[1, 2, 0]]), 'symmetric'),
  (lambda: topology.second_eigenvalue(np.ones((2, 2))), 'sum to 1'),
  (lambda: topology.gossip(SWAP, -1), 'steps=-1 >= 0'),
  (lambda: topology.chebyshev(SWAP, -1), 'steps=-1 >= 0'),
  (lambda: topology.steps_to(SWAP, 0), 'tolerance=0 > 0'),
  (lambda: topology.steps_to(SWAP, 1e-3), 'rate=.* < 1'),
  (lambda: topology.tree_all_reduce(PAIR, 0), 'b=0 >= 1'),
  (lambda: topology.flooding(PAIR, 0), 'b=0 >= 1'),
  (lambda: topology.gossip_cost(PAIR, 0, 1), 'b=0 >= 1'),
  (lambda: topology.gossip_cost(PAIR, 1, -1), 'steps=-1 >= 0'),
)
