"""Imports published files of natural clients into a store.

  fl-sketch import-data KIND PATH --to=DIR

KIND is femnist, femnist_digits, cifar100, shakespeare, stackoverflow, plays
(tiny Shakespeare, by speaker), photos (iNaturalist, Landmarks), flair, reddit,
or table (Parquet or CSV of your own, with --client=COLUMN and --classes=N).
PATH is a file or folder in one of the layouts that the kind is published in.
Then `--config.dataset=store --config.dataset_options.folder=DIR` trains on it.
Prints a table of sizes, which DIR/sizes.png draws. The same command resumes an
interrupted import.
"""

import sys

from absl import app, flags

from . import begin, errors, parse_flags

_TO = flags.DEFINE_string('to', None, 'Folder of the store.', required=True)
_COLUMNS = {
  'client': 'clients', 'split': 'splits', 'inputs': 'inputs', 'label': 'labels',
  'text': 'texts',
}  # fmt: skip
_NUMBERS = {
  'classes': 'Number of labels.',
  'length': 'Sequence length (characters or words).',
  'vocabulary': 'Number of words in the vocabulary.',
  'size': 'Height and width of images in pixels.',
}
for _name, _what in _COLUMNS.items():
  flags.DEFINE_string(_name, None, f'Column of {_what} (kind table).')
for _name, _what in _NUMBERS.items():
  flags.DEFINE_integer(_name, None, _what, 1)
flags.DEFINE_float(
  'test_share', None, "Share of each client's samples held out for testing."
)


def main(argv):
  """Write the store; print and draw the sizes of its clients."""
  from fl_sketch.data.natural import importing, kinds
  from fl_sketch.experiment import config
  from fl_sketch.reporting import client_sizes
  from fl_sketch.utils import extras
  import numpy as np

  begin(argv[:1])
  if len(argv) != 3:
    sys.exit(f'Name KIND and PATH; KIND is one of {[*kinds.KINDS]}.')
  kind, path = argv[1:]
  names = *_COLUMNS, *_NUMBERS, 'test_share'
  given = {name: flags.FLAGS[name].value for name in names}
  with errors.refused(FileExistsError), config.checked():
    data = importing.import_data(kind, path, _TO.value, **given)
  sizes = {'training': data.partition.sizes}
  if data.held_out is not None:
    sizes['held out'] = np.diff(data.held_out)
  print(client_sizes.table(sizes), end='')
  with extras.optional_figures():
    client_sizes.draw(sizes, f'{_TO.value}/sizes.png', f'Clients of {kind}')


if __name__ == '__main__':
  app.run(main, flags_parser=parse_flags)
