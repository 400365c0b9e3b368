"""Two CPU devices always; silent broadcasting and warnings are errors."""

import ctypes
import gc
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


# Compiled programs are what fills a worker. They go when it has the one size,
# or has grown by the other since they went last.
MOST_MIB, MORE_MIB = 1000, 300
STATM = pathlib.Path('/proc/self/statm')
_limit = MOST_MIB


def pytest_collection_finish():
  """Spares the collector of garbage the thousands of tests it would visit."""
  gc.collect()
  gc.freeze()


@pytest.fixture(autouse=True)
def free_programs():
  """Unloads programs of earlier tests before there are too many."""
  global _limit
  yield
  if STATM.exists() and _resident_mib() > _limit:
    jax.clear_caches()
    gc.collect()
    # Else the C library keeps what was freed.
    trim = getattr(ctypes.CDLL(None), 'malloc_trim', lambda pad: None)
    trim(0)
    _limit = max(MOST_MIB, _resident_mib() + MORE_MIB)


def _resident_mib():
  pages = int(STATM.read_text(encoding='ascii').split()[1])
  return pages * os.sysconf('SC_PAGE_SIZE') / 2**20


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
