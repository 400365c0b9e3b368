"""Plugin of pytest: compiles the programs of tests fast, and frees them."""

import ctypes
import gc
import os
import pathlib
import platform

import jax
import pytest

FAST = 'not nightly and not long'
# One part of a program after another: the other cores test, too.
COMPILE_FAST = '--xla_cpu_parallel_codegen_split_count=1'
# XLA's former code generator takes half the time; JAX 0.11 has it no more.
if jax.__version_info__ < (0, 11):
  COMPILE_FAST += ' --xla_cpu_use_fusion_emitters=false'
# Programs are what fills a worker. They go when it has the one size, or has
# grown by the other since they went last.
MOST_MIB, MORE_MIB = 800, 300
# Compiled programs outlive a run of the tests: JAX finds one by its code,
# compile options and version, so that a changed program is compiled again.
HOME = os.environ.get('XDG_CACHE_HOME', pathlib.Path.home() / '.cache')
CACHE = pathlib.Path(HOME, 'fl_sketch', 'test_programs', platform.node())
CACHE_MIB = 2000  # the oldest programs go
STATM = pathlib.Path('/proc/self/statm')
_limit = MOST_MIB


def pytest_configure(config):
  jax.config.update('jax_compilation_cache_dir', str(CACHE))
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.05)
  # Nor do subprocesses use the cache of the user.
  os.environ['JAX_COMPILATION_CACHE_DIR'] = str(CACHE)
  # A worker that reads what the other has half written compiles it itself.
  config.addinivalue_line(
    'filterwarnings', 'ignore:Error reading persistent compilation cache'
  )
  # Most of the fast tier is compiling, and a program that runs once is not
  # worth much of it. The other tiers leave XLA's defaults.
  if config.option.markexpr == FAST:
    before = os.environ.get('XLA_FLAGS', '')
    os.environ['XLA_FLAGS'] = f'{before} {COMPILE_FAST}'.strip()
    jax.config.update('jax_disable_most_optimizations', True)
    os.environ['JAX_DISABLE_MOST_OPTIMIZATIONS'] = 'true'  # of subprocesses


def pytest_unconfigure(config):
  if hasattr(config, 'workerinput') or not CACHE.exists():
    return
  files = [(path, path.stat()) for path in CACHE.iterdir()]
  size = 0
  for path, stat in sorted(files, key=lambda x: -x[1].st_mtime):
    size += stat.st_size
    if size > CACHE_MIB * 2**20:
      path.unlink(missing_ok=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
  """Runs the tests of a file, or of a group, in one process: they share."""
  for item in items:
    if not item.get_closest_marker('xdist_group'):
      item.add_marker(pytest.mark.xdist_group(item.path.stem))


def pytest_collection_finish():
  """Keeps the garbage collector from visiting thousands of tests."""
  gc.collect()
  gc.freeze()


def pytest_runtest_teardown():
  """Unloads programs of earlier tests before there are too many."""
  global _limit
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
