"""Two CPU devices always; silent broadcasting and warnings are errors."""

import os
import shutil
import tempfile

import jax

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


def pytest_unconfigure():
  shutil.rmtree(CACHE)
