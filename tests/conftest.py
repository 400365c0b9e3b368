"""Two CPU devices always; silent broadcasting and warnings are errors."""

import gc
import itertools
import os
import pathlib
import shutil
import tempfile

import jax
import pytest
import tiers

jax.config.update('jax_platforms', 'cpu')
jax.config.update('jax_num_cpu_devices', 2)
jax.config.update('jax_numpy_rank_promotion', 'raise')

# Tests never read or write the user's cache of decoded data.
CACHE = tempfile.mkdtemp(prefix='fl_sketch_tests_')
os.environ['FL_SKETCH_CACHE'] = CACHE

# A program that many tests build anew compiles once in a worker. Workers do not
# share: JAX's cache lets one read what another has half written.
jax.config.update('jax_compilation_cache_dir', f'{CACHE}/programs')
jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)


# A loaded program takes dozens of memory maps. Linux lets a process have
# 65,530; XLA crashes where it gets no more.
MOST_MAPS = 30_000
MAPS = pathlib.Path('/proc/self/maps')
_tests = itertools.count()


def pytest_collection_finish():
  """Spares the collector of garbage the thousands of tests it would visit."""
  gc.collect()
  gc.freeze()


@pytest.fixture(autouse=True)
def free_programs():
  """Unloads programs of earlier tests before there are too many."""
  yield
  if next(_tests) % 20 == 0 and MAPS.exists():
    if MAPS.read_bytes().count(b'\n') > MOST_MAPS:
      jax.clear_caches()


# XLA's former code generator, in JAX below 0.11, takes half the time. Only the
# fast tier uses it.
COMPILE_FAST = '--xla_cpu_use_fusion_emitters=false'


def pytest_configure(config):
  is_fast = 'not nightly' in config.option.markexpr
  if is_fast and jax.__version_info__ < (0, 11):
    before = os.environ.get('XLA_FLAGS', '')
    os.environ['XLA_FLAGS'] = f'{before} {COMPILE_FAST}'.strip()
  # A plugin's hooks see doctests too; those of this file see tests/ alone.
  config.pluginmanager.register(tiers)


def pytest_unconfigure():
  shutil.rmtree(CACHE)
