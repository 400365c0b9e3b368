"""The points of a sweep, their table and their figure."""

import itertools
import math

from fl_sketch.runs import config, sweep, sweep_report
from fl_sketch.utils import markdown
from harness import SMALL
import numpy as np
import pytest

SEEDS = {'seed': (0, 1)}
RATES = {'server_lr': (0.1, 0.2)}
PROX = {'algorithm': 'fedprox'}
WIDTHS = {'widths': ((3,), (4,))}
POISSON = dict(
  algorithm='private_iterative_sketching',
  sketch={'kind': 'block_cyclic', 'size': 50}, batch_order='poisson',
  clip_norm=1.0, noise_multiplier=1.0, delta=1e-3, standardize=False,
)  # fmt: skip
SAFL = {'algorithm': 'safl', 'sketch': {'kind': 'identity'}}


@pytest.mark.parametrize(('fields', 'swept', 'programs'), [
  ({}, SEEDS | RATES | {'client_lr': (0.1, 0.2)}, 1),
  ({}, SEEDS | {'local_steps': (1, 2), 'model_options': WIDTHS}, 4),
  # Seeds draw the quadratics, and the sizes of clients with full batches.
  ({'dataset': 'quadratics'}, SEEDS | RATES, 2),
  ({'batch_size': 0, 'partition': 'size_skew'}, SEEDS, 2),
  # Poisson batches are as wide as the largest client, too.
  (POISSON, SEEDS, 1),
  (POISSON | {'partition': 'size_skew'}, SEEDS, 2),
  # The server's rate decays relative to its first value.
  ({'final_server_lr': 0.01}, SEEDS | RATES, 2),
  ({'client_holdout': 0.3}, SEEDS, 2),  # they hold out other samples
  ({'server_schedule': {'kind': 'cosine'}}, SEEDS | RATES, 1),
  ({}, RATES | {'final_server_lr': (None, 0.01)}, 3),
  # A hyperparameter that an algorithm declares is an array of a program.
  (PROX, {'options': {'mu': (0.0, 0.1, 1.0)}} | RATES, 1),
  (SAFL, {'sketch': ({'kind': 'identity'}, {'kind': 'srht', 'size': 9})}, 2),
])  # fmt: skip
def test_points_that_differ_in_arrays_share_a_program(fields, swept, programs):
  points = sweep.points(SMALL | fields | {'sweep': swept})
  groups = sweep.groups(dict(enumerate(points)))
  assert len(groups) == programs
  assert sorted(itertools.chain(*groups)) == list(range(len(points)))


def test_draws_lie_within_bounds_and_more_begin_with_the_same():
  ranges = {
    'client_lr': {'low': 0.01, 'high': 1.0},
    'options': {'mu': {'low': 0.01, 'high': 1.0}},
  }
  drawn = sweep.points(
    PROX | {'sweep': ranges | {'draws': 200, 'seed': (0, 1)}}
  )
  assert len(drawn) == 400
  assert drawn[0].values == drawn[1].values | {'seed': 0}
  rates = np.array([point.config.client_lr for point in drawn[::2]])
  assert 0.01 <= rates.min() < rates.max() <= 1
  # The median of 200 is log-uniform: outside these but once in 1e9 seeds.
  assert 0.035 < np.median(rates) < 0.29
  mus = {point.config.options['mu'] for point in drawn}
  assert len(mus) == 200
  assert 0.01 <= min(mus) < max(mus) <= 1
  few = sweep.points(PROX | {'sweep': ranges | {'draws': 3}})
  assert [p.config.client_lr for p in few] == rates[:3].tolist()


