"""The work of clients may have any loop; its results are local all the same."""

from fl_sketch.rounds import client_loop, comms, mesh as mesh_lib
import jax
import jax.numpy as jnp
import numpy as np
import pytest

LANES = jax.P(comms.SHARD)
X = np.random.default_rng(0).standard_normal((6, 4, 3), dtype=np.float32)


def recurrent(w, x):
  """A loss whose state starts from zeros."""
  step = lambda h, row: (jnp.tanh(h + row * w), None)
  return jnp.sum(jax.lax.scan(step, jnp.zeros(3), x)[0] ** 2)


def gradients(w, x):
  one = lambda lane: jax.grad(recurrent)(w, lane)
  return client_loop.map_clients(one, x, 1)


@pytest.mark.parametrize('transform', [jax.grad, jax.jacfwd])
def test_a_derivative_is_refused(transform):
  """With respect to a shared value it would lack the other shards."""
  mesh, specs = mesh_lib.cohort_mesh(2), (jax.P(), LANES)
  fn = jax.shard_map(gradients, mesh=mesh, in_specs=specs, out_specs=LANES)
  total = lambda w: fn(w, X).sum()
  with pytest.raises(NotImplementedError):
    transform(total)(jnp.ones(3))
