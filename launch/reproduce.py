"""Runs experiments of the papers and prints which of their claims hold.

  fl-sketch reproduce --list
  fl-sketch reproduce NAME[:SCALE] [--workdir=DIR] [--data_dir=DIR]
  fl-sketch reproduce all[:SCALE] [--workdir=DIR] [--data_dir=DIR]
  fl-sketch reproduce --page [--workdir=DIR]

SCALE is quick (seconds), cpu (minutes on 2 cores; the default) or gpu. The
workdir gets SCALE/NAME.json, .md and figures, and index.html, one page of all
results in it. Started again it resumes. --page builds the page of the results
in docs/results, copies of the .json and .png files of DIR/cpu.
"""

import pathlib
import sys

from absl import app, flags
from fl_sketch.reproduce import catalog, lab as lab_lib, page, results
from fl_sketch.training import devices
import tqdm

from . import begin, errors, parse_flags, refuse

_LIST = flags.DEFINE_bool('list', False, 'Names, titles and minutes.')
_PAGE = flags.DEFINE_bool('page', False, 'Builds the page of docs/results.')
_WORKDIR = flags.DEFINE_string(
  'workdir', 'runs/reproductions', 'Where the results go.'
)
_DATA_DIR = flags.DEFINE_string(
  'data_dir', None, 'Where tensorflow-datasets keeps its files.'
)
_STRICT = flags.DEFINE_bool(
  'strict', False, 'End with status 1 where a claim does not hold.'
)


def main(argv):
  """Runs one study, or all, and prints verdicts."""
  begin(argv[:1] + argv[2:])
  if _LIST.value:
    for s in catalog.STUDIES.values():
      print(f'{s.name:14} {s.minutes:5.1f} min  {s.title} ({s.source})')
    return
  folder = pathlib.Path(str(_WORKDIR.value))
  if _PAGE.value:
    kept = results.collect([results.KEPT], catalog.STUDIES)
    _write_page(folder, kept, {})
    return
  if len(argv) < 2:
    raise app.UsageError('Expected --list, --page, or NAME.')
  name, _, scale = argv[1].partition(':')
  scale = scale or 'cpu'
  try:
    if scale not in lab_lib.SCALES:
      raise ValueError(f'Expected {scale=} in {lab_lib.SCALES}.')
    names = list(catalog.STUDIES) if name == 'all' else [name]
    studies = [catalog.find(n) for n in names]
  except ValueError as e:
    refuse(e)
  devices.start(cpu_devices=devices.cores())
  _run(studies, scale, folder)


def _run(studies, scale, root):
  # An absolute path: configs name files of the lab, and must not change.
  lab = lab_lib.Lab(root.resolve() / scale, scale, _DATA_DIR.value)
  played, missing = [], {}
  bar = tqdm.tqdm(studies, unit='study', disable=len(studies) == 1)
  for study in bar:
    bar.set_description(study.name)
    try:
      played.append(results.play(study, lab))
    except errors.USER_ERRORS as e:
      if len(studies) == 1:
        refuse(e)
      missing[study.name] = f'{type(e).__name__}: {e}'
  for result in played:
    print(results.text(result) if len(studies) == 1 else _line(result))
  for name, why in missing.items():
    print(f'{name:14} not run: {why}')
  folders = [root / name for name in lab_lib.SCALES]
  _write_page(root, results.collect(folders, catalog.STUDIES), missing)
  failed = any(c['ok'] is False for r in played for c in r['claims'])
  sys.exit(1 if missing or (_STRICT.value and failed) else 0)


def _write_page(folder, entries, missing):
  path = folder / 'index.html'
  page.write(path, entries, missing)
  print(path)


def _line(result) -> str:
  return f'{result["name"]:14} {result["verdict"]}'


if __name__ == '__main__':
  app.run(main, flags_parser=parse_flags)
