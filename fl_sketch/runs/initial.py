"""Start a run from the parameters of another one, of which it keeps a copy."""

import dataclasses
import os
import pathlib

from fl_sketch.runs import saved_params
from fl_sketch.runs.build import Experiment
from fl_sketch.runs.same_run import WorkdirError
from fl_sketch.utils.types import Params
import jax
import numpy as np

_CAVEAT = (
  'Training starts from the parameters of another run: unless its data are '
  'public, its privacy loss adds to this one.'
)


def begun(
  exp: Experiment,
  folder: str | os.PathLike,
  source: str | os.PathLike | None = None,
) -> Experiment:
  """Return the experiment of a folder with its initial parameters.

  They are those of the run `source`: of its last checkpoint, or of the best if
  it is the subfolder best/. A resumed run has a copy in init/. Raises
  WorkdirError, which names the array, if they do not fit the model.
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


def keep(folder: pathlib.Path, params: Params):
  """Write the copy from the first process, if there is none yet."""
  copy = folder / saved_params.FIRST
  if jax.process_index() == 0 and not saved_params.rounds_in(copy):
    saved_params.write(copy, 0, params)


def _fitted(
  params: Params, like: Params, source: str | os.PathLike | None
) -> Params:
  """Return parameters as the tree of a model with these names and shapes."""
  given, wanted = _by_name(params), _by_name(like)
  for name in {**wanted, **given}:
    there, here = (getattr(x.get(name), 'shape', None) for x in (given, wanted))
    if there != here:
      raise WorkdirError(
        f'init_from={source}: {name} has shape {there} there and {here} in '
        'this model; set the same model.'
      )
  leaves = [np.asarray(given[name], x.dtype) for name, x in wanted.items()]
  return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _by_name(tree: Params) -> dict[str, jax.Array]:
  """Return the arrays of a tree by their paths, as 'dense/kernel'."""
  return {
    jax.tree_util.keystr(path, simple=True, separator='/'): x
    for path, x in jax.tree.leaves_with_path(tree)
  }
