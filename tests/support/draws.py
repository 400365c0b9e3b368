"""Parameters of models, drawn without a compiler."""

from fl_sketch import models
import jax
import numpy as np


def by_numpy(monkeypatch):
  """Models begin at small normal numbers: XLA compiles theirs for seconds."""
  init = models.init_params

  def draw(module, key, *sample):
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    shapes = jax.eval_shape(lambda key: init(module, key, *sample), key)
    normal = lambda x: 0.1 * rng.standard_normal(x.shape, np.float32)
    return jax.tree.map(normal, shapes)

  monkeypatch.setattr(models, 'init_params', draw)
