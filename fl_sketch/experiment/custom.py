"""Builds a Problem from a user's model and per-client NumPy arrays."""

from collections.abc import Mapping, Sequence
from typing import Any

from fl_sketch import models
from fl_sketch.data import registry
from fl_sketch.experiment import problem as problem_lib
from fl_sketch.models import kinds, losses
import jax
import jax.numpy as jnp


def problem(
  model: Any,
  clients: Sequence[Any] | Mapping[str, Any],
  test: Any,
  *,
  loss: str | kinds.Kind = 'cross_entropy',
  seed: int = 0,
) -> problem_lib.Problem:
  """Builds a problem, with its partition, for `experiment.assemble`.

  >>> loss = lambda w, batch: {'loss': jnp.square(batch['x'] @ w - batch['y'])}
  >>> client = {'x': jnp.ones((3, 2)), 'y': jnp.ones(3)}
  >>> task = problem((jnp.zeros(2), loss), [client, client], test=client)
  >>> float(task.loss_fn(task.params, task.data)), task.partition.population
  (1.0, 2)

  Args:
    model: a model of any library, see `models.as_model`. Its inputs are 'x', or
      where there is none the dict of all arrays but 'y', and of uint8 they
      become x / 255. Or parameters and a plain function of them and a batch,
      (params, batch) -> {'loss': f32[batch], ...}: the loss of each sample,
      whose mean is minimised, and other values of each to be evaluated; with an
      argument `key` it is given keys to draw by, and None in evaluation.
    clients: what each client holds, in a list or by name: arrays by their
      names, leaves [samples, ...], (x, y), or a Hugging Face or torch
      `Dataset`, see `data.own_arrays.read`. 64-bit numbers become 32-bit ones.
      They are copied: `data.store` maps them.
    test: the same arrays, of examples that no client holds.
    loss: of a model's outputs and the labels 'y': one of `losses.names()`, or a
      function such as those of `models.kinds`.
    seed: of the parameters of a model.

  Raises:
    TypeError: it is no model that is known.
    ValueError: there is no client, one has no sample, other arrays than the
      test or what are no numbers, labels do not suit the outputs of the model,
      it has state besides parameters, or a function does not give a value of
      each sample.
  """
  dataset = registry.from_clients(clients, test)
  data, test = dataset.train, dataset.test
  plain = type(model) is tuple  # those of models are named
  if plain:  # its values are of a batch: it has no outputs
    params, values = jax.tree.map(jnp.asarray, model[0]), losses.keyed(model[1])
    apply_fn = None
  else:
    params, values, apply_fn = _of_model(model, dataset, loss, seed)
  _check_values(values, params, data)
  loss_fn, metrics_fn = losses.of_values(values)
  return problem_lib.Problem(
    data=data, test=problem_lib.evaluation_batches(test), params=params,
    loss_fn=loss_fn, metrics_fn=metrics_fn, apply_fn=apply_fn, scale={},
    labels=data['y'] if loss == 'cross_entropy' and not plain else None,
    partition=dataset.partition, model=None if plain else model,
  )  # fmt: skip


def _of_model(model, dataset, loss, seed):
  model, of = models.as_model(model), losses.kind_of(loss)
  data, test, partition = dataset.train, dataset.test, dataset.partition
  one = lambda x: jnp.zeros((1, *x.shape[1:]), x.dtype)
  inputs = losses.inputs(jax.tree.map(one, data))
  if not jax.tree.leaves(inputs):
    raise ValueError(f"arrays {list(data)} lack inputs such as 'x'; add them.")
  params = model.init(jax.random.key(seed), inputs)
  if not callable(loss):
    outputs = jax.eval_shape(model.apply, params, inputs, None)
    problem_lib.check_labels(loss, outputs, data, test, partition=partition)
  values = lambda params, batch, key: of(
    model.apply(params, losses.inputs(batch), key), batch
  )
  return params, values, losses.outputs(model)


def _check_values(values_fn, params, data):
  two = lambda x: jax.ShapeDtypeStruct((2, *x.shape[1:]), x.dtype)
  batch = jax.tree.map(two, data)
  values = jax.eval_shape(lambda p, b: values_fn(p, b, None), params, batch)
  shapes = jax.tree.map(jnp.shape, values)
  named = isinstance(values, Mapping) and 'loss' in values
  named = named and 'count' not in values  # of samples, which is ours
  if not named or any(shape != (2,) for shape in shapes.values()):
    raise ValueError(
      f"values {shapes} of 2 samples must have 'loss' and no 'count', each "
      'with one value a sample.'
    )
