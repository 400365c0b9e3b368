"""Compositions of optax around a mean: equal copies, or refused.

The truth is two lanes of `jax.vmap`, which nothing checks: their parameters and
what they share of the state are compared after every step.
"""

import itertools
import operator
import random

from fl_sketch import distributed
from fl_sketch.distributed.engine import is_worker
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

PARAMS = {'w': jnp.ones((2, 3)), 'b': jnp.ones(3)}
CLEAN = 3  # steps before one in which a worker has a NaN
GRADS = jax.tree.map(  # of steps and two workers
  lambda x: jax.random.normal(jax.random.key(x.ndim), (4, 2, *x.shape)), PARAMS
)
GRADS['b'] = GRADS['b'].at[CLEAN, 1, 0].set(jnp.nan)
adam, sgd = optax.adam(0.1), optax.sgd(0.1)
large = lambda tree: jax.tree.map(lambda x: x.size > 3, tree)
names = lambda tree: jax.tree.map(str, large(tree))
parts = lambda a, b: optax.partition({'True': a, 'False': b}, names)
multi = lambda tx: optax.MultiSteps(tx, 2).gradient_transformation()
finite = lambda tx: optax.apply_if_finite(tx, 2)
every_second = lambda step: step % 2 == 0
# A composition has one of each; the first is the usual one, `own` per_worker.
BEFORE = {
  'nothing': lambda own: optax.identity(),
  'trace': lambda own: optax.trace(0.9),
  'own trace': lambda own: own(optax.trace(0.9)),
  'masked trace': lambda own: optax.masked(optax.trace(0.9), large),
}
MEAN = {
  'mean': lambda mean: mean,
  'masked': lambda mean: optax.masked(mean, large),
  'partition': lambda mean: parts(mean, mean),
  'partition of a part': lambda mean: parts(mean, optax.identity()),
  'flatten': optax.flatten,
  'every second': lambda mean: optax.conditionally_transform(
    mean, every_second),
}  # fmt: skip
BEHIND = {
  'adam': adam,
  'inject': optax.inject_hyperparams(optax.adam)(lambda i: 0.1 / (i + 1)),
  'frozen': parts(adam, optax.set_to_zero()),
  'finite': finite(adam),
  'multi': multi(adam),
}
AROUND = {
  'nothing': lambda own, tx: tx,
  'multi': lambda own, tx: multi(tx),
  'own multi': lambda own, tx: own(multi(tx)),
  'finite': lambda own, tx: finite(tx),
  'own finite': lambda own, tx: own(finite(tx)),
  'named': lambda own, tx: optax.named_chain(('first', tx), ('last', sgd)),
  'schedule-free': lambda own, tx: optax.contrib.schedule_free(tx, 0.1),
  'every second': lambda own, tx: optax.conditionally_mask(tx, every_second),
}
GROUPS = BEFORE, MEAN, BEHIND, AROUND
LINEAR = 'nothing', 'own trace'  # the mean of these is that of the mean
ALL = [*itertools.product(*GROUPS)]
SINGLE = [x for x in ALL if sum(map(operator.ne, x, ALL[0])) < 2]
DRAWN = random.Random(0).sample([x for x in ALL if x not in SINGLE], 40)


def composed(case, mean, own):
  before, of_mean, behind, around = map(dict.__getitem__, GROUPS, case)
  return around(own, optax.chain(before(own), of_mean(mean), behind))


def played(tx, grads):
  """Parameters and state after each step."""
  params, state, steps = PARAMS, tx.init(PARAMS), []
  for i in range(len(grads['b'])):
    g = jax.tree.map(lambda x, i=i: x[i], grads)
    updates, state = tx.update(g, state, params)
    params = optax.apply_updates(params, updates)
    steps.append((params, state))
  return steps


def refusal(tx):
  """The words in which a step is refused; '' if it is not."""
  # Each gradient depends on the batch: one that does not is equal on workers.
  loss = lambda params, x: ((x @ params['w']).mean() + params['b'].sum()) ** 2
  mesh = jax.make_mesh((2,), ('data',))
  step = distributed.train_step(loss, tx, mesh)
  state = jax.eval_shape(lambda p: distributed.init(tx, p, mesh), PARAMS)
  try:
    jax.eval_shape(step, PARAMS, state, jnp.ones((4, 2)))
  except ValueError as e:
    return str(e)
  return ''


def are_equal(steps):
  shared = lambda node: [] if is_worker(node) else node
  leaves = jax.tree.leaves(jax.tree.map(shared, steps, is_leaf=is_worker))
  return all(np.array_equal(x[0], x[1], equal_nan=True) for x in leaves)


@pytest.mark.parametrize('case', [
  pytest.param(x, marks=[] if x in SINGLE[::3] else [pytest.mark.nightly])
  for x in (*SINGLE, *DRAWN)
], ids=', '.join)  # fmt: skip
def test_copies_are_equal_or_the_composition_is_refused(case):
  """Catches MultiSteps, momentum or a mask whose copies drift apart unseen."""
  own = lambda tx: distributed.per_worker(tx, 'data')
  tx = composed(case, distributed.mean_over('data'), own)
  words = refusal(tx)
  lanes = jax.vmap(lambda grads: played(tx, grads), 1, axis_name='data')
  steps = jax.jit(lanes)(GRADS)
  # Lanes do not wait for one another, and may be equal where workers would.
  assert are_equal(steps) == (not words) or 'would wait' in words
  if words or case[0] not in LINEAR:
    return
  whole = jax.tree.map(lambda x: x[:CLEAN].mean(1), GRADS)
  alone = played(composed(case, optax.identity(), lambda tx: tx), whole)
  for (got, _), (want, _) in zip(steps, alone, strict=False):
    for a, b in zip(*map(jax.tree.leaves, (got, want)), strict=True):
      np.testing.assert_allclose(a[0], b, rtol=1e-4, atol=1e-5)
