"""Import published files of natural clients into a store.

  fl-sketch import-data KIND PATH --to=DIR

KIND is femnist, femnist_digits, cifar100, shakespeare, stackoverflow, plays
(tiny Shakespeare, by speaker), or table (Parquet or CSV of your own, with
--client=COLUMN and --classes=N). PATH is a file or folder in one of the layouts
that the kind is published in. Then `--config.dataset=store
--config.dataset_options.folder=DIR` trains on it. Prints a table of
sizes.
"""

import sys

from absl import flags

from . import begin, define, errors

_OPTIONS = {
  'client': (str, 'Column of clients (kind table).'),
  'split': (str, 'Column of splits (kind table).'),
  'inputs': (str, 'Column of inputs (kind table).'),
  'label': (str, 'Column of labels (kind table).'),
  'text': (str, 'Column of texts (kind table).'),
  'classes': (int, 'Number of labels.'),
  'length': (int, 'Sequence length (characters or words).'),
  'vocabulary': (int, 'Number of words in the vocabulary.'),
  'size': (int, 'Height and width of images in pixels.'),
  'test_share': (float, "Share of each client's samples held out for testing."),
}
_FLAGS = define(to=(str, 'Folder of the store.'), **_OPTIONS)
flags.mark_flag_as_required('to')


def main(argv):
  """Write the store; print the sizes of its clients."""
  from fl_sketch.data.natural import importing, tasks
  from fl_sketch.runs import config
  import numpy as np

  begin(argv[:1])
  if len(argv) != 3:
    sys.exit(f'Name KIND and PATH; KIND is one of {[*tasks.KINDS]}.')
  kind, path = argv[1:]
  options = {name: _FLAGS[name].value for name in _OPTIONS}
  with errors.refused(OSError), config.checked():
    data = importing.import_data(kind, path, _FLAGS.to, **options)
  sizes = {'training': data.partition.sizes}
  if data.held_out is not None:
    sizes['held out'] = np.diff(data.held_out)
  print(importing.sizes_table(sizes), end='')
