"""Keep the secret of a private run: its noise key and its sampling seed."""

import hashlib
import json
import os
import pathlib
import secrets
import shutil

from fl_sketch.privacy.mechanisms import generators
from fl_sketch.rounds import peers
from fl_sketch.runs import same_run, workdir
from fl_sketch.runs.config import Config
from fl_sketch.utils import UserError, files
import jax
import numpy as np

# Beside the secret: what a site has answered, and, of a server that hides who
# takes part, the announcements of its rounds.
ANSWERED, ANNOUNCED = 'answered', 'announced'
_BYTES = generators.ROOT_BYTES


class SecretError(UserError, ValueError):
  """The secret of a run is missing, damaged, or readable by others."""


def of_run(
  config: Config,
  problem: same_run.Record,
  folder: str | os.PathLike,
  *,
  resumed: bool,
) -> generators.Roots:
  """Read or draw the secret of a private run, or of a point of a sweep.

  The same noise under two updates would cancel in their difference. So the
  secret depends on the fields of the config that a resumed run must not change,
  and on the record of the problem (`same_run.problem_of`).
  """
  if config.noise_seed is not None:
    return reproducible(config.noise_seed, config.seed)
  fields, free = files.as_json(config), same_run.resumable(config)
  fixed = json.dumps({k: v for k, v in fields.items() if k not in free})
  fixed = json.loads(fixed, parse_int=float)  # 1 and 1.0 are the same config
  owner = json.dumps([fixed, problem], sort_keys=True)
  return keep(folder, resumed=resumed, owner=owner)


def reproducible(noise_seed: int, seed: int = 0) -> generators.Roots:
  """Derive a secret from public seeds, for tests and paired comparisons."""
  text = f'noise seed {noise_seed} of seed {seed}'
  return generators.reproducible_roots(hashlib.sha256(text.encode()).digest())


def keep(
  folder: str | os.PathLike, *, resumed: bool, owner: str = ''
) -> generators.Roots:
  """Read the secret of a run from its folder, or draw it there.

  The file secret/entropy, which only its owner may read, has 32 bytes from the
  operating system. A resumed run needs it: else the rounds after its last
  checkpoint would be released twice, with other noise. Different owners share
  no randomness. Raises SecretError if the file cannot be used.
  """
  path = pathlib.Path(folder, *same_run.SECRET)
  error, digest = None, bytes(_BYTES)
  if jax.process_index() == 0:  # it reads for all of them
    try:
      entropy = _read(path) if path.exists() or resumed else _draw(path)
      digest = hashlib.sha256(entropy + owner.encode()).digest()
    except SecretError as e:
      error = e
    except OSError as e:
      error = SecretError(f'{path} cannot be read or written: {e}.')
  if peers.any_process(error is not None):  # all of them must stop
    raise error or SecretError(f'Process 0 cannot read {path}.')
  shared = peers.from_first_process(np.frombuffer(digest, np.uint8))
  return generators.roots(shared.tobytes())


def sentence(folder: str | os.PathLike) -> str:
  """Say where the secret of a run is, or that it is deleted; '' without."""
  path = pathlib.Path(folder, *same_run.SECRET)
  if not path.exists():
    return ''
  if not path.stat().st_size:
    return f'{path} was deleted: no more rounds are possible.'
  sites = same_run.read(path.parents[1] / 'sites.json', 'a record of sites')
  if sites and sites.get('noise') == 'sites':
    return (
      'Sites have added the noise; whoever reads secret/entropy in the state '
      'folder of one can remove its noise. This deletes it; the site takes '
      'part in no more rounds then: fl-sketch privacy STATE --forget_secret'
    )
  return (
    f'Whoever reads {path} can remove the noise. This deletes it; more rounds '
    f'are impossible then: fl-sketch privacy {folder} --forget_secret'
  )


def forget(folder: str | os.PathLike, *, unfinished: bool = False):
  """Empty the file of the secret of a finished run or sweep, or of a site.

  What a run over sites has kept of who took part is deleted, too. Raises
  SecretError if there is no secret, or the run has not ended (`unfinished`
  allows that), and WorkdirError if the folder is in use. A site cannot know
  whether its run has ended: once it has stopped, it may forget at any time.
  """
  folder, path = pathlib.Path(folder), pathlib.Path(folder, *same_run.SECRET)
  with workdir.lock(folder):
    if not path.exists():
      raise SecretError(f'{folder} has no secret: there is no {path}.')
    rounds = same_run.stored_config(folder).get('rounds', 0)
    ended = (folder / 'sweep.json').exists() or path.with_name(
      ANSWERED
    ).exists()
    if not (unfinished or ended or workdir.is_finished(folder, rounds)):
      raise SecretError(
        f'{folder} has not ended, and could not resume without {path}. Finish '
        'it, or set unfinished (--unfinished).'
      )
    path.write_bytes(b'')
    shutil.rmtree(path.with_name(ANNOUNCED), ignore_errors=True)


def _draw(path) -> bytes:
  path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
  entropy, partial = secrets.token_bytes(_BYTES), path.with_suffix('.partial')
  partial.unlink(missing_ok=True)
  flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
  with os.fdopen(os.open(partial, flags, 0o600), 'wb') as file:
    file.write(entropy)
  os.replace(partial, path)
  return entropy


def _read(path) -> bytes:
  entropy = path.read_bytes() if path.exists() else None
  if entropy is None:
    why = 'is missing: other noise would release rounds twice. Restore it, or'
  elif (mode := path.stat().st_mode & 0o777) & 0o077:
    why = f'is readable by others (mode {mode:o}): known noise protects nobody;'
  elif len(entropy) != _BYTES:
    why = 'was deleted or is damaged. Restore it, or with init_from'
  else:
    return entropy
  raise SecretError(f'{path} {why} start in another workdir.')
