"""Compare a start with the run that its folder holds."""

from collections.abc import Collection, Mapping
import contextlib
import json
import pathlib
from typing import Any
import warnings

from fl_sketch.runs import config as config_lib, identity
from fl_sketch.utils import files

SECRET = 'secret', 'entropy'  # path of a private run's secret in its folder
# Files of a run that has begun; the last one is the model of a checkpoint.
_BEGUN = 'config.json', 'metrics.jsonl', 'checkpoints/*/arrays'
# Entries of a problem that may differ where a run is not private: of the first
# a start warns.
_CODE = {'fl_sketch', 'jax', identity.SOURCE}
_MACHINE = {
  'numpy', 'python', 'device', 'processes', identity.KERNELS, identity.ROUND,
  *identity.FLAGS,
}  # fmt: skip


class WorkdirError(ValueError):
  """The folder holds another run, is in use, or cannot be written."""


def differences(
  then: Mapping[str, Any], now: Mapping[str, Any], free: Collection[str] = ()
) -> dict[str, str]:
  """Describe each entry in which two records differ, digests by name alone.

  >>> differences({'rounds': 2, 'seed': 0}, {'rounds': 4, 'seed': 0})
  {'rounds': 'rounds: 2 then, 4 now'}

  `then` is of a folder, `now` of a start; `free` are entries that may differ.
  """
  texts = {}
  for name in {**now, **then}:
    old, new = then.get(name), now.get(name)
    if old == new or name in free:
      continue
    is_digest = name in identity.DIGESTS
    texts[name] = name if is_digest else f'{name}: {old!r} then, {new!r} now'
  return texts


def check(
  place: pathlib.Path,
  what: str,
  then: Mapping[str, Any],
  now: Mapping[str, Any],
  free: Collection[str] = (),
  why: str = '',
):
  """Raise WorkdirError, which names the entries, if two records differ."""
  if named := '; '.join(differences(then, now, free).values()):
    raise WorkdirError(
      f'{place} holds a run of another {what} ({named}){why}. Set another '
      'workdir, or the earlier values.'
    )


def check_run(
  folder: pathlib.Path,
  config: config_lib.Config,
  problem: identity.Record,
  free: Collection[str] = (),
):
  """Compare config and problem of a start with those of its folder.

  `free` are fields that may differ besides those that always may.
  """
  check_config(folder, config, resumable(config) | {*free})
  check_problem(folder, problem, private=has_secret(config))


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


def check_config(folder: pathlib.Path, config: Any, free: Collection[str]):
  """Raise WorkdirError if fields other than `free` differ from config.json."""
  if then := stored_config(folder):
    check(folder, 'config', then, files.as_json(config), free)


def stored_config(folder: pathlib.Path) -> dict[str, Any]:
  """Read config.json; {} if there is none."""
  return read(folder / 'config.json', 'a config') or {}


def resumable(config: config_lib.Config) -> set[str]:
  """Return the fields that may differ when a run is resumed."""
  fields: set[str] = set(config_lib.RESUMABLE)
  if not config.is_private:
    return fields
  # Released rounds must not be played again with other rounding or noise.
  fields.remove('clients_per_step')
  if follows_rounds(config) or config.epsilon is not None:
    fields.remove('rounds')
  return fields


def schedules(config: config_lib.Config) -> list[str]:
  """Return the fields that make rates depend on the number of rounds."""
  names = 'final_server_lr', 'server_schedule', 'client_schedule'
  return [name for name in names if getattr(config, name) is not None]


def follows_rounds(config: config_lib.Config) -> bool:
  """Return whether rates, or a grid of noise, depend on `rounds`."""
  return config.noise == 'banded' or bool(schedules(config))


def check_problem(
  folder: pathlib.Path, problem: identity.Record, *, private: bool
):
  """Compare a problem with the problem.json of a folder that has results.

  A private run refuses every difference. Any other one ignores other devices,
  and warns of another fl_sketch or JAX, and of initial parameters if JAX or the
  kind of device differs. Without the secret, keyed digests are not compared.

  Raises WorkdirError if the problem differs, or the folder has results without
  one.
  """
  if (then := read(folder / 'problem.json', 'a problem')) is None:
    if any(any(folder.glob(name)) for name in _BEGUN):
      raise WorkdirError(
        f'{folder} has no problem.json: its data cannot be compared. Set '
        'another workdir.'
      )
    return
  free = set() if identity.START in problem else {identity.START}
  if any(str(x).startswith(identity.KEYED) for x in then.values()):
    if secret := secret_of(folder):
      problem = identity.keyed(problem, secret)
    else:
      free |= {identity.DATA, identity.ROUND}
      what = f'{folder} has no secret that can be read: its data and program'
      warnings.warn(f'{what} are not compared.', stacklevel=3)
  warned: set[str] = set()
  why = ': some rounds would be released twice'
  if not private:
    free, warned, why = free | _MACHINE, _CODE, ''
    kinds = {str(r.get('device')).partition(' x ')[2] for r in (then, problem)}
    if then.get('jax') != problem.get('jax') or len(kinds) > 1:
      warned = warned | {identity.START}
  check(folder, 'problem', then, problem, free | warned, why)
  texts = differences(then, problem, free)
  if named := '; '.join(text for k, text in texts.items() if k in warned):
    warnings.warn(
      f'{folder} was started with other versions or devices ({named}); results '
      'may differ.',
      stacklevel=3,
    )


def read(path: pathlib.Path, what: str) -> dict[str, Any] | None:
  """Read a file of JSON; None without it, WorkdirError if it is damaged."""
  try:
    return dict(json.loads(path.read_text())) if path.exists() else None
  except OSError as e:
    raise WorkdirError(f'{path} cannot be read: {e}.') from e
  except (ValueError, TypeError) as e:
    raise WorkdirError(f'{path} is not {what}: {e}.') from e
