"""Starts a run from the parameters of another one, of which it keeps a copy."""

import dataclasses
import os
import pathlib
from typing import Any

from fl_sketch import experiment
from fl_sketch.training import saved_params
from fl_sketch.training.same_run import WorkdirError
import jax
import numpy as np

_CAVEAT = (
  'Training starts from the parameters of another run: unless its data are '
  'public, its privacy loss adds to this one.'
)


def begun(
  exp: experiment.Experiment,
  folder: str | os.PathLike,
  source: str | os.PathLike | None = None,
) -> experiment.Experiment:
  """Returns the experiment of a folder with its initial parameters.

  They are those of `source`, a run: of its last checkpoint, or of the best if
  it is the subfolder best/. A run that goes on has a copy in init/. Raises
  WorkdirError, which names the array, if they do not fit the model, and
  CheckpointError if there are none, or they cannot be read.
  """
  run, only = pathlib.Path(folder), [0]
  if not saved_params.rounds_in(run / saved_params.FIRST):
    if source is None:
      return exp
    run = pathlib.Path(source)
    if only := saved_params.rounds_in(run)[-1:]:  # best/, or checkpoints/
      run = run.parent
  if exp.hyper.frozen is not None:
    raise WorkdirError(
      f'init_from={source} does not support lora; set pretrained to a file of '
      'its run that save_safetensors writes.'
    )
  params = saved_params.newest(run, only)[1]
  exp = exp._replace(params=_fitted(params, exp.params, source))
  if (guarantee := exp.guarantee) is not None:
    caveats = dict.fromkeys((*guarantee.statement.caveats, _CAVEAT))  # once
    stated = dataclasses.replace(guarantee.statement, caveats=(*caveats,))
    exp = exp._replace(guarantee=guarantee._replace(statement=stated))
  return exp


def keep(folder: pathlib.Path, params: Any):
  """Writes the copy from the first process, if there is none yet."""
  copy = folder / saved_params.FIRST
  if jax.process_index() == 0 and not saved_params.rounds_in(copy):
    saved_params.write(copy, 0, params)


def _fitted(params: Any, like: Any, source: Any) -> Any:
  """The parameters as the tree of a model, whose names and shapes they have."""
  name = lambda path: jax.tree_util.keystr(path, simple=True, separator='/')
  held, own = (
    {name(path): x for path, x in jax.tree.leaves_with_path(tree)}
    for tree in (params, like)
  )
  for path in {**own, **held}:
    there, here = (getattr(x.get(path), 'shape', None) for x in (held, own))
    if there != here:
      raise WorkdirError(
        f'init_from={source}: {path} has shape {there} there and {here} in '
        'this model; set the same model.'
      )
  leaves = [np.asarray(held[path], x.dtype) for path, x in own.items()]
  return jax.tree.unflatten(jax.tree.structure(like), leaves)
