"""Run experiments of the papers and print which of their claims hold.

  fl-sketch reproduce --list
  fl-sketch reproduce NAME[:SCALE] [--workdir=DIR] [--data_dir=DIR]
  fl-sketch reproduce all[:SCALE] [--workdir=DIR] [--data_dir=DIR]
  fl-sketch reproduce --draw

SCALE is quick (a rehearsal on small data, without verdicts: a minute or a few
where a study trains many models), cpu (2 cores; --list has its minutes; the
default) or gpu. The workdir gets SCALE/NAME.json, NAME.md and
figures, and SCALE/index.md of all results in it. Started again it resumes.
--draw draws the figures of docs/results again, from the numbers kept there.
"""

import json
import pathlib
import sys

from fl_sketch.runs import devices
from fl_sketch.utils import UserError
import tqdm

from . import QUIET, begin, define, define_folders, errors, neighbour

catalog = neighbour('papers.catalog')
workspace = neighbour('papers.common.workspace')
pages = neighbour('papers.common.pages')
results = neighbour('papers.common.results')
verdicts = neighbour('papers.common.verdicts')

define_folders('runs/reproductions')
_FLAGS = define(
  list=(False, 'Names, titles, and minutes at cpu scale.'),
  draw=(False, 'Draws docs/results again.'),
  strict=(False, 'Status 1 where a claim fails.'),
  quiet=QUIET,
)


def main(argv):
  """Run one study, or all, and print verdicts."""
  begin(argv[:1] + argv[2:])
  if _FLAGS.list:
    print(f'{"study":18} min at cpu scale')
    for s in catalog.STUDIES.values():
      print(f'{s.name:18} {s.minutes:5.1f}  {s.title} ({s.source})')
    return
  if _FLAGS.draw:
    for path in results.STORED.glob('*.json'):
      print(*results.draw(json.loads(path.read_text()), path.parent), sep='\n')
    return
  if len(argv) < 2:
    sys.exit('Name a study, such as S1-Fig3, or all; --list shows them.')
  name, _, scale = argv[1].partition(':')
  scale = scale or 'cpu'
  try:
    if scale not in workspace.SCALES:
      raise ValueError(f'{scale=} is not one of {workspace.SCALES}.')
    names = list(catalog.STUDIES) if name == 'all' else [name]
    studies = [catalog.find(n) for n in names]
  except ValueError as e:
    errors.refuse(e)
  devices.start(cpu_devices=devices.cores())
  _run(studies, scale, pathlib.Path(_FLAGS.workdir))


def _run(studies, scale, root):
  # An absolute path: configs name files of the workspace, and must not change.
  folder, loud = root.resolve() / scale, not _FLAGS.quiet
  ws = workspace.Workspace(folder, scale, _FLAGS.data_dir, loud)
  played, missing = [], {}
  alone = len(studies) == 1
  bar = tqdm.tqdm(studies, unit='study', disable=alone or not loud)
  for study in bar:
    bar.set_description(study.name)
    try:
      results.run(study, ws)
      played.append(study.name)
    except UserError as e:
      if alone:
        raise
      missing[study.name] = f'{type(e).__name__}: {e}'
  page = [r for r, _ in results.collect([ws.folder], catalog.STUDIES)]
  pages.write(page, ws.folder, missing)
  for result in page:
    if result['name'] in played and loud:
      line = f'{result["name"]:18} {pages.summary([result])}'
      print(pages.text(result) if alone else line)
  for name, why in missing.items():
    print(f'{name:18} not run: {why}')
  print(ws.folder / 'index.md')
  fails = [c['verdict'] == verdicts.FAILS for r in page for c in r['claims']]
  sys.exit(1 if missing or (_FLAGS.strict and any(fails)) else 0)
