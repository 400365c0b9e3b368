"""A recurrent model of characters, on a text of one's own."""

import pathlib

from fl_sketch import data, models
import flax.linen as nn
import numpy as np

from . import new


@data.register
def own_text(path: str, length: int = 24):
  """Ten clients hold a part of the text each; the last part is for tests."""
  letters = np.frombuffer(pathlib.Path(path).read_bytes(), np.uint8)
  known, numbers = np.unique(letters, return_inverse=True)
  whole = len(numbers) // (length + 1) * (length + 1)
  rows = numbers[:whole].astype(np.int32).reshape(-1, length + 1)
  parts = [{'x': x[:, :-1], 'y': x[:, 1:]} for x in np.array_split(rows, 11)]
  return data.from_clients(parts[:-1], parts[-1], num_classes=len(known))


@models.register(name='own_gru', hyper=('gain',))
class OwnGRU(nn.Module):
  """Logits of the next character, from those before it."""

  num_classes: int
  width: int = 32
  gain: float = 1.0

  @nn.compact
  def __call__(self, x):
    """Returns logits f32[batch, length, num_classes]."""
    h = self.gain * nn.Embed(self.num_classes, self.width)(x)
    return nn.Dense(self.num_classes)(nn.RNN(nn.GRUCell(self.width))(h))


def get_config():
  """SAFL on text.txt of the working folder."""
  c = new()
  c.dataset, c.dataset_options.path = 'own_text', 'text.txt'
  c.model, c.model_options.gain, c.loss = 'own_gru', 1.0, 'tokens'
  c.population = c.cohort = 10
  c.algorithm, c.server_optimizer, c.server_lr = 'safl', 'adam', 0.01
  c.sketch.kind, c.sketch.size = 'block_cyclic', 512
  return c
