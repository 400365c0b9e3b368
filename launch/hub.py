"""Run the hub of sites that exchange outer steps.

  fl-sketch hub --workdir=FOLDER --sites=2 [--address=tcp://*:7000]

Closes the rounds of sites, each a `fl_sketch.sites.hosted.Site`, and keeps
their payloads in FOLDER: with the same folder a hub goes on after a restart.
--sites is the number with which the first round begins. With --keys=KEYS
messages are encrypted, and only sites with a key in KEYS/sites are answered.
"""

import pathlib
import signal

from absl import flags
from fl_sketch.sites import hub

from . import begin, define, define_folders

define_folders()
_FLAGS = define(
  address=('tcp://*:7000', 'Address of ZeroMQ at which sites connect.'),
  sites=(1, 'Number of sites of the first round.'),
  silence=(3.0, 'Seconds after which the others go on without a site.'),
  deadline=(60.0, 'Seconds from the first payload of a round to its end.'),
  keys=(str, 'Folder of hub.key_secret, and of sites/*.key.'),
)
flags.mark_flag_as_required('workdir')


def main(argv):
  """Serve until it is interrupted."""
  begin(argv)
  keys = None if _FLAGS.keys is None else pathlib.Path(_FLAGS.keys)
  made = hub.Hub(
    _FLAGS.address, pathlib.Path(_FLAGS.workdir), sites=_FLAGS.sites,
    silence=_FLAGS.silence, deadline=_FLAGS.deadline, keys=keys,
  )  # fmt: skip
  for number in signal.SIGINT, signal.SIGTERM:
    signal.signal(number, lambda *_: made.stop())
  print(f'The hub is at {made.address}; rounds: {len(made.log)}.', flush=True)
  made.serve()
