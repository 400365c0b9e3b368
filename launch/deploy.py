"""Run the server of a config whose clients are real sites, over an engine.

  fl-sketch deploy CONFIG --engine=flower --workdir=DIR [--superlink=NAME]
  fl-sketch deploy CONFIG --engine=nvflare --workdir=DIR [--kit=DIR]
  fl-sketch deploy CONFIG --engine=local --workdir=DIR --data=DIR/{client}

Without --superlink or --kit it writes the app, DIR/app, for the engine's own
commands. `local` plays all sites in this process, on the data that --data names
for each client, as `fl-sketch site` takes it. Started again it goes on from the
last checkpoint.
"""

import functools
import json
import pathlib

from fl_sketch.utils import files

from . import begin, configs, define, define_folders, errors

configs.define_flag()
_FLAGS = define(
  engine=('local', 'What carries messages.', ['local', 'flower', 'nvflare']),
  data=(str, 'Of local sites: folder or function; {client} is the number.'),
  superlink=(str, "Connection in Flower's config.toml on which to run."),
  kit=(str, 'Startup kit of an NVFlare admin, to submit and supervise.'),
  timeout=(60.0, 'Seconds for a reply; a later site is absent.', 0.1),
  first_timeout=(600.0, 'The same for the first reply of a site.', 0.1),
)
define_folders(unset='runs/CONFIG')


def main(argv):
  """Run the server, or write the app of the engine."""
  begin(argv)
  from fl_sketch.runs.config import Config

  folder = pathlib.Path(_FLAGS.workdir or configs.workdir())
  names = 'timeout', 'first_timeout', 'data_dir'
  options = {x: _FLAGS[x].value for x in names if _FLAGS[x].value is not None}
  run = {'local': _local, 'flower': _flower, 'nvflare': _nvflare}
  with errors.refused(ValueError, OSError):  # or a read-only folder
    config = Config.from_mapping(configs.fields() | {'sweep': None})
    run[_FLAGS.engine](config, folder, options)


def _local(config, folder, options):
  from fl_sketch import runs
  from fl_sketch.sites import federation, own_data, site
  from fl_sketch.sites.transport import LocalSites

  if _FLAGS.data is None:
    raise ValueError('Set --data: what each site holds.')
  sites, programs = {}, None
  for number in range(config.population):
    data = _FLAGS.data.format(client=number)
    problem = functools.partial(
      own_data.of_site, client=number, where=data, data_dir=_FLAGS.data_dir
    )
    state = folder / 'sites' / f'{number}'
    client = site.client(config, number, problem, state, programs)
    programs, sites[f'{number}'] = client.programs, client.handle
  result = federation.run(config, LocalSites(sites), folder, **options)
  print(runs.summary_line(result.row, result.finished), folder)


def _flower(config, folder, options):
  from fl_sketch.sites import flower

  fields = files.as_json(config)
  written = flower.deploy(fields, folder / 'app', folder, **options)
  if _FLAGS.superlink is None:
    print(f'flwr run {written} SUPERLINK')
  else:
    flower.start(written, _FLAGS.superlink)
    _show_end(folder)


def _nvflare(config, folder, options):
  from fl_sketch.sites import nvflare_jobs

  fields = files.as_json(config)
  job = nvflare_jobs.deploy(fields, folder / 'app', folder, **options)
  if _FLAGS.kit is None:
    print(f'The job is {job}.')
    return
  watch = nvflare_jobs.Watch(job, min_sites=config.population)
  nvflare_jobs.supervise(_FLAGS.kit, watch)
  _show_end(folder)


def _show_end(folder):
  """Print the end of a run, whose folder may be on another machine."""
  from fl_sketch import runs

  summary = folder / 'summary.json'
  if summary.exists():
    row = json.loads(summary.read_text())
    print(runs.summary_line(row, finished=True), folder)
  else:
    print(f'The run is over; the server has its files, {folder.absolute()}.')
