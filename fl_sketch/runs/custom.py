"""Build a Problem from a user's model and per-client NumPy arrays."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fl_sketch import models
from fl_sketch.data import from_clients, own_arrays
from fl_sketch.data.sources import Dataset
from fl_sketch.models import loss_checks, losses
from fl_sketch.runs import problem as problem_lib
from fl_sketch.utils.types import Batch, Key, Params
import jax
import jax.numpy as jnp


def problem(
  model: Any,
  clients: Sequence[Any] | Mapping[str, Any],
  test: Any,
  *,
  loss: str | losses.Kind = 'cross_entropy',
  label: str | None = None,
  seed: int = 0,
) -> problem_lib.Problem:
  """Build a problem, with its partition, for `runs.build`.

  >>> loss = lambda w, batch: {'loss': jnp.square(batch['x'] @ w - batch['y'])}
  >>> client = {'x': jnp.ones((3, 2)), 'y': jnp.ones(3)}
  >>> task = problem((jnp.zeros(2), loss), [client, client], test=client)
  >>> float(task.loss_fn(task.params, task.data)), task.partition.population
  (1.0, 2)

  Args:
    model: a model of any library, see `models.as_model`. Its inputs are 'x', or
      without an 'x' the dict of all arrays but 'y'; uint8 becomes x / 255. Or
      parameters and a plain function (params, batch) -> {'loss': f32[batch],
      ...}: the loss of each sample, and other values to be evaluated. Its
      argument `key`, if it has one, is None in evaluation.
    clients: in a list or by name, what each client holds, as of
      `data.own_arrays.read`. 64-bit numbers become 32-bit ones.
    test: the same arrays, of examples that no client holds.
    loss: of a model's outputs and the labels 'y': one of `losses.names()`, or a
      function (outputs, batch) of the loss of each sample, or of their mean.
    label: the array or column that becomes 'y'; the others become 'x', as of
      `data.from_clients`.
    seed: of the parameters of a model.

  Raises TypeError for a model of no known library, and ValueError if arrays,
  labels or the values of a function do not fit.
  """
  dataset = from_clients(clients, test, label=label)
  data, test = dataset.train, dataset.test
  is_plain = type(model) is tuple  # models of libraries are named tuples
  if is_plain:  # its values are of a batch: it has no outputs
    params = jax.tree.map(jnp.asarray, model[0])
    values_fn, apply_fn = losses.keyed(model[1]), None
  else:
    params, values_fn, apply_fn = _of_model(model, dataset, loss, seed)
  _check_values(values_fn, params, data)
  loss_fn, metrics_fn = losses.of_values(values_fn)
  return problem_lib.Problem(
    data=data, test=problem_lib.evaluation_batches(test), params=params,
    loss_fn=loss_fn, metrics_fn=metrics_fn, apply_fn=apply_fn, scale={},
    labels=data['y'] if loss == 'cross_entropy' and not is_plain else None,
    partition=dataset.partition, model=None if is_plain else model,
  )  # fmt: skip


def _of_model(
  model: Any, dataset: Dataset, loss: str | losses.Kind, seed: int
) -> tuple[Params, Callable[..., Any], Callable[..., Any]]:
  model, loss_of = models.as_model(model), losses.kind_of(loss)
  one = {
    k: jnp.zeros((1, *x.shape[1:]), x.dtype) for k, x in dataset.train.items()
  }
  inputs = losses.inputs(one)
  try:
    params = model.init(jax.random.key(seed), inputs)
    outputs = jax.eval_shape(model.apply, params, inputs, None)
  except Exception as e:  # of all types: the model is the user's
    if 'x' in one:
      raise
    raise ValueError(
      f"no 'x': the model got a dict of {', '.join(inputs)}; name its input "
      "'x', or set label to the name of the labels."
    ) from e
  holder = lambda marks: own_arrays.holder(marks, dataset.partition)
  loss_checks.check(loss, outputs, dataset.train, dataset.test, holder=holder)

  def values_fn(params: Params, batch: Batch, key: Key | None) -> Any:
    return loss_of(model.apply(params, losses.inputs(batch), key), batch)

  return params, values_fn, losses.outputs(model)


def _check_values(values_fn, params: Params, data: Batch) -> None:
  """Refuse a function that does not give values of each of two samples."""
  batch = {
    k: jax.ShapeDtypeStruct((2, *x.shape[1:]), x.dtype) for k, x in data.items()
  }
  values = jax.eval_shape(lambda p, b: values_fn(p, b, None), params, batch)
  shapes = jax.tree.map(jnp.shape, values)
  fits = isinstance(values, Mapping) and 'loss' in values
  # The library adds 'count', of samples.
  if not fits or 'count' in values or {*shapes.values()} != {(2,)}:
    raise ValueError(
      f"values {shapes} of 2 samples must have 'loss' and no 'count', each "
      'with one value a sample, not a mean over them.'
    )
