"""Parameters that jit shards: two workers of two devices each."""

import json

import compiled_bills
import compressor_cases as cases
from fl_sketch import distributed
import harness
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

DENSE, OUTER = ('dense', False, 'sharded'), ('dense', False, 'outer')
FAST = [DENSE, (cases.FEEDBACK, True, 'sharded'), ('dense', False, 'whole')]
# Compressors in which no two numbers meet; XLA adds up in another order, and
# what is nearly halfway is then rounded to another bfloat16.
ALONE = {'dense': 1e-5, 'bfloat16': 1e-3}
CASES = [
  *((*case, 'sharded') for case in cases.CASES),
  *(('eden(bits=2)', both, 'outer') for both in (False, True)),
]  # fmt: skip
COMPARED = [
  (text, False, how) for text in ALONE for how in ('sharded', 'whole')
]
PARTS = [
  [DENSE, OUTER, *COMPARED],
  *([DENSE, OUTER, *CASES[i::4]] for i in range(4)),
]
each_part = pytest.mark.parametrize('part', range(len(PARTS)))


def played(tmp_path, cases, processes=1):
  """What processes find, of two workers of two devices in all."""
  script, texts = 'sharded_steps.py', map(json.dumps, cases)
  return harness.in_processes(tmp_path, processes, *texts, script=script)


def check(found):
  """Holds for each case of what a process has found."""
  mesh = jax.sharding.AbstractMesh((2, 2), ('slow', 'fsdp'))
  one_each = jax.sharding.AbstractMesh((2,), ('slow',))
  sent = {
    case: compiled_bills.of_text(
      one['text'], one_each if case[2] == 'whole' else mesh
    ).by_axis
    for case, one in found.items()
  }
  for case, one in found.items():
    over, like = sent[case], sent[OUTER if case[2] == 'outer' else DENSE]
    assert case[2] == 'whole' or over['fsdp'] == like['fsdp'], case
    # The loss is averaged as well; XLA may join equal sums of scalars.
    assert abs(over['slow'] - one['bill']['slow']) <= 8, case
    assert all(len(copies) == 1 for copies in one['bits'].values()), case
    assert one['again'] == one['bits'], case
    assert one['compiled'] == 1, case


def check_losses(found):
  """Are those of whole parameters, of compressors that see no neighbour."""
  for text, both_ways, how in found:
    if how == 'whole':
      whole, parts = ((text, both_ways, x) for x in ('whole', 'sharded'))
      losses = found[whole]['losses'], found[parts]['losses']
      np.testing.assert_allclose(*losses, rtol=ALONE[text])


MESH = jax.sharding.AbstractMesh((2, 2), ('slow', 'fsdp'))


def test_a_shard_need_not_be_divisible():
  """Catches shapes that are cut twice."""
  specs = {'c': jax.P('fsdp'), 'a': jax.P()}
  tx = distributed.mean_over('slow', specs=specs)
  params = {'c': jnp.ones(150), 'a': jnp.ones(3)}
  moved, _, _ = cases.traced(tx, params, MESH, specs)
  assert moved['c'].shape == (150,)


def test_fragments_of_the_bill_are_those_of_a_step():
  """Catches fragments by the sizes of shards, and a bill of others."""
  sizes = {'a': 300, 'b': 500, 'c': 152, 'd': 100, 'e': 20, 'g': 60}
  specs = {k: jax.P('fsdp') if k in 'bce' else jax.P() for k in sizes}
  mean = distributed.mean_over('slow', specs=specs)
  tx = distributed.outer(optax.sgd(0.1), None, mean, every=4, fragments=2)
  params = {k: jnp.ones(size) for k, size in sizes.items()}
  bill = distributed.bytes_per_step(tx, params, MESH, specs)
  # By size: b and g, of 250 + 60 numbers a device; a, c, d and e, of 486.
  assert bill.by_axis == {'slow': 4 * 486}
  cases.traced(tx, params, MESH, specs)


def test_rows_in_per_worker_lie_on_their_devices():
  """Catches residuals that are gathered over the inner axis."""
  text, specs = 'sign(error_feedback=True)', jax.P('fsdp')
  mean = distributed.mean_over('slow', text, specs=specs)
  tx = distributed.per_worker(optax.MultiSteps(mean, 2), 'slow')
  params = jnp.ones((8, 2))
  found = distributed.state_specs(tx, params, MESH, specs)
  assert jax.P(('slow',), ('fsdp',)) in jax.tree.leaves(found)
  cases.traced(tx, params, MESH, specs)


@pytest.mark.nightly
def test_shards_are_compressed_where_they_lie(tmp_path):
  """Catches a model that is gathered, copies that differ, a lost residual."""
  (found,) = played(tmp_path, FAST)
  check(found)
  check_losses(found)


@pytest.mark.nightly
@each_part
def test_every_compressor_works_by_shards(part, tmp_path):
  """Catches a compressor that XLA gathers for, and another mean of shards."""
  (found,) = played(tmp_path, dict.fromkeys(PARTS[part]))
  check(found)
  check_losses(found)


@pytest.mark.long
@each_part
def test_two_processes_are_one(part, tmp_path):
  """Catches shards that depend on the process in which they lie."""
  of_part = dict.fromkeys(PARTS[part])
  (one,), both = (played(tmp_path, of_part, n) for n in (1, 2))
  for found in both:
    check(found)
  for case, alone in one.items():
    joined = both[0][case]['bits'] | both[1][case]['bits']
    assert joined.keys() == alone['bits'].keys()
    np.testing.assert_allclose(both[0][case]['losses'], alone['losses'], 1e-5)
