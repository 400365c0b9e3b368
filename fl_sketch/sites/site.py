"""What a config means on real sites, and the client that a site is."""

from collections.abc import Callable
import contextlib
import dataclasses
import json
import math
import pathlib
from typing import Any
import weakref

from fl_sketch import runs
from fl_sketch.data import availability
from fl_sketch.privacy.mechanisms import generators
from fl_sketch.runs import log, noise_secret, same_run, sampler, workdir
from fl_sketch.runs.config import Config, checked
from fl_sketch.runs.fields.clients import PARTITION_OPTIONS
from fl_sketch.runs.problem import Problem, evaluation_batches
from fl_sketch.sites import sealed
from fl_sketch.sites.answers import Answers
from fl_sketch.sites.client import Client
from fl_sketch.sites.programs import Programs
from fl_sketch.utils import __version__, files
from fl_sketch.utils.types import Params, Tree
import jax
import numpy as np

_MOST = 10  # rounds between checkpoints: sites keep a replica of each


@checked()
def deployed(c: Config) -> Config:
  """Return the config with which server and sites build their experiments.

  Sites hold their own data: the simulator's partition is not read. A run is
  saved at least every 10 rounds, and a private one in every round, before
  anything of it is released. ConfigError: it simulates what sites do by
  themselves, or has what no engine can do.
  """
  apart = sites_add_noise(c)
  c.refuse(
    (c.trust == 'secure_aggregation',
     '{trust} is not supported on an engine; set central or local.'),
    (c.before_sketch,
     '{before_sketch} would send whole updates over messages; unset it.'),
    (availability.in_force(c) or c.attack is not None,
     'Sites fail by themselves; remove {over_sampling}, {dropout}, {deadline} '
     'and {attack}, which simulate that.'),
    (c.personal_steps,
     '{personal_steps} is not supported on an engine; unset it.'),
    (c.privacy_unit == 'sample' and c.epsilon is not None,
     '{epsilon} of {algorithm} depends on how many samples other sites hold; '
     'set noise_multiplier instead.'),
    (apart and c.public_metrics == 'private',
     '{public_metrics} needs a server that may see losses; set hidden.'),
  )  # fmt: skip
  changes: dict[str, Any] = dict.fromkeys(PARTITION_OPTIONS)
  changes['partition'] = 'iid'
  most = 1 if c.is_private else _MOST
  changes['checkpoint_every'] = min(c.checkpoint_every, most)
  if apart:
    changes['public_metrics'] = c.public_metrics or 'hidden'
  return dataclasses.replace(c, rounds_per_dispatch=1, **changes)


def sites_add_noise(c: Config) -> bool:
  """Whether sites release payloads with noise of their own."""
  is_central = c.trust in (None, 'central') and c.privacy_unit != 'sample'
  return c.is_private and not is_central


def reads_samples(c: Config) -> bool:
  """Whether the server needs to know how many samples each site holds."""
  if c.is_private:  # under zero-out a client's number of samples is public
    return c.privacy_unit == 'sample'
  return c.weights == 'samples' or c.client_holdout > 0


def fingerprint(c: Config) -> bytes:
  """Hash the fields that server and sites must agree on."""
  free = same_run.resumable(c)
  fields = {k: v for k, v in files.as_json(c).items() if k not in free}
  return sealed.fingerprint(fields | {'version': __version__})


