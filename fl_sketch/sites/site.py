"""Build the client that a site is, from a config and the site's own data."""

from collections.abc import Callable
import json
import pathlib

from fl_sketch import runs
from fl_sketch.privacy.mechanisms import generators
from fl_sketch.runs import log, noise_secret, same_run, sampler
from fl_sketch.runs.config import Config
from fl_sketch.runs.problem import Problem, evaluation_batches
from fl_sketch.sites import deployed
from fl_sketch.sites.client import Client
from fl_sketch.sites.programs import Programs
from fl_sketch.utils import files
from fl_sketch.utils.types import Params
import jax
import numpy as np


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
  private run is missing or readable by others, and WorkdirError if the folder
  is of a private run on other data or programs.
  """
  run, c = deployed.fingerprint(c), deployed.config(c)
  exp = runs.build(c, problem=problem)
  key = jax.random.key(c.key_seed)
  if programs is None:
    programs = Programs(exp.make, exp.hyper, exp.params, key, exp.schedule)
  private = exp.guarantee is not None
  roots = _secret(exp, run, number, folder) if private else None
  ids, weight = np.array([number]), np.ones(1, np.float32)
  poisson = c.batch_order == 'poisson'
  seed = sampler.seed_of(c, roots.sampling_seed) if roots and poisson else None

  def batches(round_index):
    drawn = sampler.with_batches(
      c, exp.partition, ids, weight, round_index, seed
    )
    index = jax.tree.map(lambda x: x[0], drawn.batches)
    return exp.fetch(exp.data, index)

  samples = exp.partition.sizes[number]
  # The server splits the sizes as the site does.
  if c.client_holdout and exp.held_out is not None:
    samples += exp.held_out.sizes[number]
  evaluate = None if roots else _evaluation(exp)
  return Client(
    programs, exp.params, run=run, client_id=number, batches=batches,
    noise_key=None if roots is None else roots.noise_key,
    send_loss=roots is None or c.public_metrics != 'hidden',
    evaluate=evaluate, max_rounds=c.rounds if private else None,
    about={'samples': int(samples), 'evaluates': evaluate is not None},
    folder=None if folder is None else folder / 'replicas',
  )  # fmt: skip


def _secret(exp, run, number, folder) -> generators.Roots:
  """Return the site's own secret, which the server does not know.

  Asked again in a round, a site with other data or another program would send
  another payload under the same noise: it is refused.
  """
  c = exp.config
  if c.noise_seed is not None:
    return noise_secret.reproducible(c.noise_seed, c.seed)
  if folder is None:
    raise ValueError('A private site requires a folder, for its secret.')
  record = same_run.problem_of(exp)
  same_run.check_problem(folder, record, private=True)
  folder.mkdir(mode=0o700, parents=True, exist_ok=True)
  files.replace(folder / 'problem.json', record)
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
    rows = range(len(test['mask']))
    of_row = lambda i: {k: x[i] for k, x in test.items()}
    sums = [metrics_fn((params, exp.hyper), of_row(i)) for i in rows]
    return {k: float(sum(row[k] for row in sums)) for k in sums[0]}

  return evaluate
