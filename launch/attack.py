"""Runs a grid of gradient-leakage attacks.

  fl-sketch attack tanh_attack [--workdir=DIR]

Writes attacks.jsonl, table.md and figures. Started again with the same workdir
it resumes with the settings that are not finished.
"""

from absl import app
from fl_sketch.training import devices

from . import begin, configs, define_folders, errors, neighbour, parse_flags

_ATTACKS = neighbour('papers.song.attacks')

_CONFIG = configs.define_flag(parts=False)
_WORKDIR, _DATA_DIR = define_folders(unset='runs/attack_CONFIG')


def main(argv):
  """Runs the attacks of a config and prints their table."""
  begin(argv)
  folder = _WORKDIR.value or configs.workdir('attack_')
  devices.start(cpu_devices=devices.cores())
  with errors.refused():
    c = _ATTACKS.settings.AttackConfig.from_mapping(_CONFIG.value.to_dict())
    rows = _ATTACKS.campaign.run(c, folder, _DATA_DIR.value)
  print(_ATTACKS.report.table(rows))
  print('Table and pictures are in', folder)


if __name__ == '__main__':
  app.run(main, flags_parser=parse_flags)
