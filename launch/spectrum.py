"""Train a config and estimate the Hessian's spectrum during training.

  fl-sketch spectrum CONFIG [--workdir=DIR] [--every=50]

Estimates the spectrum before round 0 and then every --every rounds. Prints a
table; writes spectrum.json, .md and .png and the files of `fl-sketch train`.
Started again with the same workdir it resumes.
"""

from fl_sketch.runs import devices

from . import begin, configs, define, define_folders, neighbour

_CURVATURE = neighbour('papers.chen.curvature')

_CONFIG = configs.define_flag()
define_folders(unset='runs/spectrum_CONFIG')
_FLAGS = define(
  every=(int, 'Rounds; checkpoint_every of the config if unset.'),
  lanczos_steps=(192, 'Lanczos steps; as many vectors are in memory.', 3),
  probes=(2, 'Probes of each spectrum.', 2),
  top=(50, 'Eigenvalues of the power law.', 3),
  samples=(1000, 'Samples of the Hessian.', 1),
)


def main(argv):
  """Train, estimate the spectra, print their table."""
  begin(argv)
  c, folder = _CONFIG.value, _FLAGS.workdir or configs.workdir('spectrum_')
  devices.start(cpu_devices=min(devices.cores(), c.cohort))
  during = _CURVATURE.during_training
  sizes = _FLAGS.lanczos_steps, _FLAGS.probes, _FLAGS.top, _FLAGS.samples
  more = {'options': during.Options(*sizes), 'data_dir': _FLAGS.data_dir}
  rows = during.run(configs.fields(), folder, every=_FLAGS.every, **more)
  print(_CURVATURE.spectrum_report.table(rows), folder)
