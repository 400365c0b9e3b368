"""Trains a config and estimates the Hessian's spectrum during training.

  python -m launch.spectrum --config=configs/NAME.py --workdir=DIR [--every=50]

Estimates the spectrum before round 0 and then every --every rounds. Prints a
table; writes spectrum.json, .md and .png and the files of launch.train. Started
again with the same workdir it resumes.
"""

from absl import app, flags
from fl_sketch.theory.curvature import during_training, spectrum_report
from fl_sketch.training import devices
import launch
from launch import errors
from ml_collections import config_flags

_CONFIG = config_flags.DEFINE_config_file('config', lock_config=True)
_WORKDIR = flags.DEFINE_string('workdir', None, 'Where the results go.')
_DATA_DIR = flags.DEFINE_string(
  'data_dir', None, 'Where tensorflow-datasets keeps its files.'
)
_EVERY = flags.DEFINE_integer(
  'every', None, 'Rounds; checkpoint_every of the config if unset.', 1
)
_STEPS = flags.DEFINE_integer(
  'lanczos_steps', 192, 'Lanczos steps; as many vectors are in memory.', 3
)
_PROBES = flags.DEFINE_integer('probes', 2, 'Probes of each spectrum.', 2)
_TOP = flags.DEFINE_integer('top', 50, 'Eigenvalues of the power law.', 3)
_SAMPLES = flags.DEFINE_integer('samples', 1000, 'Samples of the Hessian.', 1)
flags.mark_flags_as_required(['config', 'workdir'])


def main(argv):
  """Trains, estimates the spectra, prints their table."""
  launch.begin(argv)
  c = _CONFIG.value
  devices.start(cpu_devices=min(devices.cores(), c.cohort))
  options = during_training.Options(
    _STEPS.value, _PROBES.value, _TOP.value, _SAMPLES.value
  )
  try:
    rows = during_training.run(
      c.to_dict(),
      str(_WORKDIR.value),
      every=_EVERY.value,
      options=options,
      data_dir=_DATA_DIR.value,
    )
  except errors.USER_ERRORS as e:
    launch.refuse(e)
  print(spectrum_report.table(rows), _WORKDIR.value)


if __name__ == '__main__':
  app.run(main, flags_parser=launch.parse_flags)
