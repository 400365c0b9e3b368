"""Audit of a config inside its own training: one run with canary clients.

Canary clients are added to the population, each in by a fair coin. In every
round they send a contribution of norm C along a random number of the payload
with a random sign; no two along one number. The statement is that of the
enlarged population. The attacker sees every broadcast and every hash key. It
knows the data of the other clients and, unless cohorts have a fixed size, when
they take part: it subtracts what they send.
"""

from collections.abc import Mapping
from typing import NamedTuple

from fl_sketch import rounds
from fl_sketch.accounting import gaussian, statements, types
from fl_sketch.privacy.auditing import noise_law, one_run
from fl_sketch.privacy.auditing.audit import verdict
from fl_sketch.privacy.mechanisms import generators
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.runs import audit, canary_clients
from fl_sketch.runs.build import Experiment
from fl_sketch.runs.config import Config, checked
from fl_sketch.utils import checks
import jax
import jax.numpy as jnp
import numpy as np
import tqdm

LEAST = 500  # canaries; fewer have no power
ALONE, INDEPENDENT = 'f-DP alone', 'independent guesses'


class Game(NamedTuple):
  """A one-run audit before it is run: its claims and the program of a round."""

  exp: Experiment  # with the enlarged population
  canaries: int
  sizes: list[int]  # of the arrays of a payload
  guesses: Mapping[str, int]  # how many, by assumption of a bound
  claim: one_run.Claim
  significance: float  # bound on the probability that a true claim is refuted
  step: canary_clients.Step  # of `canary_clients.program`

  @property
  def statement(self) -> statements.PrivacyStatement:
    """The statement of the enlarged population."""
    return canary_clients.guarantee_of(self.exp).statement

  @property
  def share(self) -> float:
    """The significance of each bound, and of the law of noise."""
    return self.significance / (len(self.guesses) + 1)

  def text(self) -> str:
    """Return what is stated before the run."""
    others = self.exp.config.population - self.canaries
    return (
      f'{self.canaries} canary clients, each in by a fair coin, and {others} '
      f'others. The claim is that of them all:\n{self.statement.sentence()}\n'
      f'A true claim is refuted with probability {self.significance:g} at '
      'most, if guesses are independent of one another given the scores, as '
      'they are where canaries do not overlap in a table.'
    )


class Bound(NamedTuple):
  """A lower bound on mu."""

  right: int  # guesses that are right
  mu: float  # the bound
  epsilon: float  # of a Gaussian mechanism with this mu, at the claim's delta
  refutes: bool  # whether so many are too rarely right under the claim


class OneRunReport(NamedTuple):
  """The outcome of a run."""

  game: Game
  bounds: Mapping[str, Bound]  # by assumption; all are valid at once
  scores: np.ndarray  # f64[canaries], high where a canary seems to be in
  coins: np.ndarray  # bool[canaries], True for canaries that were in
  law: noise_law.Finding  # of the noise of all rounds

  @property
  def refuted(self) -> bool:
    """Whether the claim is refuted."""
    by_guesses = any(x.refutes for x in self.bounds.values())
    return by_guesses or self.law.chance <= self.game.share

  def text(self) -> str:
    """Return the claim, the bounds and the verdict, line by line."""
    game, statement = self.game, self.game.statement
    at = f'epsilon at delta {statement.delta:g}'
    of_gaussian = f'of a Gaussian mechanism with that mu {at}'
    lines = [f'claimed: mu {game.claim.mu:.4g}, {at} {statement.epsilon:.4g}']
    lines += [
      f'shown by {name}: mu >= {x.mu:.4g}, {of_gaussian} {x.epsilon:.4g} '
      f'({x.right} of {game.guesses[name]} guesses right)'
      for name, x in self.bounds.items()
    ]
    last = verdict('REFUTED' if self.refuted else None, game.significance)
    return '\n'.join([*lines, self.law.text(), last])


