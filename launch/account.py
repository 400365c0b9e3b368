"""Prints the privacy guarantee of a config without training.

  fl-sketch account CONFIG [--workdir=DIR] [--audit]

Prints the privacy statement of a run (ignoring its sweep) and epsilon over the
rounds; writes privacy.json, epsilon.png and trade_off.png (the most true
positives at each false-positive rate) into a workdir. --audit attacks the
mechanism with canaries, by rounds of the config's algorithm on a small model;
with a workdir it draws audit.png.
"""

import pathlib

from absl import app, flags
from fl_sketch import experiment
from fl_sketch.experiment import audit as config_audit, config, privacy_report
from fl_sketch.privacy import audit, types
from fl_sketch.training import devices
from fl_sketch.utils import extras, files

from . import begin, configs, errors, parse_flags, refuse

_CONFIG = configs.define_flag()
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


def main(argv):
  """Prints the account of a config, and its audit with --audit."""
  begin(argv)
  devices.start()
  folder = None if _WORKDIR.value is None else pathlib.Path(_WORKDIR.value)
  try:
    fields = configs.fields() | {'sweep': None}
    c = config.Config.from_mapping(fields)
    guarantee = experiment.account(c, _DATA_DIR.value)
  except errors.USER_ERRORS as e:
    refuse(e)
  epsilons = privacy_report.curve(guarantee, c.rounds)
  signal = privacy_report.signal(c, guarantee)
  print(privacy_report.text(guarantee, epsilons, signal))
  if folder is not None:
    folder.mkdir(parents=True, exist_ok=True)
    report = {'epsilons': types.plain(epsilons)} | guarantee.statement.as_dict()
    files.replace(folder / 'privacy.json', report)
    with extras.optional_figures():
      privacy_report.draw(guarantee, epsilons, folder / 'epsilon.png')
      privacy_report.draw_trade_off(guarantee, folder / 'trade_off.png')
  if _AUDIT.value:
    options = {'samples': _SAMPLES.value, 'data': _DATA_DIR.value}
    try:
      result = config_audit.audit_config(c, **options)
    except errors.USER_ERRORS as e:
      refuse(e)
    print(result.text())
    if folder is not None:
      with extras.optional_figures():
        audit.draw(result, folder / 'audit.png')


if __name__ == '__main__':
  app.run(main, flags_parser=parse_flags)
