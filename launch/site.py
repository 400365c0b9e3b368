"""Run the resident worker of a site, beside the client of an engine.

  fl-sketch site CONFIG --client=N --data=FOLDER --state=FOLDER [-- COMMAND ...]

The site is client N of the config, on its own data: FOLDER/train.npz, and
test.npz if it has test data, or a function MODULE:FUNCTION or FILE.py:FUNCTION
of the config and the number of the client. COMMAND starts the client of the
engine, such as flower-supernode, which finds the worker in FL_SKETCH_SITE; the
site ends with it. A worker that dies is started again, from what it has kept in
the folder --state.
"""

import functools
import pathlib
import shutil
import sys

from absl import flags
from fl_sketch.sites import site_process

from . import begin, check_folders, configs, define, errors

configs.define_flag()
_FLAGS = define(
  client=(int, 'Number of the client.', 0),
  data=(str, 'Folder of train.npz, or MODULE:FUNCTION.'),
  state=(str, 'Folder of the state, and of the socket.'),
  cpu_devices=(1, 'Devices of the CPU, between which batches are split.'),
  compilation_cache=(True, 'Keep compiled programs in the cache folder.'),
  data_dir=(str, 'Folder of the files of tensorflow-datasets.'),
)
flags.mark_flags_as_required(['client', 'data', 'state'])
_AT = sys.argv.index('--') if '--' in sys.argv else len(sys.argv)
_OWN, _ENGINE = sys.argv[1:_AT], sys.argv[_AT + 1 :]


def main(argv):
  """Keep a worker running; in the worker's process, answer requests."""
  if site_process.is_worker():
    begin(argv)
    _work()
  check_folders()
  if argv[1:] != _ENGINE:
    sys.exit(f'Unknown argument {argv[1]!r}; put -- before the command.')
  if _ENGINE and shutil.which(_ENGINE[0]) is None:
    sys.exit(f'There is no command {_ENGINE[0]!r}; install it, or set PATH.')
  command = [sys.executable, '-m', f'{__package__}', 'site', *_OWN]
  try:
    status = site_process.keep(
      command, _ENGINE, pathlib.Path(_FLAGS.state, 'socket')
    )
  except (site_process.SiteError, OSError) as e:  # or a read-only folder
    status = f'{e}'
  sys.exit(status)


def _work():
  """Answer requests as the config's client on its own data; never returns."""
  from fl_sketch.runs import config, devices
  from fl_sketch.sites import own_data, site

  client, state = _FLAGS.client, _FLAGS.state
  options = {'client': client, 'where': _FLAGS.data}
  options['data_dir'] = _FLAGS.data_dir
  with errors.refused(ValueError, OSError):
    run_config = config.Config.from_mapping(configs.fields() | {'sweep': None})
    devices.start(cpu_devices=_FLAGS.cpu_devices)
    problem = functools.partial(own_data.of_site, **options)
    handler = site.client(run_config, client, problem, pathlib.Path(state))
  name = configs.workdir().partition('/')[2]
  site_process.serve_keeper(
    handler.handle,
    f'Client {client} of {run_config.population}, {name}: {handler.samples} '
    f'samples; its socket is {state}/socket.',
  )
