"""Objects in a console and in a notebook: a line, and a table with a curve."""

from typing import Any
from xml.etree import ElementTree

import chex
from fl_sketch import codecs, experiment, reporting, sketches
from fl_sketch.experiment import config
from fl_sketch.rounds import comms
from fl_sketch.training import loop
import jax
import pytest

STATE: Any = None
ROWS = [{'round': i, 'test_loss': 1 / (i + 1)} for i in range(3)]
FIELDS = {'algorithm': 'safl', 'sketch': 'srht(size=9)', 'client_lr': 0.3}
CONFIG = config.Config.from_mapping(FIELDS)
PRIVATE = {
  'algorithm': 'dp_fedavg', 'noise_multiplier': 1.0, 'delta': 1e-5,
  'clip_norm': 1.0, 'sampling': 'poisson', 'rounds': 2, 'standardize': False,
}  # fmt: skip
OBJECTS = {
  'Config': (lambda: CONFIG, 'client_lr=0.3'),
  'Result': (
    lambda: loop.Result(STATE, {}, True, {}, reporting.as_array(ROWS)),
    'finished=True, round=2, test_loss=0.3333',
  ),
  'Bill': (lambda: comms.bill(up=40), 'up=40, down=0'),
  'Sketch': (lambda: sketches.srht(9), 'name=srht, floats_at_1e6=9'),
  'Codec': (lambda: codecs.rand_k(4), 'name=rand_k, omega_at_1e6=2.5e+05'),
  'PrivacyGuarantee': (
    lambda: experiment.account(config.Config.from_mapping(PRIVATE)),
    'noise=secret',
  ),
}  # fmt: skip


@pytest.mark.parametrize('name', OBJECTS)
def test_an_object_is_a_line_and_a_table(name):
  """Catches 284 lines of arrays, an address, and HTML that is not closed."""
  make, part = OBJECTS[name]
  shown = make()
  assert repr(shown).startswith(f'{name}(')
  assert part in repr(shown)
  assert not {*'\n@'} & {*repr(shown)}
  assert len(repr(shown)) < 200
  page = ElementTree.fromstring(f'<p>{shown._repr_html_()}</p>')
  assert page.findtext('table/caption') == name
  assert (page.find('.//polyline') is not None) == (name == 'Result')


def test_what_is_shown_is_still_what_it_was():
  """Catches a class that is no tree, and a line that is no Python."""
  assert eval(repr(CONFIG), {'Config': config.Config}) == CONFIG
  traced = []

  @jax.jit
  def double(bill):
    traced.append(repr(bill))
    return jax.tree.map(lambda x: 2 * x, bill)

  chex.assert_trees_all_equal(double(comms.bill(3, 4)), comms.bill(6, 8))
  assert traced[0].startswith('Bill(up=')
  shapes = jax.eval_shape(lambda bill: bill, comms.bill(3, 4))
  assert repr(shapes).startswith('Bill(up=ShapeDtypeStruct')
