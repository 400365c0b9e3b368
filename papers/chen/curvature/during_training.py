"""Trains and estimates the Hessian's spectrum every `every` rounds."""

from collections.abc import Mapping
import dataclasses
import json
import pathlib
from typing import Any, NamedTuple

from fl_sketch import runs
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.rounds.algorithm import with_hyper
from fl_sketch.runs import config, same_run, saved_params
from fl_sketch.utils import checks, files, seeding
import jax
import numpy as np
import tqdm

from . import spectrum, spectrum_report

_BATCH = 50  # samples that are differentiated at once


class Options(NamedTuple):
  """Options of the estimates, the same for all spectra of a folder."""

  # Of each probe; a step is a pass over the samples, and a copy of the model
  # that is held.
  lanczos_steps: int = 192
  probes: int = 2  # directions that a spectrum starts from, >= 2
  # How many of the largest eigenvalues the power law is fitted to.
  top: int = 50
  # Of the training data, drawn once; all of it if there are fewer.
  samples: int = 1000


@config.checked()
def run(
  fields: Mapping[str, Any],
  folder: str,
  *,
  every: int | None = None,
  options: Options | None = None,
  data_dir: str | None = None,
  progress: bool = True,
) -> list[spectrum_report.Row]:
  """Trains, and takes the spectrum before round 0 and after each `every`.

  The Hessian is that of the training loss without weight decay. `every` None is
  the config's checkpoint_every. The folder gets the files of `runs.train`,
  with a checkpoint for every spectrum, and spectrum.json, .md and .png. A new
  start computes the rounds and spectra that are missing.

  Returns:
    `spectrum_report.row` of each spectrum; fewer if a signal stopped the run.

  Raises:
    ConfigError: the config or the options are wrong, or the run is private: a
      spectrum is a release of the training data that no epsilon counts.
    WorkdirError: the folder holds another run, other spectra, or a run without
      the checkpoints.
    DivergedError, CheckpointError: see `runs.train`.
  """
  options = Options() if options is None else options
  c = config.Config.from_mapping({**fields, 'sweep': None})
  every = c.checkpoint_every if every is None else checks.count('every', every)
  keep = {'checkpoint_every': every, 'keep_checkpoints': c.rounds}
  exp = runs.build(dataclasses.replace(c, **keep), data_dir)
  _check(exp, options)
  path = pathlib.Path(folder) / 'spectrum.json'
  spectra = _read(path, options)
  if runs.train(exp, folder, progress=progress).finished:
    batches = _sampled(exp, options.samples)
    marks = sorted({*range(0, c.rounds, every), c.rounds})
    bar = tqdm.tqdm(marks, unit='spectrum', disable=not progress)
    missing = (done for done in bar if done not in spectra)
    for done in missing:
      spectra[done] = _row(exp, path.parent, done, batches, options)
      rows = list(spectra.values())
      files.write(path, {'options': options._asdict(), 'spectra': rows})
  if rows := [spectra[done] for done in sorted(spectra)]:
    spectrum_report.write(rows, path.parent)
  return rows


def _row(exp, folder, done, batches, options) -> spectrum_report.Row:
  params = _parameters(exp, folder, done)
  loss_fn = with_hyper(exp.loss_fn, exp.hyper)
  problem = loss_fn, params, batches, jax.random.key(exp.config.seed)
  steps, probes = options.lanczos_steps, options.probes
  estimate = spectrum.slq(*problem, steps=steps, probes=probes)
  return spectrum_report.row(done, estimate, options.top)


def _check(exp: runs.Experiment, options: Options):
  if exp.guarantee is not None:
    raise ValueError(
      'A private config has no spectrum: it would be a release of the '
      'training data that no epsilon counts.'
    )
  lanczos_steps, probes, top, samples = options
  d = sum(x.size for x in jax.tree.leaves(exp.params))
  if not 3 <= top <= lanczos_steps <= d:
    raise ValueError(f'{top=} must be 3 to {lanczos_steps=} <= {d=}.')
  if probes < 2 or samples < 1:
    raise ValueError(f'{probes=} must be >= 2 and {samples=} >= 1.')


def _read(path: pathlib.Path, options: Options) -> dict[int, Any]:
  """Reads the spectra of an earlier start, by round."""
  if not path.exists():
    return {}
  kept = json.loads(path.read_text())
  same_run.check(path, 'options', kept['options'], options._asdict())
  return {row['round']: row for row in kept['spectra']}


def _sampled(exp: runs.Experiment, samples: int) -> dict[str, np.ndarray]:
  """Draws training samples, leaves [batches, _BATCH, ...], with a mask."""
  size = len(next(iter(exp.data.values())))
  rng = seeding.generator(exp.config.seed, 'spectrum')
  chosen = rng.permutation(size)[:samples]
  taken = {k: x[chosen] for k, x in exp.data.items()}
  padded = mesh_lib.pad(taken | {'mask': np.ones(len(chosen), bool)}, _BATCH)
  return {k: x.reshape(-1, _BATCH, *x.shape[1:]) for k, x in padded.items()}


def _parameters(exp: runs.Experiment, folder: pathlib.Path, done: int):
  """Returns the model after `done` rounds, in host memory."""
  if not done:
    return exp.params
  path = folder.absolute() / 'checkpoints'
  params = saved_params.read(path, done, exp.params)
  if params is None:
    raise same_run.WorkdirError(
      f'There is no checkpoint {path / str(done)}: the run kept none of '
      f'round {done}. Take the same --every, or name another workdir.'
    )
  return params
