"""What the rows and the files of a private run say of its clients.

docs/guides/privacy.md shows this table; tests/runs/training compares it with
runs that differ in the data of one client.
"""

import fnmatch
import json
import re
from typing import NamedTuple

from fl_sketch.runs.config import Config
from fl_sketch.sites import site
import jax
import numpy as np
import orbax.checkpoint as ocp

NOTHING, NOISED, EXACT = 'nothing', 'with noise', 'without noise'
ABSENT, KEEP, ROWS = 'left out', 'do not publish', 'as its columns'
_OF_ALL, _NO = (EXACT, ABSENT, ABSENT), (NOTHING, NOTHING, NOTHING)
_COUNTED, _KEPT = (EXACT, NOTHING, NOTHING), (EXACT, KEEP, KEEP)
_ROWS = ROWS, ROWS, ROWS
# Conditions, which `_present` looks up.
HELD = 'with client_holdout or personal_steps'
THEIRS = 'if training clients hold the test set'
CHOSEN = 'with keep_best, if training clients hold the test set'
STATE = 'if clients keep state'
SEED, SECRET = 'with noise_seed', 'without noise_seed'
SITES, SIZES = 'over sites', 'over sites, if samples are protected'
LOCAL = 'over sites that add the noise'


class Item(NamedTuple):
  """Columns of rows, or files, and what they say of clients."""

  names: str  # patterns
  about: str
  every: str  # what it says of clients if public_metrics='all'
  private: str  # if 'private'
  hidden: str  # if 'hidden'
  when: str = 'always'

  def says(self, config: Config) -> str:
    """Return what it says of clients in a run of a config."""
    if config.shows_all:
      return self.every
    return self.private if config.public_metrics == 'private' else self.hidden


# Files of checkpoints with times.
TIMED = '_CHECKPOINT_METADATA', 'digests.json', 'commit_success.txt'
# Of the items that match a name, the first counts.
COLUMNS = (
  Item('round, epsilon, finite', 'config and model', *_NO),
  Item('train_loss', 'mean loss', EXACT, NOISED, ABSENT),
  Item('participants', 'number', EXACT, NOISED, ABSENT),
  Item('rejected_clients, late_clients, silent_clients', 'numbers', *_OF_ALL),
  Item('*_bytes', 'traffic', *_COUNTED),
  Item('client_*, personal_*', 'samples that clients hold out', *_OF_ALL, HELD),
  Item('*test_*', 'samples that clients hold out', *_OF_ALL, THEIRS),
  Item('*test_*', 'samples of nobody who trains', *_NO, 'otherwise'),
  Item('seconds', 'may depend on who took part', *_KEPT),
  Item('*', 'other metrics of local work', *_OF_ALL),
)
FILES = (
  Item('metrics.jsonl, summary.json, printed lines, loss.png, '
    'accuracy_vs_*.png', 'rows', *_ROWS),
  Item('points.jsonl, sweep.*, table.*, params/*', 'rows of points',
    *_ROWS, 'of a sweep'),
  Item('checkpoints/client_rows/*', 'what clients keep', *_KEPT, STATE),
  Item('checkpoints/*', 'who took part; the model', *_COUNTED),
  Item('best/*', 'chosen by samples that clients hold out', *_OF_ALL, CHOSEN),
  Item('best/*, init/*', 'model', *_NO, 'with keep_best, init_from'),
  Item('problem.json', 'plain digests of data', EXACT, EXACT, EXACT, SEED),
  Item('problem.json', 'digests of data by the secret', *_NO, SECRET),
  Item('announced/*', 'who took part; broadcasts', *_OF_ALL, SITES),
  Item('secret/announced/*', 'who took part; broadcasts', ABSENT, KEEP, KEEP,
    SITES),
  Item('secret/*', 'noise and sampling', KEEP, KEEP, KEEP, SECRET),
  Item('sites.json, greetings', 'starts; numbers of samples', EXACT, EXACT,
    EXACT, SIZES),
  Item('sites.json, greetings', 'starts, clients, releases', *_NO, SITES),
  Item('released', 'rounds', *_NO, SITES),
  Item('network, log of the engine', 'whom the server asks', *_KEPT, SITES),
  Item('requests', 'broadcasts', *_NO, SITES),
  Item('losses', 'loss of a client, to the server', EXACT, EXACT, NOTHING,
    SITES),
  Item('payloads', 'updates of a client', *3 * [NOISED], LOCAL),
  Item('payloads', 'updates of a client, to the server', *3 * [EXACT], SITES),
  Item('sites/*', 'state of sites with --engine=local', *3 * [KEEP], SITES),
  Item('config.json, lock', 'config, process', *_NO),
  Item('certificate.json', 'program of a round, account', *_NO),
  Item('privacy.json', 'account', *_NO, 'of fl-sketch account'),
)  # fmt: skip