@checked()
def prepare(
  config: Config,
  *,
  canaries: int = 1000,
  data: str | None = None,
  significance: float = 1e-3,
) -> Game:
  """Build the audit of a private config, before the run.

  `data` is the directory of tensorflow-datasets; the significance is of the
  whole report. Raises ConfigError if the config is not private or its
  broadcasts say too little, or there are too few canaries.
  """
  audit.check(config)
  unsupported = {
    'noise_multiplier': config.noise_multiplier == 0,  # no guarantee
    'sampling': config.sampling == 'cyclic',  # rounds must be independent
    'noise': config.noise == 'banded',
    'before_sketch': config.before_sketch,
    'algorithm': config.privacy_unit == 'sample',  # canaries are clients
    'trust': config.trust == 'local',  # every client adds all of the noise
  }
  config.refuse(
    (canaries < LEAST,
     f'{canaries=} are too few to catch anything; use {LEAST} or more.'),
    *((refused, f'An audit in one run does not support {{{name}}}; use '
       '--audit=canaries.') for name, refused in unsupported.items()),
  )  # fmt: skip
  checks.fraction('significance', significance)
  exp = canary_clients.enlarged(config, data, canaries)
  guarantee = canary_clients.guarantee_of(exp)
  mechanism, statement = guarantee.mechanism, guarantee.statement
  sizes = canary_clients.payload_sizes(
    exp.make, exp.hyper, exp.params, exp.sample(0, 0), exp.fetch, exp.data
  )
  if sizes is None or mechanism.releases_per_step > 1:
    raise config.refusal(
      '{algorithm} does not broadcast one mean of payloads in a round, which '
      'an audit in one run requires; use --audit=canaries.'
    )
  # In a cohort of a fixed size, the others show how many canaries take part.
  known = mechanism.sampling is not types.Sampling.FIXED_WITHOUT_REPLACEMENT
  guesses = {ALONE: canaries // 4} | ({INDEPENDENT: canaries} if known else {})
  options = {'delta': statement.delta, 'accountant': statement.accountant}
  claim = one_run.claim_of(mechanism, **options)
  step = canary_clients.program(exp, config.population, known)
  return Game(exp, canaries, sizes, guesses, claim, significance, step)


@checked()
def play(
  game: Game, seed: int | None = None, *, progress: bool = False
) -> OneRunReport:
  """Train once with canaries, guess who was in, and bound mu from below.

  The seed is of coins, canaries, noise and sampling; None: a secret one.
  """
  exp, config = game.exp, game.exp.config
  # Independent of one another, and of all keys that configs' seeds give.
  *sources, secret = np.random.SeedSequence(seed).spawn(3)
  coin_rng, signal_rng = map(np.random.default_rng, sources)
  drawn = secret.generate_state(8, np.uint32).tobytes()
  make = generators.roots if seed is None else generators.reproducible_roots
  noise_key, sampling_seed = make(drawn)
  coins = coin_rng.random(game.canaries) < 0.5
  hp = exp.hyper
  state = rounds.init(exp.make(hp), exp.params, config.population)
  # A copy, since the step donates its state.
  state = mesh_lib.place(mesh_lib.cohort_mesh(), jax.tree.map(jnp.copy, state))
  key, seen, noises = jax.random.key(config.key_seed), [], []
  turns = tqdm.trange(
    config.rounds, unit='round', mininterval=0.5, disable=not progress
  )
  for t in turns:
    sent = canary_clients.signals(signal_rng, t, game.canaries, sum(game.sizes))
    cohort = canary_clients.cohort_of(exp, t, sampling_seed, sent, coins)
    state, along, noise_of = game.step(hp, state, cohort, sent, key, noise_key)
    along = np.asarray(along, np.float64)
    if np.isinf(along).any():
      raise ValueError(
        f'The broadcast of round {t} is not finite; use a smaller client_lr.'
      )
    seen.append(np.where(sent.sign, along, np.nan))
    noises.append(np.asarray(noise_of))
  law = noise_law.evaluate(np.stack(noises)[None], game.sizes)
  return _report(game, np.stack(seen), coins, law)


def _report(
  game: Game, along: np.ndarray, coins: np.ndarray, law: noise_law.Finding
) -> OneRunReport:
  """Guess, count and bound; `along` is as of `one_run.log_ratio`."""
  mechanism = canary_clients.guarantee_of(game.exp).mechanism
  scores = one_run.log_ratio(along, mechanism)
  share, claim, delta = game.share, game.claim, game.statement.delta
  bounds = {}
  for name, guesses in game.guesses.items():
    if name == ALONE:
      right = one_run.sure_right(scores, coins, guesses)
      counts = right, guesses, game.canaries
      mu = one_run.least_mu(*counts, share)
      refutes = bool(one_run.refuted(share, *counts, claim.curve))
    else:
      right = one_run.all_right(scores, coins)
      mu = one_run.independent_mu(right, guesses, share)
      chance = one_run.independent_chance(right, guesses, claim.accuracy)
      refutes = chance <= share
    epsilon = gaussian.epsilon_at(mu, delta) if mu else 0.0
    bounds[name] = Bound(right, mu, epsilon, refutes)
  return OneRunReport(game, bounds, scores, coins, law)
