"""Read a run from its folder: config, parameters, metrics, model."""

from collections.abc import Mapping, Sequence
import functools
import os
import pathlib
from typing import Any

from fl_sketch import rounds
from fl_sketch.models import pretrained
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.rounds.algorithm import with_hyper
from fl_sketch.runs import (
  log,
  metrics,
  problem as problem_lib,
  same_run,
  saved_params,
)
from fl_sketch.runs.build import Experiment, OwnProblem, build
from fl_sketch.runs.config import Config
from fl_sketch.runs.same_run import WorkdirError
from fl_sketch.utils import checks, extras
from fl_sketch.utils.types import Params, Tree
import jax
import numpy as np


def load(
  folder: str | os.PathLike,
  *,
  round: int | None = None,
  best: bool = False,
  problem: OwnProblem | None = None,
  data_dir: str | None = None,
) -> 'Run':
  """Load a run: finished, stopped or still running, or a point of a sweep.

  Nothing is written or locked.

  Args:
    folder: the workdir, or points/NUMBER of a sweep.
    round: completed rounds of the checkpoint; default: the last.
    best: load the parameters that `keep_best` saved.
    problem: your own model and data, if the run had them and you evaluate it.
    data_dir: directory of tensorflow-datasets.

  Raises ValueError for both `round` and `best`, WorkdirError if the folder
  holds no run, ConfigError for a config of another version, and CheckpointError
  if there are no parameters of that round.
  """
  folder = pathlib.Path(folder)
  if not (fields := same_run.stored_config(folder)):
    raise WorkdirError(f'{folder} holds no run: it has no config.json.')
  if (folder / 'points.jsonl').exists():
    raise WorkdirError(
      f'{folder} holds a sweep: load one of its runs, {folder}/points/NUMBER.'
    )
  # The file of its initial parameters may be gone.
  config = Config.from_mapping({**fields, 'pretrained': None})
  object.__setattr__(config, 'pretrained', fields.get('pretrained'))
  if best and round is not None:
    raise ValueError(f'Set round or best, not both; got {round=}, {best=}.')
  best_rounds = saved_params.rounds_of(folder, saved_params.BEST)
  if best:
    if not best_rounds:
      raise saved_params.CheckpointError(
        f'{folder} holds no best parameters: keep_best={config.keep_best!r}.'
      )
    round = best_rounds[-1]
  saved = {*best_rounds, *saved_params.rounds_of(folder, *saved_params.LAST)}
  if round not in {None, *saved}:
    raise saved_params.CheckpointError(
      f'{folder} holds no parameters of {round=}. Set one of {sorted(saved)}.'
    )
  return Run(folder, config, round, problem, data_dir)


