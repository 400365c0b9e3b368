"""Realistic bugs, of which `mutations.py` plants one at a time in a copy.

Each is what somebody may write by mistake; at most three stand in one file. The
list is fixed: a bug that the tests miss asks for a test, not for another bug.
"""

from typing import NamedTuple


class Mutant(NamedTuple):
  """A bug: `old` occurs once in `path`, and becomes `new`."""

  name: str  # for the table in CONTRIBUTING.md
  path: str  # of the file in `fl_sketch/`
  old: str
  new: str
  near: str  # tests that run before the others of a tier, to save time


MUTANTS = (
  # Sketches and codecs.
  Mutant(
    "wrong sign of a hash: all rows are read with the first row's sign",
    'sketches/columns.py',
    "one = lambda j: flip(table.at[rows[j]].get(mode='promise_in_bounds'), j)",
    "one = lambda j: flip(table.at[rows[j]].get(mode='promise_in_bounds'), 0)",
    'sketches',
  ),
  Mutant(
    'one sign for 32 coordinates: the plane of a word is ignored',
    'sketches/hashing.py',
    'sign = (words << jnp.uint32(plane)) & np.uint32(0x80000000)',
    'sign = (words << jnp.uint32(0 * plane)) & np.uint32(0x80000000)',
    'sketches',
  ),
  Mutant(
    'a pairwise independent hash lacks its linear term',
    'sketches/hashing.py',
    'for c in family[:-1, 0] % PRIME:',
    'for c in family[1:-1, 0] % PRIME:',
    'sketches',
  ),
  Mutant(
    'un-scaled desketch',
    'sketches/block_cyclic.py',
    'list(scale * table.reshape(sparsity, cols))',
    'list(table.reshape(sparsity, cols))',
    'sketches',
  ),
  Mutant(
    'wrong codebook: decoded with one level more than encoded',
    'codecs/narrow.py',
    'x = packing.unpack(packed, bound, d) / bound',
    'x = packing.unpack(packed, bound, d) / (bound + 1)',
    'codecs',
  ),
  Mutant(
    'QSGD rounds down instead of at random',
    'codecs/quantized.py',
    '* levels + draws)',
    '* levels + 0 * draws)',
    'codecs',
  ),
  Mutant(
    'signs that cancel: the second transform of an end undoes the first',
    'sketches/block_rows.py',
    'for seed in hashing.seeds(key, 2, hashing.SIGN)]',
    'for seed in 2 * [hashing.seeds(key, 1, hashing.SIGN)[0]]]',
    'sketches',
  ),
  Mutant(
    'parts of a rotation that never meet: nothing is exchanged',
    'codecs/rotated.py',
    'steps = [exchange] * (beyond > 0)',
    'steps = [exchange] * (beyond < 0)',
    'codecs',
  ),
  Mutant(
    'one pass of a rotation instead of three',
    'codecs/rotated.py',
    '_PASSES = 3',
    '_PASSES = 1',
    'codecs',
  ),
  Mutant(
    'a least-squares scale that forgets the entries that are not sent',
    'codecs/rotated.py',
    'factor = part(x.size) * dot / jnp.square(q).sum()',
    'factor = dot / jnp.square(q).sum()',
    'codecs',
  ),
  # Rounds.
  Mutant(
    'a mean over lanes but not shards',
    'rounds/comms.py',
    'denominator = jax.lax.psum(lane_sum.weight, SHARD)',
    'denominator = jax.lax.pmean(lane_sum.weight, SHARD)',
    'rounds',
  ),
  Mutant(
    'a bill without scales',
    'rounds/comms.py',
    'for x in jax.tree.leaves(tree)\n  )',
    'for x in jax.tree.leaves(tree)\n    if x.size > 1\n  )',
    'rounds',
  ),
  Mutant(
    'the last chunk of lanes is summed twice',
    'rounds/client_loop.py',
    'total, last = step(total, jax.tree.map(lambda x: x[whole:], lanes))',
    'chunk = jax.tree.map(lambda x: x[whole:], lanes)\n'
    '  total, last = step(step(total, chunk)[0], chunk)',
    'rounds',
  ),
  Mutant(
    'a decode of the wrong round',
    'rounds/round.py',
    'keys = keys_lib.round_keys(key, state.round)\n    updates, server',
    'keys = keys_lib.round_keys(key, state.round + 1)\n    updates, server',
    'rounds',
  ),
  Mutant(
    'a private round trusts the weights that clients send',
    'rounds/round.py',
    'cohort = cohort._replace(weight=jnp.sign(cohort.weight))',
    'cohort = cohort._replace(weight=cohort.weight)',
    'rounds',
  ),
  Mutant(
    'a private round drops the weight of a rejected client',
    'rounds/client_step.py',
    'weight = client.weight if private else zero(client.weight)',
    'weight = zero(client.weight)',
    'privacy',
  ),
  Mutant(
    'the state of absent clients changes',
    'rounds/client_step.py',
    'participates = present & accepted',
    'participates = accepted',
    'rounds',
  ),
  Mutant(
    'a lost residual',
    'rounds/error_feedback.py',
    'return payload, jax.tree.map(keep, target, decoded)',
    'return payload, jax.tree.map(keep, moved, decoded)',
    'rounds',
  ),
  Mutant(
    'all clients draw the same randomness',
    'rounds/keys.py',
    'return keys._replace(client=jax.random.fold_in(keys.client, client_id))',
    'return keys._replace(client=jax.random.fold_in(keys.client, 0))',
    'rounds',
  ),
  Mutant(
    'one hash for all rounds',
    'rounds/keys.py',
    'round=jax.random.fold_in(root(_ROUND), round_index),',
    'round=root(_ROUND),',
    'rounds',
  ),
  Mutant(
    'a stale bill of bytes: no cap where the dense model is cheaper',
    'rounds/traffic.py',
    'received = np.minimum(missed, max(whole, int(down)))',
    'received = missed',
    'rounds',
  ),
  Mutant(
    'a robust mean counts groups that are not finite',
    'rounds/robust.py',
    'present = jnp.all(jnp.stack([weight > 0, *finite]), axis=0)',
    'present = weight > 0',
    'rounds',
  ),
  # Algorithms and local work.
  Mutant(
    'bias correction in AMSGrad',
    'algorithms/server_optimizers.py',
    'bias_correction_mu=False',
    'bias_correction_mu=True',
    'algorithms',
  ),
  Mutant(
    'HEAPRIX reads its second table with the hashes of the first',
    'algorithms/fedsketch.py',
    'key = _fresh(keys.round)\n    rest',
    'key = keys.round\n    rest',
    'algorithms',
  ),
  Mutant(
    'FetchSGD adds tables of different hashes',
    'algorithms/fetchsgd.py',
    "t.sketch(sketch, hash_key='run')",
    "t.sketch(sketch, hash_key='round')",
    'algorithms',
  ),
  Mutant(
    'SCAFFOLD moves its variate as if everybody had taken part',
    'algorithms/control_variates.py',
    'add = lambda c, d: c + share * d',
    'add = lambda c, d: c + d',
    'algorithms',
  ),
  Mutant(
    '1-bit Adam forgets the error of the server',
    'algorithms/onebit_adam.py',
    'server_error=jax.tree.map(jnp.subtract, server_target, momentum),',
    'server_error=state.server_error,',
    'algorithms',
  ),
  Mutant(
    'factors of preconditioned sketching are billed in every round',
    'algorithms/preconditioned_sketching.py',
    'unsent = jnp.where(due, 0, jnp.uint32(size))',
    'unsent = jnp.where(due, 0, jnp.uint32(0))',
    'rounds',
  ),
  Mutant(
    'factors of preconditioned sketching are billed in the first round only',
    'algorithms/preconditioned_sketching.py',
    'unsent = jnp.where(due, 0, jnp.uint32(size))',
    'unsent = jnp.where(state.count == 0, 0, jnp.uint32(size))',
    'rounds',
  ),
  Mutant(
    'CD-Adam corrects the second moment by the decay of the first',
    'algorithms/server_optimizers.py',
    '1 - b1**new.count, 1 - b2**new.count',
    '1 - b1**new.count, 1 - b1**new.count',
    'rounds',
  ),
  Mutant(
    'clients of FLoRA begin without the trained factors of the model',
    'algorithms/lora_products.py',
    'lora.split(_map(received, params))',
    'lora.split(params)',
    'algorithms',
  ),
  Mutant(
    'private SGD adds the same noise in every step',
    'local/private_sgd.py',
    'return fn(jax.random.fold_in(key, k), *args)',
    'return fn(jax.random.fold_in(key, 0 * k), *args)',
    'local',
  ),
  Mutant(
    'a masked loss is divided by the padded batch',
    'models/losses.py',
    'count = mask.sum() if',
    'count = jnp.ones_like(mask).sum() if',
    'models',
  ),
  # Privacy.
  Mutant(
    'noise from the public key',
    'privacy/mechanisms/aggregation.py',
    'return self.released(total, noise.server)',
    'return self.released(total, jax.random.key(0))',
    'privacy',
  ),
  Mutant(
    'the check of a round ignores what decides a branch',
    'privacy/noninterference/flow.py',
    'results = [_joined(xs, [chosen]) for xs',
    'results = [_joined(xs) for xs',
    'privacy',
  ),
  Mutant(
    'an own algorithm has an epsilon without a check',
    'experiment/build.py',
    '  interference.check(exp)\n',
    '',
    'privacy',
  ),
  Mutant(
    'a contribution is rounded to the grid, but not clipped',
    'privacy/mechanisms/aggregation.py',
    'return grid_lib.encode(self.clipped(payload), self.grid(payload))',
    'return grid_lib.encode(payload, self.grid(payload))',
    'privacy',
  ),
  Mutant(
    'a bound that follows the wrong quantile',
    'privacy/mechanisms/quantile_bound.py',
    'excess = noisy + 0.5 - release.quantile',
    'excess = noisy + release.quantile - 0.5',
    'privacy',
  ),
  Mutant(
    'an inverted mask: the masks of those who are present are opened',
    'privacy/mechanisms/secure_aggregation.py',
    'revealed = (peers == slots[:, None]) | (present[peers] == 0)',
    'revealed = (peers == slots[:, None]) | (present[peers] != 0)',
    'privacy',
  ),
  Mutant(
    'every leaf is clipped to the bound of the whole',
    'privacy/mechanisms/clipping.py',
    'each = max_norm / len(leaves) ** 0.5',
    'each = max_norm',
    'privacy',
  ),
  Mutant(
    'replace-one is accounted with the sensitivity of add-or-remove',
    'privacy/accounting/events.py',
    'noise /= 2',
    'noise /= 1',
    'privacy',
  ),
  Mutant(
    'a step of two releases is accounted as one',
    'privacy/accounting/events.py',
    'return part.noise_multiplier / math.sqrt(part.releases_per_step)',
    'return part.noise_multiplier',
    'privacy',
  ),
  Mutant(
    'a composition counts its last part only',
    'privacy/accounting/profiles.py',
    'total = total + part.steps * _step_divergences(one, orders)',
    'total = part.steps * _step_divergences(one, orders)',
    'privacy',
  ),
  # Data and experiments.
  Mutant(
    "batches of the first client's samples for everybody",
    'data/batches.py',
    'index = partition.take(np.where(held, start + within, 0))',
    'index = partition.take(np.where(held, within, 0))',
    'data',
  ),
  Mutant(
    'silent clients take the places of those who answer',
    'data/availability.py',
    "order = np.lexsort((draw('tie'), times, ~participates))",
    "order = np.lexsort((draw('tie'), times))",
    'data',
  ),
  Mutant(
    'a private run samples its cohorts from the public seed',
    'experiment/sampler.py',
    'seed = c.seed + (sampling_seed or 0)',
    'seed = c.seed',
    'experiment',
  ),
  Mutant(
    'padding counts in the test accuracy',
    'experiment/problem.py',
    "padded['mask'] = np.arange(count * size) < n",
    "padded['mask'] = np.ones(count * size, bool)",
    'experiment',
  ),
  # Training.
  Mutant(
    'an off-by-one in resume',
    'training/loop.py',
    'return saved.rounds_done, saved.ledger',
    'return saved.rounds_done + 1, saved.ledger',
    'training',
  ),
  Mutant(
    'a stale cohort: the prefetched round is the current one',
    'training/cohort_feed.py',
    'self._ahead[after] = self._pool.submit(self._make, after)',
    'self._ahead[after] = self._pool.submit(self._make, done)',
    'training',
  ),
  Mutant(
    'a resumed run forgets which clients have state',
    'training/client_state.py',
    'row[place[held]] = saved.view(row.dtype)[held]\n'
    '      self._written[place[held]] = True',
    'row[place[held]] = saved.view(row.dtype)[held]',
    'training',
  ),
  Mutant(
    'the points of a private sweep share their noise',
    'training/noise_secret.py',
    'resumed=resumed, owner=owner',
    "resumed=resumed, owner=''",
    'training',
  ),
  Mutant(
    'the noise of a private run is the same for other data',
    'training/noise_secret.py',
    '[kept, problem]',
    '[kept]',
    'training',
  ),
  Mutant(
    'a private run goes on with another version',
    'training/same_run.py',
    'if not private:',
    'if True:',
    'training',
  ),
  Mutant(
    'a run goes on from a damaged checkpoint',
    'training/checkpoints.py',
    'digests.check_seal(path)',
    'pass',
    'training',
  ),
  Mutant(
    'a private run gets more rounds without being asked',
    'training/extending.py',
    'if not extend:',
    'if False:',
    'training',
  ),
  Mutant(
    'a message of a round to come is taken',
    'messaging/server.py',
    'if header.round > self._round:',
    'if header.round > self._round + 1:',
    'messaging',
  ),
)
