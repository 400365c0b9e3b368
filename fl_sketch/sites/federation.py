"""Train a config over the sites of a transport.

It is `runs.train`, with its rows, checkpoints and resume, but for the
rounds: sites do the work of the clients, on data that the server never sees.
"""

from collections.abc import Mapping
import math
import os
import pathlib
from typing import Any

from fl_sketch import rounds, runs
from fl_sketch.data.partitions import Partition
from fl_sketch.privacy.mechanisms import generators
from fl_sketch.rounds import comms
from fl_sketch.runs import (
  client_state,
  config as config_lib,
  log,
  method,
  metrics,
  noise_secret,
  problem,
  same_run,
)
from fl_sketch.runs.workdir import WorkdirError
from fl_sketch.sites import site
from fl_sketch.sites.history import History
from fl_sketch.sites.programs import Programs
from fl_sketch.sites.server import Server
from fl_sketch.sites.site_rounds import SiteRounds, Timeouts
from fl_sketch.sites.transport import Transport
from fl_sketch.utils import files
import jax
import numpy as np


def run(
  fields: Mapping[str, Any] | config_lib.Config,
  transport: Transport,
  folder: str | os.PathLike,
  *,
  data_dir: str | None = None,
  timeout: float = Timeouts().reply,
  first_timeout: float = Timeouts().first,
  progress: bool = True,
) -> runs.Result:
  """Train over sites; resume from the last checkpoint of the folder.

  Before the first round every client of the population must have answered once.
  A site that has not replied after `timeout` seconds is absent from the round;
  one that has not answered yet has `first_timeout`: it compiles. The test set
  is in `data_dir`; the rest is as of `runs.train`. Raises SitesError if
  sites are missing or refuse, or nobody answers, and ConfigError for what
  engines lack.
  """
  if isinstance(fields, config_lib.Config):
    fields = files.as_json(fields)
  c = config_lib.Config.from_mapping({**dict(fields), 'sweep': None})
  name, c = site.fingerprint(c), site.deployed(c)
  folder = pathlib.Path(folder)
  record = folder / 'sites.json'
  known = same_run.read(record, 'a record of sites') or {}
  incarnation = known.get('incarnation', 0) + 1
  timeouts = Timeouts(timeout, first_timeout)
  sites = SiteRounds(transport, name, c.population, incarnation, timeouts)
  about: dict[str, Any] = {'incarnation': incarnation}
  build = lambda: runs.build(c, problem=lambda c: _of_sites(c, data_dir, about))
  # What leaks is refused before any site is asked.
  exp = None if site.reads_samples(c) else build()
  sites.greet(wait=not known)
  if site.sites_add_noise(c):
    about['noise'] = 'sites'
  if site.reads_samples(c):
    about['samples'] = known.get('samples') or [
      sites.about[i].get('samples', 1) for i in range(c.population)
    ]
  folder.mkdir(parents=True, exist_ok=True)
  files.write(record, about)
  exp = exp or build()
  player = lambda *args: SitePlayer(sites, *args)
  options = {'progress': progress, 'player': player}
  # The server's state is on one device.
  return runs.train(exp, folder, mesh=rounds.cohort_mesh(1), **options)


def _of_sites(c, data_dir, about) -> problem.Problem:
  """Build the server's problem: sizes of clients, but none of their data."""
  loaded = problem.load(c, data_dir)
  held = math.ceil(1 / c.client_holdout) if c.client_holdout else 0
  nothing_depends_on = [max(1, c.batch_size) + held] * c.population
  samples = about.get('samples', nothing_depends_on)
  data = {k: np.zeros_like(x[:1]) for k, x in loaded.data.items()}
  ends = np.cumsum([0, *samples])
  partition = Partition(np.zeros(ends[-1], np.int64), ends)
  return loaded._replace(
    data=data, labels=None, held_out=None, partition=partition
  )


class SitePlayer:
  """The rounds of a run over sites, a `runs.player.RunPlayer`.

  The state has no rows of clients: sites keep their own.
  """

  def __init__(self, sites, exp, mesh, folder, program):
    self._sites, self._exp, self._folder = sites, exp, pathlib.Path(folder)
    self.client_state = client_state.OnDevice(mesh)
    # Clients' samples are at the sites.
    of_server = exp._replace(held_out=None, held_data=None)
    self._evaluate = log.evaluator(program.evaluate, of_server, mesh)
    key = jax.random.key(exp.config.key_seed)
    args = exp.make, exp.hyper, exp.params, key, exp.schedule
    self._programs = Programs(*args)
    self.state = comms.drop_per_client(self._programs.first(exp.params))
    self._secret: generators.Roots | None = None

  def start(self, secret: generators.Roots | None):
    """Begin with the sites; `secret` is that of a private run."""
    exp, sites = self._exp, self._sites
    self._secret, sites.hides_clients = secret, not exp.config.shows_all
    sites.server = Server(
      self._programs, sites.run, incarnation=sites.incarnation,
      noise_key=None if secret is None else secret.noise_key,
      max_norm=exp.max_payload_norm, summary=method.summary(exp.config),
    )  # fmt: skip
    done = int(self.state.round)
    if secret is not None:
      self._note_release(done)
    # It has who took part, which a private run may hide.
    hides = sites.hides_clients
    parts = [same_run.SECRET[0]] * hides + [noise_secret.ANNOUNCED]
    where = self._folder.joinpath(*parts)
    where.parent.mkdir(mode=0o700, exist_ok=True)
    sites.history = History(self._programs, done, where)

  def play(self, done: int) -> tuple[list[list[rounds.Cohort]], dict[str, Any]]:
    """Play the round after `done` of them."""
    seed = None
    if self._secret is not None:
      seed = self._secret.sampling_seed
      self._note_release(done)
    self._sites.saved = self._newest_checkpoint()
    cohort = self._exp.sample(done, seed)
    closed = self._sites.play(self.state, cohort.ids, cohort.weight)
    self.state = closed.state
    return [[closed.cohort]], closed.metrics

  def _note_release(self, done: int):
    """Refuse a state before one that was released; the next one will be."""
    before = self._released()
    if done < before:
      raise WorkdirError(
        f'{self._folder} has lost the checkpoint of round {before}: this '
        'private run would release rounds twice. Restore it.'
      )
    files.write(self._folder / 'released', f'{done}', durable=True)

  def _released(self) -> int:
    path = self._folder / 'released'
    return int(path.read_text()) if path.exists() else 0

  def _newest_checkpoint(self) -> int:
    names = (p.name for p in (self._folder / 'checkpoints').glob('[0-9]*'))
    return max(map(int, filter(str.isdecimal, names)), default=0)

  def evaluate(self) -> list[metrics.Row]:
    """Return the metrics of the test set, and of what sites hold out."""
    row = self._evaluate(self.state.params, self._exp.hyper)
    if self._secret is not None:
      return [row]
    replies = [x for x in self._sites.evaluate(self.state) if _are_sums(x)]
    if not replies:
      return [row]
    equal = [x for x in replies if x.keys() == replies[0].keys()]
    sums = {k: np.array([x[k] for x in equal], float) for k in equal[0]}
    return [row | metrics.over_clients(sums)]

  def close(self):
    """Note what was released last, whose checkpoint is the newest."""
    if self._secret is not None:
      self._note_release(max(self._released(), self._newest_checkpoint()))


def _are_sums(reply: dict[str, Any]) -> bool:
  """Return whether a site has sent sums of metrics."""
  is_number = lambda x: type(x) in (int, float) and abs(x) < 1e300
  return 'count' in reply and all(map(is_number, reply.values()))
