"""Two CPU devices always; silent broadcasting and warnings are errors."""

import os
import tempfile

import jax

jax.config.update('jax_platforms', 'cpu')
jax.config.update('jax_num_cpu_devices', 2)
jax.config.update('jax_numpy_rank_promotion', 'raise')

# Tests never read or write the user's cache of decoded data.
os.environ['FL_SKETCH_CACHE'] = tempfile.mkdtemp(prefix='fl_sketch_tests_')
