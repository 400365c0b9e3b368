"""Measured costs of algorithms equal the formulas by hand."""

from fl_sketch import algorithms
from generators import costs
import pytest

D = 1000
TABLE = 5 * 20  # tm of the count sketch
B = 100  # of the linear one
K = 10
PK = 4 * K  # candidates of SketchedSGD
SIGNS = D / 8 / 4
HEAPRIX = 2 * TABLE + K
SENT = 2 * TABLE + D  # of each lane: two tables, and the update itself
TREE = 2 * 7 * B / 8  # N - 1 edges, both ways, in the mean over N clients
VALUES = PK + K + PK / 8 / 4  # whom it asked, whom it kept, one bit a candidate
FACTORS = 2 * (25 + 40)  # of rank 2, of a matrix of 25 x 40
DEMO = 16 * 2 + 16 * 2 * 6 / 32  # 16 chunks, places of 6 bits
COCKTAIL = K + K * 4 / 32 + 1  # where, 4-bit levels, the scale of a bucket

# Floats up and down; of each client's state, of what server and clients both
# keep, of the server's alone; those held of each lane (None: only their sum
# is); and the keys that matter.
EXPECTED = {
  'fedsgd': ([D], [D], 0, 0, 0, None, []),
  'fedavg': ([D], [D], 0, 0, 0, None, []),
  'fedprox': ([D], [D], 0, 0, 0, None, []),
  'feddyn': ([D], [D], D, 0, D, D, []),
  'fednova': ([D + 1], [D], 0, 0, 0, None, []),
  'iterative_sketching': ([B], [B], 0, 0, 0, None, ['round']),
  'decentralised': ([TREE], [0], 0, 0, 0, B, ['round']),
  'fedsketch_privix': ([TABLE], [TABLE], 0, 0, 0, None, ['round']),
  'fedsketch_heaprix': ([HEAPRIX], [HEAPRIX], 0, 0, 0, SENT, ['round']),
  'fedsketchgate': ([TABLE], [TABLE], D, 0, 0, TABLE, ['round']),
  'diffsketch': ([TABLE], [TABLE], 0, 0, 0, None, ['round']),
  'safl': ([B], [B], 0, 2 * D, 0, None, ['round']),
  'subspace_sketching': ([B], [B], 0, B, 3 * B, None, ['run']),
  # The model is one vector, whose factor is one number.
  'preconditioned_sketching': ([B + 1, B],) * 2 + (0, D, 0, None, ['round']),
  'sketched_sgd': ([TABLE + PK], [VALUES], D, 0, 0, D, ['round']),
  'fetchsgd': ([TABLE], [2 * K], 0, 0, 2 * TABLE, None, ['run']),
  'fedcom': ([K], [D], 0, 0, 0, None, ['client']),
  'fedcomgate': ([K], [D], D, 0, 0, K, ['client']),
  'scaffold': ([2 * D], [2 * D], D, 0, D, D, []),
  'signsgd': ([SIGNS], [SIGNS], 0, 0, 0, None, []),
  'marina': ([D, K], [D], 0, 0, 2 * D, D + K, ['round', 'client']),
  'ef21': ([2 * K], [D], D, D, 0, None, []),
  'cd_adam': ([2 * K], [2 * K], D, 4 * D, 2 * D, None, []),
  'onebit_adam': ([D, SIGNS + 1], [D, SIGNS + 1], D, 2 * D, 2 * D, D, []),
  # Of eight clients: their factors, and beside these the means.
  'flora': ([D], [8 * D], 0, 0, 0, None, ['client']),
  'fedex': ([D], [9 * D], 0, 0, 0, None, []),
  'power_sgd': ([FACTORS], [FACTORS], D, 0, 2 * 40, D, ['run']),
  'demo': ([DEMO], [SIGNS], D, 0, 0, None, []),
  'cocktail_sgd': ([COCKTAIL], [COCKTAIL], D, 0, D, COCKTAIL + D, ['round']),
  # Down a size as well; the norm of one array, and its size on either side.
  'ferret': ([B], [B + 1], 0, 1, 2, None, ['round']),
  'decomfl': ([2 * 10], [2 * 10], 0, 0, 0, None, ['round']),
  'fedkseed': ([2], [64], 0, 0, 0, None, ['run', 'client']),
  'dp_fedavg': ([D], [D], 0, 0, 0, None, []),
  'dp_normfedavg': ([D], [D], 0, 0, 0, None, []),
  'private_iterative_sketching': ([B], [B], 0, 0, 0, None, ['round']),
}


def check(measured, name):
  up, down, *floats, keys = EXPECTED[name]
  up, down = (tuple(4 * n for n in sizes) for sizes in (up, down))
  assert measured == costs.Costs(D, up, down, *floats, tuple(keys))


@pytest.mark.representatives('safl')
@pytest.mark.parametrize('name', algorithms.names())
def test_the_example_costs_what_the_formulas_say(name):
  check(costs.of_example(name), name)
