"""One federated round: a pure function of (hyperparameters, state, cohort)."""

from collections.abc import Callable
import functools
from typing import Any, NamedTuple

from fl_sketch.rounds import (
  client_loop,
  client_step,
  comms,
  fates,
  keys as keys_lib,
  marks,
)
from fl_sketch.rounds.algorithm import Algorithm, Hyper, Metrics, StatefulLocal
from fl_sketch.rounds.mesh import pad, shardings_over
from fl_sketch.utils.types import Key, Params, Tree
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
import numpy as np
import optax

Make = client_step.Make
Fetch = client_step.Fetch
PADDING_ID = np.iinfo(np.int32).max  # of padding, beyond any population
Schedule = Callable[[Hyper, jax.Array], Hyper]  # (hp, round) -> hp


class FedState(NamedTuple):
  """The state between rounds; `PerClient` rows are indexed by client id."""

  round: jax.Array  # int32[], rounds done
  params: Params
  encode: comms.PerClient  # of the encoder; after that of a `StatefulLocal`
  protocol: Tree  # state of the links up to the broadcast
  server: Tree  # state of the links after it


class Cohort(NamedTuple):
  """The clients of one cross-device round, padded to C = shards x client slots.

  Attributes:
    ids: int32[C]; padding holds the population size or more.
    weight: f32[C]; 0 for absent clients and padding. Algorithms with a sum over
      the population expect weights of mean 1 over it.
    batches: leaves [C, local_steps, batch, ...]: samples, or the input of
      `fetch`, such as their indices.
    byzantine: bool[C], marks byzantine clients; None if there are none.
    outcome: int8[C], codes of `fates`, for the ledger on the host.
      None: clients of weight above 0 participated, no others were selected.
  """

  ids: jax.Array | np.ndarray
  weight: jax.Array | np.ndarray
  batches: Tree
  byzantine: jax.Array | np.ndarray | None = None
  outcome: np.ndarray | None = None


# (hp, state, cohort, key, data=None, noise_key=None) -> (state, metrics)
RoundFn = Callable[..., tuple[FedState, Metrics]]


def init(algorithm: Algorithm, params: Params, population: int) -> FedState:
  """Initialise the state before the first round.

  Raises ValueError for an empty population or a sketch larger than the model.
  """
  if population < 1:
    raise ValueError(f'{population=} must be >= 1.')
  rows = lambda x: jnp.broadcast_to(x, (population, *x.shape))
  protocol = comms.map_per_client(rows, algorithm.protocol.init(params))
  encode = algorithm.encode.init(params)
  if isinstance(algorithm.local, StatefulLocal):
    encode = algorithm.local.init(params), encode
  encode = comms.PerClient(jax.tree.map(rows, encode))
  server = algorithm.server.init(params)
  return FedState(jnp.int32(0), params, encode, protocol, server)


def pad_cohort(cohort: Cohort, multiple: int) -> Cohort:
  """Pad a cohort with clients of id `PADDING_ID` and weight 0."""
  padded = pad(cohort, multiple)
  xp = np if isinstance(cohort.ids, np.ndarray) else jnp
  real = np.arange(padded.ids.shape[0]) < cohort.ids.shape[0]
  ids = xp.where(real, padded.ids, PADDING_ID)
  return padded._replace(ids=ids.astype(np.int32))


def run_round(
  make: Make, mesh: jax.sharding.Mesh, *, schedule: Schedule | None = None,
  shard_server: bool = False, **options: Any,
) -> RoundFn:  # fmt: skip
  """Build round_fn(hp, state, cohort, key, ...) -> (state, metrics).

  Args:
    make: hp -> `Algorithm`; runs inside the trace.
    mesh: from `mesh.cohort_mesh`.
    schedule: (hp, round) -> the hyperparameters of a round; None keeps them.
    shard_server: whether the server's state is split over the devices, as by
      `mesh.shardings_over`: each updates a slice of parameters, then gathered.
    **options: of `cohort_step`.

  Returns:
    A pure function to jit, vmap (over hp and state) or scan (`scan_rounds`). It
    takes ``data=None`` and, for a private algorithm, ``noise_key``: key[], a
    secret root independent of ``key``. Its metrics: `uplink_bytes` of one
    client and `downlink_bytes`, uint32[]; `finite`, bool[], of the new state
    without that of clients; those of `summary`, by default
    `client_step.means_and_counts`. A round without participants keeps the
    state, unless it is private: that would leak.
  """
  cohort_fn = cohort_step(make, mesh, **options)
  server_fn = server_step(make)
  pin = jax.lax.with_sharding_constraint
  spread = lambda server: pin(server, shardings_over(mesh, server))

  def round_fn(hp, state, cohort, key, data=None, noise_key=None):
    if schedule is not None:
      hp = schedule(hp, state.round)
    shared, new, metrics = cohort_fn(hp, state, cohort, key, data, noise_key)
    if shard_server:
      new = new._replace(server=spread(new.server))
    new = server_fn(hp, shared, new, key)
    if shard_server:
      params = pin(new.params, NamedSharding(mesh, P()))
      new = new._replace(params=params, server=spread(new.server))
    if noise_key is None:
      nonempty = metrics['participants'] > 0
      per_client = lambda x: isinstance(x, comms.PerClient)  # unchanged anyway
      pick = lambda x, y: x if per_client(x) else jnp.where(nonempty, x, y)
      next_round = new.round
      new = jax.tree.map(pick, new, state, is_leaf=per_client)
      new = new._replace(round=next_round)
    finite = client_step.all_finite(comms.drop_per_client(new))
    return new, metrics | {'finite': finite}

  return round_fn


