"""Compare a method of your own with the stored ones, by their protocol.

  fl-sketch compare FILE.py --task=clothes [--repetitions=3] [--data_dir=DIR]
  fl-sketch compare 'block_srht(size=617)' --task=characters
  fl-sketch compare 'EDEN, 0.01' --task=digits

FILE.py has a function fields(dimension), which returns fields of a config, and
may register an algorithm, sketch or codec; a text is a sketch, a codec or the
name of a stored row, which is made again. In each repetition its rate is tuned
on a seed apart, and it runs on a reported seed. The workdir gets its page: its
row in the stored table, intervals and verdicts. Started again it resumes.
"""

import functools
import pathlib
import sys

from fl_sketch.runs import devices

from . import QUIET, SLIPS, begin, define, define_folders, neighbour, slip

own = neighbour('papers.compressors.own')
pages = neighbour('papers.common.pages')
results = neighbour('papers.common.results')
study = neighbour('papers.common.study')
workspace = neighbour('papers.common.workspace')

define_folders('runs/compare')
_FLAGS = define(
  task=('clothes', 'Task, of a stored table.', [*own.BENCHMARKS]),
  repetitions=(3, 'Repetitions, at most those of the stored table.'),
  quick=(False, 'Rehearse on small data, without verdicts.'),
  quiet=QUIET,
)


def main(argv):
  """Tune, run and judge one method."""
  begin(argv[:1] + argv[2:])
  if len(argv) < 2:
    sys.exit('Name a file that ends in .py, a sketch, a codec or a stored row.')
  devices.start(cpu_devices=devices.cores())
  scale = 'quick' if _FLAGS.quick else 'cpu'
  folder = pathlib.Path(_FLAGS.workdir).resolve() / scale
  ws = workspace.Workspace(folder, scale, _FLAGS.data_dir, not _FLAGS.quiet)
  try:
    own.check(ws, argv[1], _FLAGS.task)
  except SLIPS as e:
    sys.exit(slip(e, argv[1]))
  run = functools.partial(
    own.report, text=argv[1], name=_FLAGS.task, repetitions=_FLAGS.repetitions
  )
  name = own.page_of(_FLAGS.task, argv[1])
  source = f'By the protocol of {own.BENCHMARKS[_FLAGS.task].study}'
  title = f'{argv[1]} beside the stored methods'
  made = study.Study(name, title, source, run, 30)
  command = (
    f'fl-sketch compare {argv[1]!r} --task={_FLAGS.task} '
    f'--repetitions={_FLAGS.repetitions}{" --quick" * _FLAGS.quick}'
  )
  result = results.run(made, ws, command)
  results.judge([result])
  pages.write([result], folder)
  print(pages.text(result))
  print(folder / f'{name}.md')
