"""Identify the problem of a run, and compare a start with that of its folder.

The same config, data and versions resume a run; `resumable` fields may differ.
Of other versions and devices a public run warns; a private one refuses them.
"""

from collections.abc import Collection, Mapping
import contextlib
import dataclasses
import hmac
import json
import logging
import pathlib
import re
from typing import Any
import warnings

from fl_sketch.data import store
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.runs import (
  Experiment,
  config as config_lib,
  devices,
  program as program_lib,
)
from fl_sketch.utils import UserError, digests, files
from fl_sketch.utils.types import Tree
import jax
from jax.extend import core
import jax.numpy as jnp
import numpy as np

Record = dict[str, Any]

DATA, FROZEN, SOURCE = 'data', 'frozen parameters', 'source of fl_sketch'
NOISE, ROUND = 'noise multiplier', 'one round'
KERNELS = 'deterministic kernels'  # `fl-sketch train --nodeterministic`
# Of JAX; by them one key draws other noise, and sums round otherwise.
FLAGS = 'jax_threefry_partitionable', 'jax_default_matmul_precision'
MACHINE = 'device', 'processes', 'shards'
SECRET = 'secret', 'entropy'  # path of a private run's secret in its folder

_KEYED = 'keyed '  # begins a digest by a secret
_DIGESTS = {DATA, FROZEN, SOURCE, ROUND}
_ADDRESS = re.compile(r' at 0x[0-9a-f]+')
# Files of a run that has begun; the last one is the model of a checkpoint.
_BEGUN = 'config.json', 'metrics.jsonl', 'checkpoints/*/arrays'
_LOG = logging.getLogger(__name__)


class WorkdirError(UserError, ValueError):
  """The folder holds another run, is in use, or cannot be written."""


def problem_of(
  exp: Experiment, mesh: jax.sharding.Mesh | None = None
) -> Record:
  """Return the record of an experiment.

  A private run has two more entries: its noise multiplier, and 'one round', a
  digest of its devices and its program, since the same noise under another
  update would cancel in their difference; and its data include its initial
  parameters. `mesh`: default all devices.

  Raises DataError if arrays of a private run's store were changed.
  """
  guarantee = exp.guarantee
  partition = exp.partition.offsets, exp.partition.indices
  arrays = {'train': exp.data, 'test': exp.test, 'partition': partition}
  if guarantee is not None:
    arrays['start'] = exp.params
  mesh = mesh_lib.cohort_mesh() if mesh is None else mesh
  problem = record(arrays, read=guarantee is not None)
  problem['shards'] = mesh.size  # they decide the order of sums
  if exp.hyper.frozen is not None:
    problem[FROZEN] = _digest(exp.hyper.frozen)
  if guarantee is not None:
    problem[NOISE] = guarantee.noise_multiplier
    problem[ROUND] = _of_round(exp, mesh)
  return problem


def record(arrays: Tree, read: bool = False) -> Record:
  """Return a digest of arrays, and versions.

  `read` reads the arrays of a store, whose digests are on record.
  """
  problem: Record = {DATA: _digest(arrays, read), SOURCE: digests.of_source()}
  about = files.measured_with()
  problem |= about.pop('versions') | about
  problem[KERNELS] = devices.deterministic(jax.default_backend())
  return problem | {name: getattr(jax.config, name) for name in FLAGS}


def keyed(problem: Mapping[str, Any], secret: bytes) -> Record:
  """Replace the digests of data and program by their HMAC-SHA256.

  A plain digest confirms a guess: who knows all samples but one compares it
  with that of each candidate. Programs may have captured data.

  >>> keyed({'seed': 1, 'data': 64 * 'a'}, b'secret')['data'][:14]
  'keyed 37aa275d'
  """
  secrets = {}
  for name in {DATA, ROUND} & problem.keys():
    text = f'{name}: {problem[name]}'.encode()
    secrets[name] = _KEYED + hmac.digest(secret, text, 'sha256').hex()
  return {**problem, **secrets}


def check_run(folder: pathlib.Path, config: config_lib.Config, problem: Record):
  """Compare config and problem of a start with those of its folder."""
  check_config(folder, config, resumable(config))
  check_problem(folder, problem, private=has_secret(config))


def check_config(folder: pathlib.Path, config: Any, free: Collection[str]):
  """Raise WorkdirError if fields other than `free` differ from config.json."""
  if then := stored_config(folder):
    check(folder, 'config', then, files.as_json(config), free)


def check_problem(
  folder: pathlib.Path,
  problem: Record,
  *,
  private: bool,
  free: Collection[str] = (),
):
  """Compare a problem with the problem.json of a folder that has results.

  `free` are entries that may differ; without the secret, keyed digests may too.
  Raises WorkdirError, also if the folder has results without a problem.
  """
  if (then := read(folder / 'problem.json', 'a problem')) is None:
    if any(any(folder.glob(name)) for name in _BEGUN):
      raise WorkdirError(
        f'{folder} has no problem.json to compare; set another workdir.'
      )
    return
  free = {*free}
  if any(str(x).startswith(_KEYED) for x in then.values()):
    if secret := secret_of(folder):
      problem = keyed(problem, secret)
    else:
      free |= {DATA, ROUND}
      what = f'{folder} has no secret that can be read: its data and program'
      warnings.warn(f'{what} are not compared.', stacklevel=3)
  if private:
    why = ': some rounds would be released twice'
    check(folder, 'problem', then, problem, free, why)
    return
  others = {*then, *problem} - {DATA}
  check(folder, 'problem', then, problem, free | others)
  if named := '; '.join(_differences(then, problem, free)):
    warnings.warn(
      f'{folder} was started with other versions or devices ({named}); results '
      'may differ.',
      stacklevel=3,
    )