def scan_rounds(
  round_fn: RoundFn, trajectory: Callable[[FedState], Tree] | None = None
) -> Callable[..., tuple[Tree, ...]]:
  """Build a scan over rounds: leaves of cohorts and metrics are [rounds, ...].

  The scan is called like a round of `run_round`. With a `trajectory` (state ->
  value of a round, such as ``lambda state: state.params``) it returns (state,
  metrics, values), leaves of values [rounds, ...].
  """

  def rounds_fn(hp, state, cohort, key, data=None, noise_key=None):
    def step(state, one):
      state, metrics = round_fn(hp, state, one, key, data, noise_key)
      return state, (metrics, trajectory and trajectory(state))

    state, (metrics, values) = jax.lax.scan(step, state, cohort)
    return (state, metrics, values) if trajectory else (state, metrics)

  return rounds_fn


def cohort_step(
  make: Make, mesh: jax.sharding.Mesh, *, fetch: Fetch | None = None,
  clients_per_step: int | None = 0, skip_absent: bool = False,
  rows_of: str = 'population', attack: fates.Behaviour | None = None,
  max_payload_norm: float | None = None,
  summary: client_step.Summary = client_step.means_and_counts,
) -> Callable[..., tuple[Tree, FedState, Metrics]]:  # fmt: skip
  """Build the first half of a round, from the parameters to the broadcast.

  Args:
    make: hp -> `Algorithm`; runs inside the trace.
    mesh: from `mesh.cohort_mesh`.
    fetch: (data, one client's batches) -> its samples, when `data` lives on
      the devices and `Cohort.batches` holds indices into it.
    clients_per_step: clients that a shard works on at once; None is all,
      0 the default of the backend.
    skip_absent: whether a scan skips lanes, or chunks, of weight 0; the results
      are the same.
    rows_of: rows of the per-client state: those of the 'population', by client
      id, or of the 'cohort', by lane, if the host holds the others.
    attack: replaces the pseudo-gradients of byzantine clients.
    max_payload_norm: rejects decoded payloads of a larger Euclidean norm;
      requires an algorithm with a `decode`. None: no bound. Payloads that are
      not finite are always rejected.
    summary: makes the metrics of clients; replace it in private rounds alone.

  Returns:
    A function (hp, state, cohort, key, data, noise_key) -> (broadcast, state,
    metrics) that runs all links up to the broadcast. It raises ValueError, when
    traced, unless noise_key is given for private algorithms and only for them,
    and if the cohort is smaller than `Algorithm.full_participation`.
  """
  if rows_of not in ('population', 'cohort'):
    raise ValueError(f"{rows_of=} must be 'population' or 'cohort'.")
  if clients_per_step == 0:
    platform = mesh.devices.flat[0].platform
    clients_per_step = client_loop.default_clients_per_step(platform)
  options = clients_per_step, skip_absent, attack, max_payload_norm, summary
  program = client_step.build(make, fetch, *options)

  def step(hp, state, cohort, key, data=None, noise_key=None):
    keys, noise = keys_lib.round_keys(key, state.round), None
    population = max(map(len, comms.client_rows(state)), default=0)
    size = len(cohort.ids)
    cohort = pad_cohort(cohort, mesh.size)._replace(outcome=None)
    cohort = cohort._replace(ids=marks.distinct(jnp.asarray(cohort.ids)))
    if noise_key is not None:
      noise = keys_lib.noise_keys(noise_key, state.round)
      # A weight above 1 would be a contribution above the bound.
      cohort = cohort._replace(weight=jnp.sign(cohort.weight))
    rows = old = state.encode, comms.clear_bills(state.protocol)
    if rows_of == 'population':
      take = lambda rows: rows.at[cohort.ids].get(
        mode='fill', fill_value=0, wrap_negative_indices=False
      )
      rows = comms.map_per_client(take, old)
    specs, lanes = comms.specs(rows), P(comms.SHARD)
    inputs = P(), P(), specs, lanes, P(), P(), P()
    of_shard = functools.partial(program, size, population)
    shared, rows, metrics = jax.shard_map(
      of_shard, mesh=mesh, in_specs=inputs, out_specs=(P(), specs, P())
    )(hp, state.params, rows, cohort, keys, noise, data)
    if rows_of == 'population':
      put = lambda new, old: old.at[cohort.ids].set(
        new, mode='drop', wrap_negative_indices=False
      )
      rows = comms.map_per_client(put, rows, old)
    encode, protocol = rows
    state = state._replace(encode=encode, protocol=protocol)
    bill = comms.total_bill(protocol)
    sent = {'uplink_bytes': bill.up, 'downlink_bytes': bill.down}
    return marks.published(shared, 'the broadcast'), state, metrics | sent

  return step


def server_step(make: Make) -> Callable[[Hyper, Tree, FedState, Key], FedState]:
  """Build the second half of a round: (hp, broadcast, state, key) -> state.

  A client that holds the last state and the broadcast can redo this step.
  """

  def step(hp, shared, state, key):
    keys = keys_lib.round_keys(key, state.round)
    updates, server = make(hp).server.update(
      shared, state.server, state.params, keys=keys
    )
    params = optax.apply_updates(state.params, updates)
    return state._replace(round=state.round + 1, params=params, server=server)

  return step