class Run:
  """A run in a folder; each part is read when it is asked for."""

  def __init__(self, folder, config: Config, round, problem, data_dir):
    self.folder, self.config = folder, config
    self._round, self._problem, self._data_dir = round, problem, data_dir

  def __repr__(self) -> str:
    return f'Run({str(self.folder)!r}, algorithm={self.config.algorithm!r})'

  @property
  def round(self) -> int:
    """Completed rounds of `params`."""
    return self._saved[0]

  @property
  def params(self) -> Params:
    """The trained tree, in host memory.

    Without `problem`, tuples and classes are lists and dicts. Raises
    CheckpointError if there is none yet, or it cannot be read.
    """
    return self._saved[1]

  @property
  def metrics(self) -> np.ndarray:
    """The logged rounds, a structured array: see `metrics.as_array`."""
    return metrics.as_array(metrics.read_metrics(self.folder))

  @property
  def summary(self) -> dict[str, Any]:
    """summary.json: final numbers, versions, device; empty until the end."""
    return same_run.read(self.folder / 'summary.json', 'a summary') or {}

  @functools.cached_property
  def experiment(self) -> Experiment:
    """The experiment of the config, with its data and initial parameters.

    Raises WorkdirError if the run had another problem.
    """
    problem = self._problem
    if isinstance(problem, problem_lib.Problem):
      # `build` refuses fields that `assemble` leaves unused.
      problem = lambda _, task=problem: task
    exp = build(self.config, self._data_dir, problem)
    exp = saved_params.begun(exp, self.folder)
    try:
      same_run.check_problem(
        self.folder,
        same_run.problem_of(exp),
        private=False,
        free=same_run.MACHINE,  # a notebook may have other devices than a run
      )
    except WorkdirError as e:
      if problem is not None:
        raise
      raise WorkdirError(
        f'{e} If the run has your own model and data, pass them: '
        'fl_sketch.load(folder, problem=problem).'
      ) from e
    return exp

  def apply(self, inputs: Tree) -> np.ndarray:
    """Compute outputs f32[samples, ...], as logits, of leaves [samples, ...].

    Raises ValueError if the problem is a plain function of whole batches.
    """
    if self.experiment.apply_fn is None:
      raise ValueError('The problem is a plain function: it has no outputs.')
    leaves, tree = jax.tree.flatten(inputs)
    named = {f'{i}': leaf for i, leaf in enumerate(leaves)}
    batches = problem_lib.evaluation_batches(named)
    x = jax.tree.unflatten(tree, [batches[name] for name in named])
    outputs = self._apply(self._trained, self.experiment.hyper, x)
    outputs = np.asarray(outputs, np.float32)
    return outputs.reshape(-1, *outputs.shape[2:])[: len(leaves[0])]

  def evaluate(
    self, test: Mapping[str, np.ndarray] | None = None
  ) -> dict[str, float]:
    """Compute the metrics that the run logs at an evaluation.

    `test`: labelled samples, leaves [samples, ...] by the names of the training
    data, in place of the test set and of what clients hold out.
    """
    exp, mesh = self.experiment, mesh_lib.cohort_mesh()
    if test is not None:
      batches = problem_lib.evaluation_batches({**test})
      exp = exp._replace(test=batches, held_out=None, test_of_clients=False)
    fn = jax.jit(rounds.run_evaluation(log.metrics_of(exp), mesh))
    model = mesh_lib.place(mesh, (self._trained, exp.hyper))
    return log.evaluator(fn, exp, mesh)(*model)

  def save_safetensors(self, path: str | os.PathLike) -> None:
    """Write the model, with adapters merged, for the field `pretrained`."""
    words = self.folder / 'tokenizer.json'
    about = {'tokenizer': words.read_text()} if words.is_file() else {}
    pretrained.save(path, self.merged(), **about)

  def merged(self) -> Params:
    """Return `params`, with adapters merged into those of the model."""
    if self.config.lora is None:
      return self.params
    exp = self.experiment
    assert exp.merge is not None  # of a lora
    return exp.merge(exp.hyper.frozen, self._trained)

  @property
  def tokenizer(self) -> Any:
    """The vocabulary of texts, a `tokenizers.Tokenizer`; None without texts."""
    if (content := self._vocabulary) is None:
      return None
    with extras.needed('text'):
      import tokenizers
    return tokenizers.Tokenizer.from_str(content)

  def generate(
    self,
    prompt: str | Sequence[int],
    tokens: int = 100,
    *,
    temperature: float = 1.0,
    key: jax.Array | None = None,
    window: int | None = None,
  ) -> Any:
    """Draw tokens after a prompt, from softmax(logits / temperature).

    The prompt is a text, or ids of `tokenizer`; the result is of the same type.
    '[SEP]' ends a text. `tokens` are how many to draw; a temperature of 0 takes
    the most likely token. The default key is `jax.random.key(0)`. The model
    sees the last `window` tokens, by default a training sample's length. Raises
    ValueError if the run has no vocabulary for a text, the vocabulary lacks a
    part of it, or the model does not predict tokens.
    """
    checks.at_least('temperature', temperature, 0)
    window = self._length if window is None else checks.count('window', window)
    coder, ids = self.tokenizer, prompt
    if isinstance(prompt, str):
      if coder is None:
        raise ValueError(
          f'{self.folder} has no vocabulary for {prompt=}; pass ids of tokens.'
        )
      found = coder.encode(prompt, add_special_tokens=False)
      pairs = zip(found.tokens, found.offsets, strict=True)
      parts = {prompt[slice(*at)] for name, at in pairs if name == '[UNK]'}
      if unknown := sorted(parts - {'[UNK]'}):
        raise ValueError(
          f'prompt has {unknown}, which the vocabulary of the run lacks.'
        )
      ids = found.ids
    ids, end = [*map(int, ids)], coder and coder.token_to_id('[SEP]')
    key = jax.random.key(0) if key is None else key
    for i in range(checks.count('tokens', tokens)):
      seen = ids[-window:]
      x = np.array([seen + [0] * (window - len(seen))], np.int32)
      logits = self.apply(x)[0]
      size = logits.shape[-1] if logits.ndim == 2 else 0  # 0: one prediction
      if not (seen and 0 <= min(ids) <= max(ids) < size):
        raise ValueError(
          f'prompt={ids[:9]} must have ids below {size}, one at least, and the '
          'model must predict after every token.'
        )
      logits = logits[len(seen) - 1]
      if temperature:
        noise = jax.random.gumbel(jax.random.fold_in(key, i), logits.shape)
        logits = logits / temperature + np.asarray(noise)
      ids.append(int(logits.argmax()))
      if ids[-1] == end:
        break
    if not isinstance(prompt, str):
      return ids
    added = coder.get_added_tokens_decoder()  # of which [UNK] is shown
    hidden = {i for i, x in added.items() if x.special} - {
      coder.token_to_id('[UNK]')
    }
    shown = [i for i in ids if i not in hidden]
    return coder.decode(shown, skip_special_tokens=False)

  def export(self, folder: str | os.PathLike) -> None:
    """Write a folder for transformers, adapters merged: `pretrained.export`."""
    model, about = self.experiment.model, (self._length, self._vocabulary)
    pretrained.export(folder, model, self.merged(), *about)

  @property
  def _vocabulary(self) -> str | None:
    path = self.folder / 'tokenizer.json'
    return path.read_text() if path.is_file() else self.experiment.tokenizer

  @property
  def _length(self) -> int:
    return next(iter(self.experiment.data.values())).shape[-1]

  @functools.cached_property
  def _apply(self) -> Any:
    """Jit (params, hyper, batches of inputs) -> batches of outputs."""
    apply_fn: Any = self.experiment.apply_fn

    def batch_by_batch(params, hyper, x):
      one = functools.partial(with_hyper(apply_fn, hyper), params)
      return jax.lax.map(one, x)

    return jax.jit(batch_by_batch)

  @functools.cached_property
  def _trained(self) -> Params:
    """The parameters, as the tree that the experiment's model takes."""
    like, params = self.experiment.params, self.params
    if jax.tree.structure(params) != jax.tree.structure(like):
      _, params = saved_params.newest(self.folder, [self.round], like)
    return params

  @functools.cached_property
  def _saved(self) -> tuple[int, Params]:
    like = None if self._problem is None else self.experiment.params
    only = [] if self._round is None else [self._round]
    return saved_params.newest(self.folder, only, like)
