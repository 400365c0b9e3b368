"""The client under attack: a model, its loss and its batches."""

import itertools
from typing import NamedTuple

from fl_sketch import models
from fl_sketch.data import sources
from fl_sketch.models import losses
from fl_sketch.runs import same_run
from fl_sketch.utils.types import Params
import jax
import jax.numpy as jnp
import numpy as np

from .settings import AttackConfig

_MOST_CANDIDATES = 1000


class Victim(NamedTuple):
  """A model and its training samples."""

  loss_fn: losses.LossFn  # (params, {'x', 'y'}) -> f32[]
  params: Params
  x: np.ndarray  # f32[samples, ...], images from 0 to 1
  y: np.ndarray  # int32[samples], or f32[samples, outputs]
  num_classes: int | None  # of the labels, None if they are numbers

  @property
  def unknowns(self) -> int:
    """The numbers of one input, m."""
    return self.x[0].size


def load(c: AttackConfig, data_dir: str | None = None) -> Victim:
  """Return the initial model and the samples of a config."""
  count = c.examples * max(c.batch_sizes)
  if c.dataset == 'gaussian':
    return _tanh(c, count)
  dataset = sources.load(c.dataset, data_dir)
  x, y = (dataset.test[k][c.skip :] for k in ('x', 'y'))
  if len(x) < count:
    raise ValueError(f'examples x batch size = {count} must be <= {len(x)}.')
  options = {}
  if c.model == 'mlp':
    options = {'widths': tuple(c.widths), 'activation': c.activation}
  module = models.make(c.model, dataset.num_classes, **options)
  params = models.init_params(module, jax.random.key(c.seed), x.shape[1:])
  loss_fn = losses.classification(module)
  x = x[:count].astype(np.float32) / 255
  return Victim(loss_fn, params, x, y[:count], dataset.num_classes)


def identify(victim: Victim) -> same_run.Record:
  """Returns the record of its samples."""
  return same_run.record([victim.x, victim.y])


def candidates(num_classes: int, batch_size: int) -> np.ndarray:
  """All multisets of labels of a batch, int32[candidates, batch_size].

  >>> candidates(3, 2).tolist()
  [[0, 0], [0, 1], [0, 2], [1, 1], [1, 2], [2, 2]]
  """
  rows = itertools.combinations_with_replacement(range(num_classes), batch_size)
  sets = [*itertools.islice(rows, _MOST_CANDIDATES + 1)]
  if len(sets) > _MOST_CANDIDATES:
    raise ValueError(
      f'There may be {_MOST_CANDIDATES} candidates of labels, which '
      f'{batch_size=} has more of.'
    )
  return np.array(sets, np.int32)


def tanh_loss(params: jax.Array, batch: losses.Batch) -> jax.Array:
  r"""Half the squared error of one layer, :math:`\tanh(x W)`.

  Smooth, with as many equations as W f32[inputs, outputs] has entries.
  """
  error = jnp.tanh(batch['x'] @ params) - batch['y']
  return 0.5 * jnp.square(error).sum(1).mean()


def _tanh(c, count):
  keys = jax.random.split(jax.random.key(c.seed), 3)
  draw = jax.random.normal
  params = draw(keys[0], (c.inputs, c.outputs)) / c.inputs**0.5
  x = draw(keys[1], (count, c.inputs))
  y = jnp.sign(draw(keys[2], (count, c.outputs)))
  return Victim(tanh_loss, params, np.asarray(x), np.asarray(y), None)
