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

from . import begin, errors, parse_flags, refuse

_TO = flags.DEFINE_string(
  'to', None, 'Folder of the store to write.', required=True
)
_CLIENT = flags.DEFINE_string('client', None, 'Column of clients (kind table).')
_SPLIT = flags.DEFINE_string('split', None, 'Column of splits (kind table).')
_INPUTS = flags.DEFINE_string('inputs', None, 'Column of inputs (kind table).')
_LABEL = flags.DEFINE_string('label', None, 'Column of labels (kind table).')
_TEXT = flags.DEFINE_string('text', None, 'Column of texts (kind table).')
_CLASSES = flags.DEFINE_integer('classes', None, 'Number of labels.', 1)
_LENGTH = flags.DEFINE_integer(
  'length', None, 'Sequence length (characters or words).', 1
)
_VOCABULARY = flags.DEFINE_integer(
  'vocabulary', None, 'Number of words in the vocabulary.', 1
)
_SHARE = flags.DEFINE_float(
  'test_share', None, "Share of each client's samples held out for testing."
)
_SIZE = flags.DEFINE_integer(
  'size', None, 'Height and width of images in pixels.', 1
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
  options = {
    'client': _CLIENT, 'split': _SPLIT, 'inputs': _INPUTS, 'label': _LABEL,
    'text': _TEXT, 'classes': _CLASSES, 'length': _LENGTH,
    'vocabulary': _VOCABULARY, 'size': _SIZE, 'test_share': _SHARE,
  }  # fmt: skip
  given = {name: flag.value for name, flag in options.items()}
  try:
    with config.checked():
      data = importing.import_data(kind, path, _TO.value, **given)
  except (FileExistsError, *errors.USER_ERRORS) as e:
    refuse(e)
  sizes = {'training': data.partition.sizes}
  if data.held_out is not None:
    sizes['held out'] = np.diff(data.held_out)
  print(client_sizes.table(sizes), end='')
  with extras.optional_figures():
    client_sizes.draw(sizes, f'{_TO.value}/sizes.png', f'Clients of {kind}')


if __name__ == '__main__':
  app.run(main, flags_parser=parse_flags)