def says(config: Config, items, name: str, **known) -> str:
  """Return what a column, or a file in the folder of a run, says of clients.

  `known` are arguments of `_present`. Raises KeyError if no item has this name.
  """
  name = re.sub(r'^points/\d+/', '', name)  # a point's folder is that of a run
  for item in _present(config, items, **known):
    if any(fnmatch.fnmatchcase(name, x) for x in item.names.split(', ')):
      return item.says(config)
  raise KeyError(f'{name} is in no item of the table; add one.')


def _present(
  config: Config, items, keeps_state=False, test_of_clients=None, sites=False
):
  """Return the items whose conditions hold, or follow from no config."""
  holds = {
    HELD: config.client_holdout > 0 or config.personal_steps is not None,
    THEIRS: bool(test_of_clients),
    CHOSEN: bool(test_of_clients) and config.keep_best is not None,
    STATE: keeps_state,
    SEED: config.noise_seed is not None,
    SECRET: config.noise_seed is None,
    SITES: sites,
    SIZES: sites and site.reads_samples(config),
    LOCAL: sites and site.sites_add_noise(config),
  }
  return [item for item in items if holds.get(item.when, True)]


def contents(folder, printed):
  """(name in the table, part) -> what no clock decides, of all that is left."""
  found = {('printed lines', ''): printed}
  for path in sorted(folder.rglob('*')):
    name = path.relative_to(folder).as_posix()
    if path.name == 'arrays':  # in files with times
      reader = ocp.Checkpointer(ocp.PyTreeCheckpointHandler())
      tree = reader.metadata(path).item_metadata.tree
      one = ocp.RestoreArgs(restore_type=np.ndarray)
      how = jax.tree.map(lambda _, one=one: one, tree)
      tree = reader.restore(path, restore_args=how)
      found[name, ''] = jax.tree.map(np.ndarray.tolist, tree)
    elif path.is_dir() or '/arrays/' in name:
      continue
    elif path.name in TIMED:
      found[name, ''] = None
    elif path.name in ('metrics.jsonl', 'summary.json'):
      text = path.read_text().replace('\n  ', ' ').replace('\n}', '}')
      rows = [json.loads(line) for line in text.splitlines()]
      for part in {*rows[-1]} - {'seconds'}:
        found[name, part] = [row.get(part) for row in rows]
    else:
      found[name, ''] = path.read_bytes()
  return found


def told(config, one, other, **known):
  """What differs in the `contents` of two runs; checks it by the table."""
  columns = {part for file, part in one if file == 'metrics.jsonl'}
  both = one | other
  changed = {k for k in both if both[k] != one.get(k)}
  moved = any(file == 'metrics.jsonl' for file, _ in changed)
  for file, part in both:
    what = says(config, FILES, file, **known)
    if what == ROWS and part in columns:
      what = says(config, COLUMNS, part, **known)
    elif what == ROWS and moved:  # which are copied or drawn
      what = EXACT
    assert what != ABSENT, (file, part)
    if (file, part) in changed:
      assert what not in (NOTHING, ROWS), (file, part)
  return {part or file for file, part in changed}
