"""Two CPU devices always; silent broadcasting and warnings are errors."""

import os
import shutil
import tempfile

import jax
import programs
import pytest
import tiers

jax.config.update('jax_platforms', 'cpu')
jax.config.update('jax_num_cpu_devices', 2)
jax.config.update('jax_numpy_rank_promotion', 'raise')

# Tests never read or write the user's cache of decoded data.
CACHE = tempfile.mkdtemp(prefix='fl_sketch_tests_')
os.environ['FL_SKETCH_CACHE'] = CACHE


def pytest_configure(config):
  # A plugin's hooks see doctests too; those of this file see tests/ alone.
  for plugin in (tiers, programs):
    config.pluginmanager.register(plugin)


def pytest_unconfigure():
  shutil.rmtree(CACHE)


@pytest.fixture
def own_parts():
  """Forgets the parts that a test registers, which others would find."""
  import registered  # loads fl_sketch: not before a test needs it

  with registered.forgotten():
    yield


@pytest.fixture(scope='module')
def unproven():
  """Leaves out the proof of private rounds, which takes most of a build."""
  from fl_sketch.runs import experiment

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(experiment, 'proved', lambda exp: exp)
    yield
