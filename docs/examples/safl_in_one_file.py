"""SAFL on scikit-learn's digits, from the paper alone: no fl_sketch, no optax.

Clients take a few steps of SGD and send a sketch of what they moved. The server
averages the sketches, reads an estimate of the mean movement from the average,
and takes a step of Adam. Chen, Li, Banerjee, arXiv:2411.06770, Algorithm 1.

A test compares every round with the library, which has the same hash functions.
"""

import jax
from jax.flatten_util import ravel_pytree
import jax.numpy as jnp
import numpy as np
from sklearn import datasets

PRIME = 2**31 - 1
SHIFT, SIGN = 1, 2  # streams of hash functions
CLIENTS, COHORT, ROUNDS = 40, 10, 150
LOCAL_STEPS, BATCH = 5, 16
CLIENT_LR, SERVER_LR, B1, B2, EPS = 0.3, 0.03, 0.9, 0.999, 1e-8
SIZE = 150  # entries of a sketch; the model has 2,410 parameters


def init_params(key):
  """Return the parameters of a network with 64 inputs and 10 outputs."""
  first, second = jax.random.split(key)
  return {
    'w1': jax.random.normal(first, (64, 32)) / 8,
    'b1': jnp.zeros(32),
    'w2': jax.random.normal(second, (32, 10)) / 6,
    'b2': jnp.zeros(10),
  }


def logits(params, x):
  """Return f32[batch, 10]."""
  hidden = jax.nn.relu(x @ params['w1'] + params['b1'][None])
  return hidden @ params['w2'] + params['b2'][None]


def loss_fn(params, batch):
  """Return the mean cross-entropy of a batch, f32[]."""
  log_p = jax.nn.log_softmax(logits(params, batch['x']))
  return -jnp.take_along_axis(log_p, batch['y'][:, None], axis=1).mean()


# A sketch: a random linear map from d numbers to a small table. Client and
# server draw the same map from the key of the round, so that it is never sent.


def mix(x):
  """Return well-mixed words uint32[...]: the last step of murmur3."""
  x = (x ^ x >> np.uint32(16)) * np.uint32(0x85EBCA6B)
  x = (x ^ x >> np.uint32(13)) * np.uint32(0xC2B2AE35)
  return x ^ x >> np.uint32(16)


def words(counter, seed):
  """Return one pseudo-random word for each counter, uint32[...]."""
  return mix(mix(counter.astype(np.uint32) ^ seed[0]) + seed[1])


def seeds(key, count, stream):
  """Return uint32[count, 2], derived from a key of JAX."""
  a, b = np.array([[stream], [stream ^ 0xFFFFFFFF]], np.uint32)
  for one, other in zip(key, key[::-1], strict=True):
    a, b = mix(a ^ one), mix(b ^ other)
  return words(np.arange(2 * count), (a, b)).reshape(count, 2)


def signs_and_shifts(key, d, size):
  """Return the signs f32[blocks, size] and the shifts int[blocks] of a map."""
  key = np.asarray(jax.random.key_data(key))
  block = np.arange(-(-d // size))
  # 32 blocks share the bits of one word for each of their coordinates.
  counter = (block // 32)[:, None] * size + np.arange(size)
  bits = words(counter, seeds(key, 1, SIGN)[0]).astype(np.int64)
  signs = 1 - 2 * (bits >> (31 - block % 32)[:, None] & 1)
  slope, offset, noise = seeds(key, 3, SHIFT)
  line = block * (int(slope[0]) % PRIME) + int(offset[0])
  shifts = (line + words(block, noise)) % PRIME % size
  return signs.astype(np.float32), shifts


def sketch(key, x, size):
  """Return the sum of all blocks of x, with random signs and shifts."""
  signs, shifts = signs_and_shifts(key, len(x), size)
  padded = np.zeros(signs.size, np.float32)
  padded[: len(x)] = x
  signed = padded.reshape(signs.shape) * signs
  return sum(np.roll(*pair) for pair in zip(signed, shifts, strict=True))


def desketch(key, table, d):
  """Return an unbiased estimate of x: the transposed map of its sketch."""
  signs, shifts = signs_and_shifts(key, d, len(table))
  blocks = [np.roll(table, -shift) for shift in shifts]
  return (np.array(blocks) * signs).ravel()[:d]


@jax.jit
def local_work(params, batches):
  """Return what K steps of SGD move: parameters before minus after."""
  moved = params
  for step in range(jax.tree.leaves(batches)[0].shape[0]):
    batch = jax.tree.map(lambda x, step=step: x[step], batches)
    grads = jax.grad(loss_fn)(moved, batch)
    moved = jax.tree.map(lambda u, g: u - CLIENT_LR * g, moved, grads)
  return jax.tree.map(jnp.subtract, params, moved)


def play_round(key, index, params, moments, cohort_batches):
  """Return the parameters and Adam's moments after one round."""
  # Fresh hash functions in every round, the same for all clients.
  hash_key = jax.random.fold_in(jax.random.fold_in(key, 1), index)
  tables = []
  for batches in cohort_batches:  # each on its own client
    update, _ = ravel_pytree(local_work(params, batches))
    tables.append(sketch(hash_key, np.asarray(update), SIZE))  # is sent
  table = np.mean(tables, axis=0)  # on the server, which sends it to all
  x, unravel = ravel_pytree(params)
  estimate = desketch(hash_key, table, x.size)
  mean = B1 * moments[0] + (1 - B1) * estimate
  square = B2 * moments[1] + (1 - B2) * estimate**2
  corrected = mean / (1 - B1 ** (index + 1))
  scale = np.sqrt(square / (1 - B2 ** (index + 1))) + EPS
  return unravel(x - SERVER_LR * corrected / scale), (mean, square)


def main():
  """Train on the digits of 40 clients; print accuracy and bytes."""
  data = datasets.load_digits()
  x, y = (data.data / 16).astype(np.float32), data.target
  rng = np.random.default_rng(0)
  test, *clients = np.split(rng.permutation(1797), np.arange(397, 1797, 35))
  key, params = jax.random.key(0), init_params(jax.random.key(1))
  moments = np.float32(0), np.float32(0)
  for index in range(ROUNDS):
    cohort = rng.choice(CLIENTS, COHORT, replace=False)
    rows = [rng.choice(clients[i], (LOCAL_STEPS, BATCH)) for i in cohort]
    batches = [{'x': x[r], 'y': y[r]} for r in rows]
    params, moments = play_round(key, index, params, moments, batches)
  right = np.argmax(logits(params, x[test]), axis=1) == y[test]
  sent = 4 * SIZE * COHORT * ROUNDS
  print(f'test accuracy {right.mean():.3f}, {sent / 1e6:.2f} MB sent up')


if __name__ == '__main__':
  main()
