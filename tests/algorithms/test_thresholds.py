"""Forms that an algorithm chooses by size: laws on both sides of a choice."""

import cases
from fl_sketch import algorithms, rounds
from fl_sketch.algorithms import lora_products
from fl_sketch.rounds import mesh as mesh_lib
import jax
import jax.numpy as jnp
import numpy as np
import pytest


@pytest.mark.parametrize(('shape', 'rank', 'factors'), [
  ((4, 4), 1, True), ((4, 4), 2, False), ((3, 6), 1, True), ((3, 6), 2, False),
  ((5, 5), 2, True), ((2, 2, 5), 2, True), ((2, 2, 4), 2, False),
  ((16,), 1, False), ((0, 8), 1, False),
])  # fmt: skip
def test_an_array_has_factors_where_they_are_smaller(shape, rank, factors):
  """Catches factors of as many numbers as the array, or of a vector."""
  make = algorithms.make('power_sgd', cases.loss_fn, rank=rank)
  like = {'x': jax.ShapeDtypeStruct(shape, jnp.float32)}
  state = jax.eval_shape(lambda p: rounds.init(make(cases.HP), p, 1), like)
  assert len(rounds.state_of(state, 'right')) == factors


def test_a_residual_travels_in_its_smaller_form():
  """Catches a bill of the larger form, at and beside equal sizes."""
  for factors, dense in ((24, 32), (24, 48), (24, 47), (24, 49), (40, 32)):
    counts = jnp.arange(5, dtype=jnp.uint32)
    bill = lora_products._residual([(factors, dense)], counts, 5)
    want = factors + np.minimum(np.arange(5) * factors, dense)
    np.testing.assert_array_equal(bill, want)


@pytest.mark.parametrize(('shape', 'spec'), [
  ((3, 8), (None, 'shard')), ((8, 4), ('shard',)), ((4, 7), ('shard',)),
  ((3, 5), ()), ((0, 5), ()), ((), ()),
])  # fmt: skip
def test_state_is_split_along_an_axis_that_the_devices_divide(shape, spec):
  """Catches a longest axis of odd length, and one of length 0."""
  mesh = mesh_lib.cohort_mesh(2)
  assert (*mesh_lib.shardings_over(mesh, np.zeros(shape)).spec,) == spec
