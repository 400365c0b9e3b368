"""Folders of published files, and artificial sentences in their place."""

import numpy as np
import pytest

WORDS = 'a bad film is not good but an unlovely , charming one was so'.split()


@pytest.fixture
def folder(tmp_path):
  """Files of artificial sentences in place of those of SST-2."""
  rng = np.random.default_rng(0)
  (tmp_path / 'sst2').mkdir()
  for split, count in (('train', 60), ('test', 20)):
    lines = [
      ' '.join(rng.choice(WORDS, rng.integers(1, 14))) + f'\t{i % 2}\n'
      for i in range(count)
    ]
    (tmp_path / 'sst2' / f'{split}.tsv').write_text(''.join(lines))
  return tmp_path


@pytest.fixture
def files(tmp_path):
  """A folder of published files, beside which a test makes its stores."""
  (tmp_path / 'files').mkdir()
  return tmp_path / 'files'
