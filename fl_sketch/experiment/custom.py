"""Builds a Problem from a user's model and per-client NumPy arrays."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fl_sketch import models
from fl_sketch.data.ragged import Partition
from fl_sketch.experiment import problem as problem_lib
from fl_sketch.models import losses
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

Arrays = Mapping[str, np.ndarray]
ValuesFn = Callable[[Any, losses.Batch], Mapping[str, jax.Array]]


def problem(
  model: nn.Module | tuple[Any, ValuesFn],
  clients: Sequence[Arrays],
  test: Arrays,
  *,
  seed: int = 0,
) -> problem_lib.Problem:
  """Builds a problem, with its partition, for `experiment.assemble`.

  >>> loss = lambda w, batch: {'loss': jnp.square(batch['x'] @ w - batch['y'])}
  >>> client = {'x': np.ones((3, 2)), 'y': np.ones(3)}
  >>> task = problem((np.zeros(2), loss), [client, client], test=client)
  >>> float(task.loss_fn(task.params, task.data)), task.partition.population
  (1.0, 2)

  Args:
    model: a flax module from 'x' to logits of the labels 'y', where x of uint8
      becomes x / 255; or parameters and a plain function of them and a batch,
      (params, batch) -> {'loss': f32[batch], ...}: the loss of each sample,
      whose mean is minimised, and other values of each to be evaluated.
    clients: the arrays of every client by name, leaves [samples, ...]; 64-bit
      ones become 32-bit ones. They are copied: `data.store` maps them.
    test: the same arrays, of examples that no client holds.
    seed: of the parameters of a module.

  Returns:
    A `problem_lib.Problem`.

  Raises:
    ValueError: there is no client, one has no sample or other arrays than the
      test, labels are not among a module's logits, or a function does not give
      a value of each sample.
  """
  parts, test = [_narrow(arrays) for arrays in clients], _narrow(test)
  sizes = _sizes(parts, test)
  data = {k: np.concatenate([arrays[k] for arrays in parts]) for k in test}
  if isinstance(model, nn.Module):
    if not {'x', 'y'} <= data.keys():
      raise ValueError(f"Expected 'x' and 'y' among the arrays {list(data)}.")
    params = _init(model, data['x'], seed)
    _check_labels(model, params, data, test)
    loss_fn = losses.classification(model)
    metrics_fn = losses.classification_metrics(model)
    apply_fn = losses.outputs(model)
  else:
    params, values_fn = jax.tree.map(jnp.asarray, model[0]), model[1]
    apply_fn = None  # its values are of a batch: it has no outputs
    _check_values(values_fn, params, data)
    loss_fn, metrics_fn = _plain(values_fn)
  offsets = np.concatenate([[0], np.cumsum(sizes)])
  return problem_lib.Problem(
    data=data,
    test=problem_lib.evaluation_batches(test),
    params=params,
    loss_fn=loss_fn,
    metrics_fn=metrics_fn,
    labels=data['y'] if isinstance(model, nn.Module) else None,
    scale={},
    partition=Partition(None, offsets),
    apply_fn=apply_fn,
  )


def _init(module, x, seed):
  """Draws parameters; images of bytes are converted to floats first."""
  dtype = jnp.float32 if x.dtype == np.uint8 else x.dtype
  return models.init_params(module, jax.random.key(seed), x.shape[1:], dtype)


def _check_labels(module, params, data, test):
  """Checks that labels are integers, one a sample, among the logits."""
  x, y = data['x'][:1], data['y']
  logits = jax.eval_shape(
    lambda params: module.apply({'params': params}, losses.preprocess(x)),
    params,
  )
  if logits.ndim != 2:
    raise ValueError(f'Expected logits[batch, classes], not {logits.shape}.')
  if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer):
    raise ValueError(
      f"Expected 'y' to be whole numbers[samples], not {y.dtype}{y.shape}."
    )
  every = np.concatenate([y, test['y']])
  low, high = every.min(), every.max()
  if low < 0 or high >= logits.shape[1]:
    raise ValueError(
      f"Expected 'y' from {low} to {high} in 0 to {logits.shape[1] - 1}, the "
      'logits.'
    )


def _plain(values_fn: ValuesFn) -> tuple[losses.LossFn, losses.MetricsFn]:
  """Loss and metrics functions: mean loss and sums over unmasked rows."""

  def loss_fn(params, batch):
    values = values_fn(params, batch)['loss']
    return losses.masked_mean(values, losses.row_mask(batch, values))

  def metrics_fn(params, batch):
    values = values_fn(params, batch)
    mask = losses.row_mask(batch, values['loss'])
    sums = {k: losses.masked_sum(v, mask) for k, v in values.items()}
    return sums | {'count': mask.sum()}

  return loss_fn, metrics_fn


def _narrow(arrays: Arrays) -> dict[str, np.ndarray]:
  """Converts arrays to the dtypes of JAX."""
  type_of = jax.dtypes.canonicalize_dtype
  return {
    name: np.asarray(x).astype(type_of(np.asarray(x).dtype), copy=False)
    for name, x in arrays.items()
  }


def _sizes(clients, test) -> list[int]:
  """The number of samples of each client, whose arrays must agree."""
  if not clients:
    raise ValueError('Expected at least one client.')
  if 'mask' in test:
    raise ValueError("Expected another name of an array than 'mask'.")
  kinds = lambda xs: {k: (str(x.dtype), x.shape[1:]) for k, x in xs.items()}
  expected, sizes = kinds(test), []
  for i, arrays in enumerate([test, *clients]):
    who = f'client {i - 1}' if i else 'the test'
    if kinds(arrays) != expected:
      raise ValueError(
        f'Expected {kinds(arrays)} of {who} to be {expected}, as in the test.'
      )
    lengths = {k: len(x) for k, x in arrays.items()}
    if len({*lengths.values()}) != 1 or not min(lengths.values()):
      raise ValueError(f'Expected {lengths} of {who} to be equal, and >= 1.')
    sizes.append(min(lengths.values()))
  return sizes[1:]


def _check_values(values_fn, params, data):
  two = lambda x: jax.ShapeDtypeStruct((2, *x.shape[1:]), x.dtype)
  values = jax.eval_shape(values_fn, params, jax.tree.map(two, data))
  shapes = jax.tree.map(jnp.shape, values)
  named = isinstance(values, Mapping) and 'loss' in values
  named = named and 'count' not in values  # of samples, which is ours
  if not named or any(shape != (2,) for shape in shapes.values()):
    raise ValueError(
      "Expected 'loss' and other values, but no 'count', of each of 2 samples, "
      f'not {shapes}.'
    )
