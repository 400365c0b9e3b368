"""What works without the packages of extras, and what the rest says."""

import sys

from fl_sketch.utils import extras, progress
import harness
import pytest

PACKAGES = (
  'PIL', 'dm_pix', 'h5py', 'matplotlib', 'pyarrow', 'safetensors',
  'tensorflow_datasets', 'tokenizers',
)  # fmt: skip
# Loads every module without them; prints those that cannot be loaded.
LOAD = f"""
import importlib, sys
import test_layers
from fl_sketch.utils import extras
sys.modules |= dict.fromkeys({PACKAGES})
for name in test_layers.modules():
  if name.split('.')[0] in ('fl_sketch', 'configs'):
    try:
      importlib.import_module(name)
    except extras.MissingExtraError:
      print(name)
"""


@pytest.mark.nightly
def test_every_module_loads_without_extras():
  """Catches an import that makes an optional package a needed one."""
  path = f'{harness.ROOT}/tests'
  assert not harness.python('-c', LOAD, PYTHONPATH=path)


@pytest.mark.nightly
def test_a_run_without_matplotlib_ends_and_says_how_to_get_curves(
  tmp_path, capsys, monkeypatch
):
  """Catches a run that is lost for its figures."""
  for name in [*sys.modules]:
    if name.partition('.')[0] == 'matplotlib':
      monkeypatch.delitem(sys.modules, name)
  monkeypatch.setitem(sys.modules, 'matplotlib', None)
  progress.note_once.cache_clear()
  assert harness.train(tmp_path).finished
  assert (tmp_path / 'summary.json').exists()
  assert not [*tmp_path.glob('*.png')]
  assert "pip install 'fl_sketch[plots]'" in capsys.readouterr().err


def test_only_a_missing_package_is_an_extra():
  """Catches a misspelt name of an installed package that is called missing."""
  with pytest.raises(extras.MissingExtraError) as e, extras.needed('text'):
    import absent
  assert (e.value.name, 'fl_sketch[text]' in str(e.value)) == ('absent', True)
  with pytest.raises(ImportError, match='cannot import name') as e:
    with extras.needed('text'):
      from json import absent  # noqa: F401
  assert type(e.value) is ImportError