@pytest.mark.parametrize(('swept', 'name'), [
  ({'clint_lr': (0.1,)}, 'clint_lr'),
  ({'seed': (1, 1)}, 'seed'),
  ({'client_lr': 0.1}, 'client_lr'),
  ({'client_lr': {'low': 1.0, 'high': 0.1}, 'draws': 2}, 'client_lr'),
  ({'seed': (0,), 'draws': 2}, 'draws'),
])  # fmt: skip
def test_sweeps_that_make_no_sense_are_refused(swept, name):
  """Catches a point that runs twice, or not as it was meant."""
  with pytest.raises(config.ConfigError, match=name):
    sweep.points(SMALL | {'sweep': swept})


def row_of(accuracy, diverged=False, **values):
  row = {'values': values, 'diverged': diverged}
  row |= {'total_uplink_bytes': 2e6, 'total_downlink_bytes': 5e6}
  return row if accuracy is None else row | {'test_accuracy': accuracy}


def test_mean_and_standard_error_by_hand(tmp_path):
  rows = [
    row_of(0.5, client_lr=0.1, seed=0), row_of(0.7, client_lr=0.1, seed=1),
    row_of(0.9, client_lr=0.1, seed=2), row_of(0.8, client_lr=0.2, seed=0),
    row_of(0.9, client_lr=0.2, seed=1), row_of(0.99, client_lr=0.3, seed=0),
    row_of(None, client_lr=0.3, seed=1, diverged=True),
  ]  # fmt: skip
  a, b, c = sweep_report.settings(rows)
  assert [s.values['client_lr'] for s in (a, b, c)] == [0.2, 0.1, 0.3]
  # Deviations are 0.2 / sqrt(3) and (0.1 / sqrt(2)) / sqrt(2).
  np.testing.assert_allclose((b.mean, b.error), (0.7, 0.2 / 3**0.5))
  np.testing.assert_allclose((a.mean, a.error), (0.85, 0.05))
  assert (c.mean, c.points, c.diverged) == (0.99, 2, 1)
  assert math.isnan(c.error)
  text = sweep_report.table(rows, tmp_path / 'table.csv')
  _, *lines = markdown.cells(text)
  assert lines[0] == ['0.2', '0.85', '0.05', '2', '0', '2', '5']
  assert lines[2] == ['0.3', '0.99', '', '2', '1', '2', '5']
  assert '0.85 ± 0.05' in sweep_report.summary_line(rows)


def test_a_sweep_without_numbers_to_compare_has_no_picture():
  """Catches an error after all points have run."""
  rows = [row_of(None, True, client_lr=rate) for rate in (1.0, 2.0)]
  assert sweep_report.draw(rows) is None
  assert sweep_report.summary_line(rows).startswith('2 points, 2 diverged')
  rows = [row_of(0.5, seed=0), row_of(0.6, seed=1)]
  assert sweep_report.draw(rows) is None  # only seeds are swept


def axes_of(rows):
  fig = sweep_report.draw(rows)
  fig.draw_without_rendering()
  return fig.axes


def test_numbers_of_a_field_are_in_order():
  """Catches sizes that are sorted as text: 150, 301, 601, 75."""
  sizes = 150, 301, 601, 75
  rows = [row_of(size / 1e3, **{'sketch.size': size}) for size in sizes]
  (line,) = axes_of(rows)[0].lines
  assert line.get_xdata().tolist() == sorted(sizes)


def test_a_grid_is_a_curve_for_each_value_at_the_best_of_other_fields():
  """Catches swapped fields, and a point of another value than the best."""
  pairs = [*itertools.product((1.0, 9.0), (2, 4, 8))]
  rows = [
    row_of(scale * i or None, i == 0, server_lr=a, client_lr=b, b1=scale)
    for scale in (0.05, 0.1)
    for i, (a, b) in enumerate(pairs)
  ]
  (ax,) = axes_of(rows)
  assert ax.get_xlabel() == 'client_lr'
  curves = {line.get_label(): line.get_ydata() for line in ax.lines}
  assert [*curves] == ['server_lr=1', 'server_lr=9']
  want = [[np.nan, 0.1, 0.2], [0.3, 0.4, 0.5]]
  np.testing.assert_allclose([*curves.values()], want)
