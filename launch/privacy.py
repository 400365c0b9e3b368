"""Print the privacy statement of a run, or delete its secret.

  fl-sketch privacy WORKDIR [--forget_secret [--unfinished]]

Whoever reads WORKDIR/secret/entropy can remove the noise. --forget_secret
empties it after the last round of a run, or of a sweep, which cannot have more
rounds then. Copies of the file, as in backups, must be deleted, too.
"""

import sys

from absl import flags
from fl_sketch.runs import loaded, noise_secret

from . import begin, define_folders, errors

_, _DATA_DIR = define_folders()
_FORGET = flags.DEFINE_boolean('forget_secret', False, 'Delete the secret.')
_UNFINISHED = flags.DEFINE_bool('unfinished', False, 'Also before its end.')


def main(argv):
  """Print the statement, and where the secret is."""
  begin(argv[:1])
  if len(argv) != 2:
    sys.exit('Name one WORKDIR, the folder of a private run.')
  with errors.refused():
    if _FORGET.value:
      noise_secret.forget(argv[1], unfinished=_UNFINISHED.value)
    else:
      run = loaded.load(argv[1], data_dir=_DATA_DIR.value)
      said = run.summary.get('privacy', {}).get('sentence')
      private = said is None and run.config.is_private  # not ended, or older
      if private and (guarantee := run.experiment.guarantee):
        said = guarantee.statement.sentence()
      print(said or f'{argv[1]} is not private; set epsilon in its config.')
  print(noise_secret.sentence(argv[1]))
