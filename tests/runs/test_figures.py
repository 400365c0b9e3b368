"""Figures as data: what is kept can be drawn again, in one style."""

import itertools
import json
import math

from fl_sketch.runs import figures
from matplotlib import colors
import numpy as np
from papers.compressors import federations, workers
from papers.language import methods as language

LINES = [
  figures.Line('dense', [1, 10, 100], [0.5, 0.75, 0.8], family='fedadam'),
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


# What the colour-blind see, by Machado et al. (2009).
DEUTAN = [[0.367, 0.861, -0.228], [0.28, 0.673, 0.047], [-0.012, 0.043, 0.969]]


def test_a_method_has_one_look_in_any_spelling_and_no_other_has_it():
  """Catches two methods of one colour, as three were orange."""
  drawn = federations.METHODS, workers.METHODS, language.RECURRENT
  for known in (*drawn, language.METHODS | language.OF_FACTORS):
    assert len({*figures.looks(known).values()}) == len(known)
  one, other = (figures.looks(['x', n])[n] for n in ('CD-Adam', 'cd_adam'))
  assert one == other
  assert len({*figures.looks(['safl', *map(str, range(60))]).values()}) == 61


def test_colours_of_one_marker_are_told_apart_by_the_colour_blind():
  """Catches a red and a green that differ in nothing else."""
  seen = lambda name: np.array(DEUTAN) @ np.array(colors.to_rgb(name)) ** 2.2
  looks = [*figures.looks(map(str, range(16))).values()]
  for (one, marker), (other, same) in itertools.combinations(looks, 2):
    assert marker != same or np.abs(seen(one) - seen(other)).max() > 0.05
