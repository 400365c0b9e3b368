"""Figures as data: what is kept can be drawn again, in one style."""

import json
import math

from fl_sketch.reporting import figures
from matplotlib import colors
import numpy as np
import pytest

LINES = [
  figures.Line('dense', [1, 10, 100], [0.5, 0.75, 0.8], family='dense'),
  figures.Line(
    'safl', np.array([1, 10]), [0.5, math.nan], [0.4, 0.5], [0.6, 0.9],
    variant=1,
  ),
  figures.Line('', [10], [0.7], [0.6], [0.8], 'safl', points=True, cell='0.7'),
]  # fmt: skip
PANELS = [
  figures.Panel('MB', 'accuracy', LINES, 'iid', x_scale='log', y_mark=0.1),
  figures.Panel('round', 'accuracy', LINES[:2], y_limits=(0.0, 1.0)),
]


def test_what_is_kept_is_what_was_drawn():
  """Catches a field that is lost, or NaN, which is no JSON."""
  kept = json.loads(json.dumps(figures.as_json(PANELS), allow_nan=False))
  again = figures.from_json(kept)
  assert figures.as_json(again) == kept
  for drawn in map(figures.draw, (PANELS, again)):
    above, below = drawn.axes
    curves = [line for line in above.lines if len(line.get_xdata()) > 1]
    np.testing.assert_allclose(curves[0].get_ydata(), LINES[0].y)
    np.testing.assert_allclose(curves[1].get_ydata(), [0.5, math.nan])
    assert above.get_title() == 'iid'
    assert above.get_xscale() == 'log'
    assert below.get_ylim() == (0.0, 1.0)


def test_a_family_has_its_colour_and_a_label_stands_once():
  """Catches a legend that repeats itself, and colours by order alone."""
  drawn = figures.draw(PANELS)
  found = {
    (line.get_label(), colors.to_hex(line.get_color()))
    for ax in drawn.axes
    for line in ax.lines
  }
  assert ('dense', '#000000') in found
  assert ('safl', '#0072b2') in found
  (legend,) = drawn.legends
  assert [text.get_text() for text in legend.get_texts()] == ['dense', 'safl']


def test_bands_do_not_stretch_the_axis():
  """Catches curves that are flat under the wide bands of a few seeds."""
  line = figures.Line('a', [1, 2], [0.8, 0.9], [-9.0, -9.0], [9.0, 9.0])
  (ax,) = figures.draw([figures.Panel('x', 'y', [line])]).axes
  assert ax.get_ylim() == pytest.approx((0.785, 0.915))


def test_names_stand_in_their_order():
  """Catches names sorted by family, and names too many for their axis."""
  order = figures.Line('', [math.nan] * 3, ['c', 'a', 'b'], points=True)
  some = figures.Line('dense', [1.0], ['a'], [0.5], [1.5], points=True)
  (ax,) = figures.draw([figures.Panel('x', '', [order, some])]).axes
  assert [t.get_text() for t in ax.get_yticklabels()] == ['c', 'a', 'b']
  names = figures.Line('', [1.0] * 40, [*map(str, range(40))])
  assert figures.draw([figures.Panel('x', '', [names])]).get_figheight() > 8
