"""Runs the attacks of a config; a stopped campaign resumes."""

import contextlib
import functools
import pathlib
from typing import Any

from fl_sketch import local as local_work, sketches
from fl_sketch.attacks import defences, reconstruction, scores
from fl_sketch.rounds import comms, mesh as mesh_lib
from fl_sketch.runs import workdir
from fl_sketch.runs.config import checked
from fl_sketch.utils import files
import jax
import jax.numpy as jnp
import numpy as np
import tqdm

from . import report, settings, victims
from .settings import AttackConfig, AttackSetting

_SHOWN = 8  # examples whose images are kept
_SEARCH = (
  'objective', 'tv', 'optimizer', 'learning_rate', 'steps', 'restarts',
  'start_scale',
)  # fmt: skip


@checked()
def run(
  c: AttackConfig, folder: str | pathlib.Path, data_dir: str | None = None
) -> list[report.Row]:
  """Attacks all examples in every setting of a config.

  The folder gets config.json, problem.json, attacks.jsonl with a row for each
  setting, images/*.npz of the first examples, table.md, pictures, and versions
  and device in measured_with.json. Started again it goes on with the settings
  that are not finished.

  Raises:
    ConfigError: the data has too few samples, or a table does not suit it.
    DataError: the dataset is not there.
    WorkdirError: the folder is that of another config or problem, or in use.
  """
  victim, grid = victims.load(c, data_dir), settings.grid(c)
  number = lambda row: grid.index(tuple(row[k] for k in AttackSetting._fields))
  problem = victims.identify(victim)
  records = workdir.Records(folder, c, 'attacks.jsonl', number, problem)
  with contextlib.closing(records) as log:
    (log.folder / 'images').mkdir(exist_ok=True)
    todo = [i for i in range(len(grid)) if i not in log.rows]
    for i in tqdm.tqdm(todo, desc='attacks', disable=None):
      row, images = attack(c, victim, grid[i])
      if images is not None:
        name = report.file_of(row)
        np.savez_compressed(log.folder / 'images' / name, images=images)
      log.add(i, row)
    rows = [log.rows[i] for i in range(len(grid))]
    report.write(c, victim, rows, log.folder)
    files.write(log.folder / 'measured_with.json', files.measured_with())
    return rows


def attack(
  c: AttackConfig, victim: victims.Victim, setting: AttackSetting
) -> tuple[report.Row, np.ndarray | None]:
  """Attacks all examples in one setting.

  Returns the setting with its mean and median scores and the relative error of
  every example; and the reconstructions of the first examples if they are
  images, f32[examples, batch, ...].
  """
  n = c.examples * setting.batch_size
  batches = lambda x: x[:n].reshape(c.examples, -1, *x.shape[1:])
  x, y = batches(victim.x), batches(victim.y)
  guesses = _attacked(c, victim, setting, x, y)
  orders = list(map(scores.match, guesses.x, x))
  guessed = c.labels != 'known'
  parts = zip(guesses.x, x, orders, guesses.labels, y, strict=True)
  scored = [
    scores.score(
      guess, truth, order=order, labels=labels if guessed else None,
      true_labels=right, success=c.success,
    )
    for guess, truth, order, labels, right in parts
  ]  # fmt: skip
  every = {k: np.concatenate([s[k] for s in scored]) for k in scored[0]}
  images = None
  if x.ndim == 5:  # in the order of the originals
    pairs = zip(guesses.x[:_SHOWN], orders[:_SHOWN], strict=True)
    images = np.stack([guess[order] for guess, order in pairs])
  row = setting._asdict() | _sizes(victim, setting)
  if setting.defence == 'epsilon':
    row['noise_multiplier'] = settings.noise_multiplier(c, setting.strength)
  row |= {k: float(v.mean()) for k, v in every.items()}
  row['errors'] = every['relative_error'].tolist()
  row['median_error'] = float(np.median(row['errors']))
  row['objectives'] = np.asarray(guesses.objective, float).tolist()
  row['objective'] = float(np.median(row['objectives']))
  if 'psnr' in every:
    row['psnrs'] = every['psnr'].tolist()
  return row, images


def _attacked(c, victim, setting, x, y):
  """`Reconstruction` of every example, sharded over the devices."""
  one = functools.partial(_one, c, victim, setting)
  lanes = reconstruction.lanes_of(len(x))
  each = lambda *args: jax.lax.map(lambda a: one(*a), args, batch_size=lanes)
  mesh, spec = mesh_lib.cohort_mesh(), jax.P(comms.SHARD)
  shares = jax.shard_map(
    each, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
  )
  rows = mesh_lib.pad((np.arange(len(x)), x, y), mesh.size)
  results = jax.device_get(jax.jit(shares)(*rows))
  return jax.tree.map(lambda values: values[: len(x)], results)


def _one(c, victim, setting, index, x, y):
  """Attacks one batch: computes its message and reconstructs it."""
  # Hashes, noise and starts have keys of their own.
  keys = jax.random.split(jax.random.fold_in(jax.random.key(c.seed), index), 3)
  hashes, noises = (jax.random.split(k, setting.rounds) for k in keys[:2])
  op, defence = settings.operator(setting), _defence(c, setting)
  hashes = None if op is None else hashes
  local = None
  if c.local_steps > 1:
    options = {'local_steps': c.local_steps}
    local = local_work.sgd(victim.loss_fn, c.client_lr, **options)
  message_of = reconstruction.view(victim.loss_fn, local=local, sketch=op)
  batch = {'x': x, 'y': y}
  send = lambda h, n: defence.apply(n, message_of(victim.params, batch, h))
  repeated = lambda p: jnp.broadcast_to(p, (setting.rounds, *p.shape))
  return reconstruction.reconstruct(
    victim.loss_fn, jax.tree.map(repeated, victim.params),
    jax.vmap(send)(hashes, noises), x, keys[2], **_labels(c, victim, y),
    sketch=op, sketch_key=hashes, pooled=True, local=local, redo=defence.redo,
    **{name: getattr(c, name) for name in _SEARCH},
  )  # fmt: skip


def _labels(c, victim, y) -> dict[str, Any]:
  if c.labels == 'known':
    return {'labels': y}
  if c.labels == 'optimised':
    return {'num_classes': victim.num_classes}
  return {'candidates': victims.candidates(victim.num_classes, len(y))}


def _defence(c: AttackConfig, setting: AttackSetting) -> defences.Defence:
  kind, strength = setting.defence, setting.strength
  if kind == 'none':
    return defences.none()
  if kind == 'noise':
    return defences.noise(strength)
  if kind == 'epsilon':
    z = settings.noise_multiplier(c, strength)
    return defences.gaussian_mechanism(c.clip_norm, z)
  if kind == 'top_k':
    return defences.top_k(int(strength))
  return defences.bound(kind, strength)


def _sizes(victim, setting):
  """Observed numbers, per parameter of the model and per unknown."""
  op = settings.operator(setting) or sketches.identity()
  d = sum(leaf.size for leaf in jax.tree.leaves(victim.params))
  observed = op.properties.floats(victim.params)
  if setting.defence == 'top_k':
    observed = min(observed, int(setting.strength))
  observed *= setting.rounds
  unknowns = victim.unknowns * setting.batch_size
  return {'per_parameter': observed / d, 'per_unknown': observed / unknowns}
