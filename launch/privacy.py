"""Print the privacy statement of a run, or delete its secret.

  fl-sketch privacy WORKDIR [--check | --forget_secret [--unfinished]]

Whoever reads WORKDIR/secret/entropy can remove the noise. --forget_secret
empties it after the last round of a run, or of a sweep, which cannot have more
rounds then. Copies of the file, as in backups, must be deleted, too.
--check proves the run's certificate again (docs/concepts/check_it_yourself.md).
"""

import pathlib
import sys

from fl_sketch.privacy import check_certificate
from fl_sketch.runs import loaded, noise_secret
from fl_sketch.utils import digests

from . import begin, define, define_folders

define_folders()
_FLAGS = define(
  forget_secret=(False, 'Delete the secret.'),
  unfinished=(False, 'Also before its end.'),
  check=(False, 'Check the certificate of the run.'),
)


def main(argv):
  """Print the statement, and where the secret is."""
  begin(argv[:1])
  if len(argv) != 2:
    sys.exit('Name one WORKDIR, the folder of a private run.')
  if _FLAGS.check:
    sys.exit(_check(pathlib.Path(argv[1])))
  if _FLAGS.forget_secret:
    noise_secret.forget(argv[1], unfinished=_FLAGS.unfinished)
  else:
    run = loaded.load(argv[1], data_dir=_FLAGS.data_dir)
    said = run.summary.get('privacy', {}).get('sentence')
    private = said is None and run.config.is_private  # not ended, or older
    if private and (guarantee := run.experiment.guarantee):
      said = guarantee.statement.sentence()
    print(said or f'{argv[1]} is not private; set epsilon in its config.')
  print(noise_secret.sentence(argv[1]))


def _check(folder):
  """Check the certificate of a run; return the exit status."""
  path = folder / 'certificate.json'
  if not path.exists():
    sys.exit(f'{path} does not exist: the run is not private, or older.')
  said = loaded.load(folder, data_dir=_FLAGS.data_dir).summary
  digest = said.get('privacy', {}).get('certificate')
  if digest not in (None, digests.of_text(path.read_text())):
    sys.exit(f'{path} is not the certificate of the run: its SHA-256 differs.')
  return check_certificate.main(['', str(path)])
