"""Runs a grid of gradient-leakage attacks.

  python -m launch.attack --config=configs/tanh_attack.py --workdir=DIR

Writes attacks.jsonl, table.md and figures. Started again with the same workdir
it resumes with the settings that are not finished.
"""

from absl import app, flags
from fl_sketch.attacks import campaign, report, settings
from fl_sketch.training import devices
import launch
from launch import errors
from ml_collections import config_flags

_CONFIG = config_flags.DEFINE_config_file('config', lock_config=True)
_WORKDIR = flags.DEFINE_string('workdir', None, 'Where the results go.')
_DATA_DIR = flags.DEFINE_string(
  'data_dir', None, 'Where tensorflow-datasets keeps its files.'
)
flags.mark_flags_as_required(['config', 'workdir'])


def main(argv):
  """Runs the attacks of a config and prints their table."""
  launch.begin(argv)
  devices.start(cpu_devices=devices.cores())
  try:
    c = settings.AttackConfig.from_mapping(_CONFIG.value.to_dict())
    rows = campaign.run(c, str(_WORKDIR.value), _DATA_DIR.value)
  except errors.USER_ERRORS as e:
    launch.refuse(e)
  print(report.table(rows))
  print('Table and pictures are in', _WORKDIR.value)


if __name__ == '__main__':
  app.run(main, flags_parser=launch.parse_flags)