def client(
  c: Config,
  number: int,
  problem: Callable[[Config], Problem],
  folder: pathlib.Path | None = None,
  programs: Programs | None = None,
) -> Client:
  """Build the client of a site; `Client.handle` answers requests.

  `number` is that of the client in the config's population, `problem` is config
  -> the problem with the site's own data, see `own_data`. The folder keeps its
  replicas, and the secret of its noise. The programs may be those of another
  client in this process: they are compiled once.

  Raises ConfigError for what engines lack, SecretError if the secret of a
  private run or the record of its answers is missing, or others can read it,
  and WorkdirError if the folder is of a private run on other data or programs,
  or in use by another client.
  """
  run, c = fingerprint(c), deployed(c)
  exp = runs.build(c, problem=problem)
  if programs is None:
    key = jax.random.key(c.key_seed)
    programs = Programs(exp.make, exp.hyper, exp.params, key, exp.schedule)
  private = exp.guarantee is not None
  with contextlib.ExitStack() as locked:
    record = None
    if private and folder is not None:
      folder.mkdir(mode=0o700, parents=True, exist_ok=True)
      locked.enter_context(workdir.lock(folder))
      record = folder.joinpath(same_run.SECRET[0], noise_secret.ANSWERED)
    roots = _secret(exp, run, number, folder, record) if private else None
    samples = exp.partition.sizes[number]
    # The server splits the sizes as the site does.
    if c.client_holdout and exp.held_out is not None:
      samples += exp.held_out.sizes[number]
    made = Client(
      programs, exp.params, run, number, _batches(exp, number, roots),
      noise_key=None if roots is None else roots.noise_key,
      send_loss=roots is None or c.public_metrics != 'hidden',
      evaluate=None if roots else _evaluation(exp),
      max_rounds=c.rounds if private else None, samples=int(samples),
      tells_samples=reads_samples(c), answers=Answers(record),
      folder=None if folder is None else folder / 'replicas',
    )  # fmt: skip
    weakref.finalize(made, locked.pop_all().close)
  return made


def _batches(exp, number, roots) -> Callable[[int], Tree]:
  """Build round -> the batches of a client."""
  c, ids, weight = exp.config, np.array([number]), np.ones(1, np.float32)
  poisson = c.batch_order == 'poisson'
  seed = sampler.seed_of(c, roots.sampling_seed) if roots and poisson else None

  def batches(round_index):
    args = exp.partition, ids, weight, round_index, seed
    drawn = sampler.with_batches(c, *args).batches
    return _split(exp.fetch(exp.data, jax.tree.map(lambda x: x[0], drawn)))

  return batches


def _split(batches: Tree) -> Tree:
  """Split batches, leaves [local_steps, batch, ...], over local devices.

  The compiled local work then uses all of them, and XLA sums their gradients;
  of devices that do not divide the batch it uses fewer.
  """
  size, devices = jax.tree.leaves(batches)[0].shape[1], jax.local_devices()
  count = math.gcd(size, len(devices))
  mesh = jax.sharding.Mesh(np.array(devices[:count]), ('batch',))
  spec = jax.sharding.PartitionSpec(None, 'batch')
  return jax.device_put(batches, jax.sharding.NamedSharding(mesh, spec))


def _secret(exp, run, number, folder, answered) -> generators.Roots:
  """Return the site's own secret, which the server does not know.

  Asked again in a round, a site with other data or another program would send
  another payload under the same noise: it is refused. `answered` is the path of
  the record of answers, which is made before the secret.
  """
  c = exp.config
  if answered is not None:
    answered.parent.mkdir(mode=0o700, exist_ok=True)
  if c.noise_seed is not None:
    return noise_secret.reproducible(c.noise_seed, c.seed)
  if folder is None or answered is None:
    raise ValueError('A private site requires a folder, for its secret.')
  record = same_run.problem_of(exp)
  same_run.check_problem(folder, record, private=True)
  files.write(folder / 'problem.json', record)
  if not answered.exists():
    if folder.joinpath(*same_run.SECRET).exists():
      raise noise_secret.SecretError(
        f'{answered} is missing: rounds that it lists would be answered twice '
        'with the same noise. Restore it, or set another state folder.'
      )
    files.write(answered, {}, durable=True)
  resumed = any((folder / 'replicas').glob('replica_*'))
  owner = json.dumps([run.hex(), number, record], sort_keys=True)
  return noise_secret.keep(folder, resumed=resumed, owner=owner)


def _evaluation(exp) -> Callable[[Params], dict[str, float]] | None:
  """Build parameters -> sums of metrics on what the site holds out."""
  if exp.held_out is None or exp.held_data is None:
    return None
  index = exp.held_out.take(np.arange(exp.held_out.samples))
  test = evaluation_batches({k: x[index] for k, x in exp.held_data.items()})
  metrics_fn = jax.jit(log.metrics_of(exp))

  def evaluate(params):
    rows = (
      {k: x[i] for k, x in test.items()} for i in range(len(test['mask']))
    )
    sums = [metrics_fn((params, exp.hyper), row) for row in rows]
    return {k: float(sum(row[k] for row in sums)) for k in sums[0]}

  return evaluate