def check(
  place: pathlib.Path,
  what: str,
  then: Mapping[str, Any],
  now: Mapping[str, Any],
  free: Collection[str] = (),
  why: str = '',
):
  """Raise WorkdirError, which names the entries, if two records differ.

  `then` is of a folder, `now` of a start; `free` are entries that may differ.
  """
  if named := '; '.join(_differences(then, now, free)):
    raise WorkdirError(
      f'{place} holds a run of another {what} ({named}){why}. Set another '
      'workdir, or the earlier values.'
    )


def check_rounds(folder: pathlib.Path, exp: Experiment, extend: bool):
  """Refuse, or warn of, another number of rounds than the folder's run has.

  A private run needs `extend` for more rounds, which its account then counts.
  Raises WorkdirError, with the epsilon of all rounds.
  """
  config = exp.config
  before: int = stored_config(folder).get('rounds', config.rounds)
  change = f'rounds: {before} then, {config.rounds} now'
  if before == config.rounds or 'rounds' not in resumable(config):
    return  # a difference is refused as that of any other field
  if exp.guarantee is None:
    if before < config.rounds and schedules(config):
      names = ', '.join(schedules(config))
      text = '%s: %s is over all rounds; rounds completed keep their rates.'
      _LOG.warning(text, change, names)
    return
  if before > config.rounds:
    raise WorkdirError(
      f'{change}: a private run may have released more rounds than an account '
      f'of {config.rounds} counts. Set rounds >= {before}, or another workdir.'
    )
  epsilon = exp.guarantee.statement.epsilon
  if not extend:
    raise WorkdirError(
      f'{change}: epsilon of all rounds would be {epsilon:.4g}. Set extend '
      '(--extend) to go on, or another workdir.'
    )
  _LOG.warning('%s: epsilon of all rounds is %.4g.', change, epsilon)


def resumable(config: config_lib.Config) -> set[str]:
  """Return the fields that may differ when a run is resumed.

  Released rounds must not be played again with other rounding or noise: a
  private run keeps its clients_per_step, and its rounds where rates, a grid of
  noise or a calibrated noise multiplier depend on them.
  """
  fields: set[str] = set(config_lib.RESUMABLE)
  if config.is_private:
    fields.remove('clients_per_step')
    by_rounds = config.noise == 'banded' or config.epsilon is not None
    if by_rounds or schedules(config):
      fields.remove('rounds')
  return fields


def schedules(config: config_lib.Config) -> list[str]:
  """Return the fields that make rates depend on the number of rounds."""
  names = 'final_server_lr', 'server_schedule', 'client_schedule'
  return [name for name in names if getattr(config, name) is not None]


def has_secret(config: config_lib.Config) -> bool:
  """Whether a run has secret noise: that of a public seed protects nothing."""
  return config.is_private and config.noise_seed is None


def secret_of(folder: pathlib.Path) -> bytes | None:
  """Read the secret of a run or of a sweep's point; None if it cannot."""
  places = [folder]
  if folder.parent.name == 'points':
    places.append(folder.parents[1])
  for place in places:
    with contextlib.suppress(FileNotFoundError, PermissionError):
      return place.joinpath(*SECRET).read_bytes()
  return None


def stored_config(folder: pathlib.Path) -> dict[str, Any]:
  """Read config.json; {} if there is none."""
  return read(folder / 'config.json', 'a config') or {}


def read(path: pathlib.Path, what: str) -> dict[str, Any] | None:
  """Read a file of JSON; None without it, WorkdirError if it is damaged."""
  try:
    return dict(json.loads(path.read_text())) if path.exists() else None
  except OSError as e:
    raise WorkdirError(f'{path} cannot be read: {e}.') from e
  except (ValueError, TypeError) as e:
    raise WorkdirError(f'{path} is not {what}: {e}.') from e


def _differences(then, now, free) -> list[str]:
  """Describe the entries in which two records differ, digests by name alone."""
  return [
    name
    if name in _DIGESTS
    else f'{name}: {then.get(name)!r} then, {now.get(name)!r} now'
    for name in {**now, **then}
    if name not in free and then.get(name) != now.get(name)
  ]


def _of_round(exp, mesh) -> str:
  # A resumed run may change how many rounds a scan dispatches.
  config = dataclasses.replace(exp.config, rounds_per_dispatch=1)
  run = program_lib.program(exp._replace(config=config), mesh)
  jaxpr = jax.make_jaxpr(run.fn)(*run.args)
  kinds = [device.device_kind for device in mesh.devices.flat]
  text = _ADDRESS.sub('', f'{kinds} {jaxpr}')
  return digests.of_text(text + _digest(_constants(jaxpr)))


def _constants(jaxpr: core.Jaxpr | core.ClosedJaxpr) -> list[Tree]:
  """Return the arrays captured by a jaxpr and by those in its equations."""
  arrays = [*getattr(jaxpr, 'consts', ())]
  for equation in jaxpr.eqns:
    for part in jax.tree.leaves([*equation.params.values()]):
      if isinstance(part, core.Jaxpr | core.ClosedJaxpr):
        arrays += _constants(part)
  return arrays


def _digest(tree: Tree, read: bool = False) -> str:
  def line(path, x):
    kind = f'{jax.tree_util.keystr(path)} {x.dtype}{[*x.shape]}'
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
      x = jax.random.key_data(x)
    if not isinstance(x, np.memmap):  # np.asarray would hide that
      x = np.asarray(x)
    return f'{kind} {store.digest(x, read=read)}'

  leaves = jax.tree.leaves_with_path(tree)
  return digests.of_text('\n'.join(line(*leaf) for leaf in leaves))
