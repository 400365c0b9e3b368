"""What goes with a part of a config that the command line replaces."""

from fl_sketch.runs import config
import pytest

SIZES = {'sketch': {'size': (20, 30)}, 'client_lr': (0.1, 0.2)}
FIELDS = {
  'algorithm': 'safl', 'sketch': {'kind': 'srht', 'size': 9}, 'sweep': SIZES,
}  # fmt: skip


@pytest.mark.parametrize(('given', 'values', 'left_out'), [
  (['algorithm'], {'algorithm': 'fedavg'}, ['sketch', 'sweep.sketch']),
  (['sketch.kind'], {'sketch': {'kind': 'count_sketch', 'size': 9, 'rows': 2}},
    ['sketch.size', 'sweep.sketch.size']),
  (['sketch'], {'sketch': {'kind': 'count_sketch', 'cols': 5}},
    ['sweep.sketch.size']),
  (['sketch'], {'sketch': {'kind': None}}, ['sweep.sketch']),
  (['sketch'], {'sketch': {'kind': 'gaussian', 'size': 3}}, []),
  # Whole sketches name their kinds, whichever the config names.
  (['sketch.kind'],
    {'sketch': {'kind': 'gaussian'}, 'sweep': {'sketch': ({'kind': 'ams'},)}},
    []),
  (['model'],
    {'sweep': {'model_options': {'widths': ((3,),)}}, 'model': 'linear'},
    ['sweep.model_options.widths']),
  # What the command line sets is refused later instead.
  (['algorithm', 'sweep.sketch.size'], {'algorithm': 'fedavg'}, ['sketch']),
  (['sketch'], {'sketch': {'kind': 'gaussian', 'rows': 3}, 'sweep': None}, []),
])  # fmt: skip
def test_a_sweep_of_what_is_left_out_goes_too(given, values, left_out):
  """Catches points with the options of a sketch that the config dropped."""
  fields, names = config.switched(FIELDS | values, given)
  assert names == left_out
  for name in left_out:
    holder, parts = fields, name.split('.')
    for part in parts[:-1]:
      holder = holder[part]
    assert holder[parts[-1]] is None
  assert FIELDS['sweep'] == SIZES
