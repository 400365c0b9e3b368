"""Types of a federated algorithm: local work and one chain of links."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fl_sketch.rounds import chain, comms, keys as keys_lib
from fl_sketch.utils.types import Key, Params, Tree
import jax
import optax

LossFn = Callable[..., jax.Array]  # (params, batch) -> f32[]; may take a key
Metrics = dict[str, jax.Array]  # of local work, f32[] each
Local = Callable[..., tuple[Tree, Metrics]]


class Hyper(NamedTuple):
  """The hyperparameters that a sweep may vary: arrays, so that it can `vmap`.

  Attributes:
    client_lr: f32[], step size of local work.
    server_lr: f32[], step size of the server.
    clip_norm: f32[], L2 bound where an algorithm clips; None where none does.
    noise_multiplier: f32[], standard deviation of the noise on a sum, in units
      of ``clip_norm``; None where no privacy is claimed.
    extra: other hyperparameters, f32[] each, by the name of an algorithm's
      option, or as 'sketch.NAME', 'codec.NAME' or 'model_options.NAME'.
    frozen: arrays of the loss that no round changes, such as frozen weights:
      one copy for all clients of a device.
  """

  client_lr: jax.Array
  server_lr: jax.Array
  clip_norm: jax.Array | None = None
  noise_multiplier: jax.Array | None = None
  extra: dict[str, jax.Array] | None = None
  frozen: Tree = None


class FromHyper(NamedTuple):
  """A sketch, codec or loss that is rebuilt in each trace with traced options.

  Values of `Hyper.extra`, by the name FIELD.OPTION, replace those of `options`.
  """

  build: Callable[..., Any]  # (**options) -> the sketch, codec or loss
  options: Mapping[str, Any]
  field: str  # 'sketch', 'codec' or 'model_options'

  def with_hyper(self, hp: Hyper) -> Any:
    """Build the sketch, codec or loss with the hyperparameters of a run."""
    extra = hp.extra or {}
    options = dict(self.options)
    for name in options:
      options[name] = extra.get(f'{self.field}.{name}', options[name])
    return self.build(**options)


class OfFrozen(NamedTuple):
  """A loss that reads `Hyper.frozen`."""

  with_hyper: Callable[[Hyper], LossFn]


def with_hyper(part: Any, hp: Hyper) -> Any:
  """Return the part built with these hyperparameters, or unchanged."""
  return part.with_hyper(hp) if isinstance(part, FromHyper | OfFrozen) else part


class StatefulLocal(NamedTuple):
  """Local work that keeps state of each client between its rounds."""

  init: Callable[[Params], Tree]  # the state before a client's first round
  # (params, batches, key, correction, state) -> (moved, metrics, state)
  apply: Callable[..., tuple[Tree, Metrics, Tree]]

  def __call__(self, *_):
    """Raise ValueError: the caller would lose the state."""
    raise ValueError('This local work must keep no state between rounds.')


class RoundLocal(NamedTuple):
  """Local work that draws what all clients of a round share, such as a hash."""

  # (params, batches, `keys.RoundKeys`, correction) -> (payload, metrics)
  apply: Callable[..., tuple[Tree, Metrics]]


Work = Local | StatefulLocal | RoundLocal
Keys = keys_lib.RoundKeys | keys_lib.NoiseKeys


def call_of(
  local: Work, keys: Keys
) -> tuple[Callable[..., tuple[Any, ...]], Key | Keys]:
  """Return the function of local work, and the key or keys that it takes."""
  if isinstance(local, RoundLocal):
    return local.apply, keys
  fn = local.apply if isinstance(local, StatefulLocal) else local
  return fn, keys_lib.local_key(keys)


def run_first_round(
  local: Work, params: Params, batches: Tree, keys: Keys, correction: Tree
) -> tuple[Tree, Metrics]:
  """Do the local work of a client without state of earlier rounds."""
  first = [local.init(params)] if isinstance(local, StatefulLocal) else []
  fn, key = call_of(local, keys)
  return fn(params, batches, key, correction, *first)[:2]


class Algorithm(NamedTuple):
  """A federated algorithm.

  Attributes:
    local: (params, batches, key, correction) -> (pseudo-gradient, metrics), for
      one client; or a `StatefulLocal` or `RoundLocal`.
    encode: pseudo-gradient -> payload, for one client.
    protocol: the cohort's payloads -> what the server broadcasts.
    correction: protocol state -> the part that local work reads: a `PerClient`,
      or a shared tree; None: local work reads none.
    server: broadcast -> update of params.
    decode: (keys, payload, like) -> what the client loop adds up; None if the
      protocol takes the payloads themselves, leaves [lanes, ...].
    releases: number of noisy releases in a round that protect a client
      (user-level DP) or, in local work, a sample (example-level DP). If not 0,
      a round takes a secret key, from which local work draws, weights count as
      0 or 1, and a round without participants updates the state like any other.
    sensitivity: f32[] for each release of the links, see `chain.Link`.
    full_participation: number of clients that must take part in every round;
      True: as many as have a row of state, False: any number.
    update_template: params -> a tree with the shapes of what local work
      returns; None: those of params.
    due: as of `chain.Link`.
    epoch: of how many rounds a client that was away needs the last broadcast
      alone.
  """

  local: Work
  encode: optax.GradientTransformationExtraArgs = chain.IDENTITY
  protocol: optax.GradientTransformationExtraArgs = chain.IDENTITY
  correction: Callable[[Tree], Tree] | None = None
  server: optax.GradientTransformationExtraArgs = chain.IDENTITY
  decode: comms.Decode | None = None
  releases: int = 0
  sensitivity: tuple[jax.Array, ...] = ()
  full_participation: int = False
  update_template: Callable[[Params], Tree] | None = None
  due: Callable[[Tree], dict[str, jax.Array]] | None = None
  epoch: int = 1


def federated(
  local: Work, *links: chain.Link | optax.GradientTransformation,
  correction: Callable[[Tree], Tree] | None = None,
  full_participation: int = False,
  update_template: Callable[[Params], Tree] | None = None,
) -> Algorithm:  # fmt: skip
  """Build an algorithm from its local work and one chain of links, in order.

  Leading client links become the encoder. If an uplink follows, each payload is
  added to a running sum: a round holds O(d + b) numbers whatever the cohort.
  Clients that hold the broadcast can redo the links after `broadcast`. A plain
  transformation of optax is a shared link. Options are attributes of
  `Algorithm`.

  >>> from fl_sketch.rounds import aggregation, transforms as t
  >>> clip = t.per_client(optax.clip(1.0))
  >>> uplink = aggregation.mean_over_cohort()
  >>> work = lambda params, batches, key, correction: (batches, {})
  >>> federated(work, clip, uplink, t.broadcast()).decode is not None
  True

  Raises:
    ValueError: a link before the uplink is no client link, a client link or
      another uplink stands after it, there is no `broadcast()`, a link is
      inside a combinator of optax, hashes change within a `Link.epoch`, two
      noisy sums have the same noise, or links release noise and local work
      reads public keys.
  """
  made = list(map(chain.as_link, links))
  roles = [link.role for link in made]
  is_client = [role == chain.CLIENT for role in roles]
  count = (*is_client, False).index(False)
  encode, rest = tuple(made[:count]), made[count:]
  if any(is_client[count:]):
    raise ValueError('Put links per client before the uplink.')
  if not rest or rest[0].role == chain.SHARED:
    kind = 'a shared link' if rest else 'nothing'
    raise ValueError(
      f'The chain has {kind} before a mean over the cohort. Add '
      'aggregation.mean_over_cohort() or an exchange; wrap an optax '
      'transformation of each client in transforms.per_client.'
    )
  if chain.UPLINK in roles[count + 1 :]:
    raise ValueError('Put one mean_over_cohort before all shared links.')
  broadcasts = [i for i, link in enumerate(rest) if link.broadcasts]
  if not broadcasts:
    raise ValueError(
      'The chain has no downlink: add transforms.broadcast() after the uplink.'
    )
  if rest[0].attach is not None:
    encode, rest[0] = rest[0].attach(encode)
  uplink, split, whole = rest[0], broadcasts[-1] + 1, (*encode, *rest)
  chain.check_hashes(encode, uplink.epoch)
  draws = sum((link.draws for link in whole), ())
  if len({*draws}) < len(draws):
    raise ValueError(
      f'Noisy sums of a round have the same noise, {draws=}: their difference '
      'has none. Take privacy.mean(index) with an index for each.'
    )
  releases = sum(link.releases for link in whole)
  if releases and isinstance(local, RoundLocal):
    raise ValueError('A RoundLocal has no privacy analysis; use local steps.')
  return Algorithm(
    local, chain.chained(encode), chain.chained(rest[:split]), correction,
    chain.chained(rest[split:]),
    decode=uplink.decode if uplink.role == chain.UPLINK else None,
    releases=releases,
    sensitivity=sum((link.sensitivity for link in whole), ()),
    full_participation=full_participation, update_template=update_template,
    due=uplink.due,
  )  # fmt: skip


def check_cohort(algorithm: Algorithm, size: int, rows: int) -> None:
  """Raise ValueError if `size` is below `Algorithm.full_participation`."""
  expected = algorithm.full_participation
  if expected is True:
    if not rows:
      raise ValueError('Set full_participation=NUMBER: clients have no state.')
    expected = rows
  if size < expected:
    raise ValueError(
      f'A cohort of {size=} must be all {expected} clients: each takes '
      'part in every round of this algorithm.'
    )
