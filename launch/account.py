"""Prints the privacy guarantee of a config without training.

  python -m launch.account --config=configs/NAME.py [--workdir=DIR] [--audit]

Prints the privacy statement of a run (ignoring its sweep) and epsilon over the
rounds; writes privacy.json and epsilon.png into a workdir. --audit attacks the
mechanism with canaries, by rounds of the config's algorithm on a small model;
with a workdir it draws audit.png.
"""

import pathlib

from absl import app, flags
from fl_sketch import experiment
from fl_sketch.experiment import audit as config_audit, config, privacy_report
from fl_sketch.privacy import audit, types
from fl_sketch.training import devices
from fl_sketch.utils import files
import launch
from launch import errors
from ml_collections import config_flags

_CONFIG = config_flags.DEFINE_config_file('config', lock_config=True)
_WORKDIR = flags.DEFINE_string('workdir', None, 'Folder of the files, if any.')
_DATA_DIR = flags.DEFINE_string(
  'data_dir', None, 'Where tensorflow-datasets keeps its files.'
)
_AUDIT = flags.DEFINE_bool(
  'audit', False, 'Attack the mechanism with canaries.'
)
_SAMPLES = flags.DEFINE_integer(
  'samples', 5000, 'Runs of the audit with the canary, and as many without.'
)
flags.mark_flags_as_required(['config'])


def main(argv):
  """Prints the account of a config, and its audit with --audit."""
  launch.begin(argv)
  devices.start()
  folder = None if _WORKDIR.value is None else pathlib.Path(_WORKDIR.value)
  try:
    fields = _CONFIG.value.to_dict() | {'sweep': None}
    c = config.Config.from_mapping(fields)
    guarantee = experiment.account(c, _DATA_DIR.value)
  except errors.USER_ERRORS as e:
    launch.refuse(e)
  epsilons = privacy_report.curve(guarantee, c.rounds)
  print(privacy_report.text(guarantee, epsilons))
  if folder is not None:
    folder.mkdir(parents=True, exist_ok=True)
    report = {'epsilons': types.plain(epsilons)} | guarantee.statement.as_dict()
    files.replace(folder / 'privacy.json', report)
    privacy_report.draw(guarantee, epsilons, folder / 'epsilon.png')
  if _AUDIT.value:
    options = {'samples': _SAMPLES.value, 'data': _DATA_DIR.value}
    try:
      result = config_audit.audit_config(c, **options)
    except errors.USER_ERRORS as e:
      launch.refuse(e)
    print(result.text())
    if folder is not None:
      audit.draw(result, folder / 'audit.png')


if __name__ == '__main__':
  app.run(main, flags_parser=launch.parse_flags)
