"""Trains an nnx decoder that jit shards over fsdp, between slow links.

  python sharded_decoder.py [--steps=60] [--alone]

Eight devices of one CPU are two workers of four devices each. With --alone
there is one worker and nothing to compress: the program without its lines that
name `distributed`.
"""

import argparse
import functools

from fl_sketch import distributed
from flax import nnx
import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import numpy as np
import optax

parser = argparse.ArgumentParser()
parser.add_argument('--steps', type=int, default=60)
parser.add_argument('--alone', action='store_true')

WIDTH, DEPTH, HEADS, LENGTH, TOKENS = 64, 2, 4, 32, 64


def over(*axes):
  """Initialises an array that lies over these axes of the mesh."""
  return nnx.with_partitioning(nnx.initializers.lecun_normal(), axes)


class Block(nnx.Module):
  """Attention and an MLP; inner dimensions lie over `tensor`."""

  def __init__(self, rngs):
    linear = functools.partial(nnx.Linear, use_bias=False, rngs=rngs)
    inward, outward = over('fsdp', 'tensor'), over('tensor', 'fsdp')
    self.norms = nnx.List([nnx.RMSNorm(WIDTH, rngs=rngs) for _ in range(2)])
    self.qkv = linear(WIDTH, 3 * WIDTH, kernel_init=inward)
    self.out = linear(WIDTH, WIDTH, kernel_init=outward)
    self.up = linear(WIDTH, 4 * WIDTH, kernel_init=inward)
    self.down = linear(4 * WIDTH, WIDTH, kernel_init=outward)

  def __call__(self, x):
    heads = (*x.shape[:2], HEADS, -1)
    q, k, v = jnp.split(self.qkv(self.norms[0](x)).reshape(heads), 3, -1)
    mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True)
    x += self.out(mixed.reshape(x.shape))
    return x + self.down(nnx.gelu(self.up(self.norms[1](x))))


class Decoder(nnx.Module):
  """Predicts the next token at each place."""

  def __init__(self, rngs):
    # Whole: XLA (of JAX 0.10) fails to split lookups over two inner axes.
    self.tokens = nnx.Embed(TOKENS, WIDTH, rngs=rngs)
    self.places = nnx.Embed(LENGTH, WIDTH, rngs=rngs)
    self.blocks = nnx.List([Block(rngs) for _ in range(DEPTH)])
    self.norm = nnx.RMSNorm(WIDTH, rngs=rngs)

  def __call__(self, tokens):
    x = self.tokens(tokens) + self.places(jnp.arange(tokens.shape[1]))[None]
    for block in self.blocks:
      x = block(x)
    return self.tokens.attend(self.norm(x))


def draw(step, n=32):
  """Counting by steps of one to three, each row from a place of its own."""
  start = np.random.default_rng(step).integers(TOKENS, size=(n, 1))
  return (start + np.arange(LENGTH + 1) * (1 + start % 3)) % TOKENS


def main(flags):
  """Train; return the losses."""
  shape = (1 if flags.alone else 2, 2, 2)
  axes = 'slow', 'fsdp', 'tensor'
  mesh = jax.make_mesh(shape, axes, (AxisType.Auto,) * 3)
  jax.set_mesh(mesh)  # nnx places arrays by their partitioning
  graph, params = nnx.split(Decoder(nnx.Rngs(0)))

  def loss(params, batch):
    logits = nnx.merge(graph, params)(batch[:, :-1])
    of = optax.softmax_cross_entropy_with_integer_labels
    return of(logits, batch[:, 1:]).mean()

  tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(3e-3))

  def train_step(params, state, batch):
    value, grads = jax.value_and_grad(loss)(params, batch)
    updates, state = tx.update(grads, state, params)
    return optax.apply_updates(params, updates), state, value

  if flags.alone:
    state, step = jax.jit(tx.init)(params), jax.jit(train_step)
  else:
    specs = nnx.get_partition_spec(params)
    mean = distributed.mean_over('slow', 'eden(bits=2)', specs=specs)
    tx = optax.chain(mean, tx)
    state = distributed.init(tx, params, mesh, specs)
    step = distributed.map_step(train_step, tx, mesh, specs=specs)
  losses = []
  for i in range(flags.steps):
    split = NamedSharding(mesh, P(('slow', 'fsdp')))
    batch = jax.device_put(draw(i), split)
    params, state, value = step(params, state, batch)
    losses.append(float(value))
  return losses


if __name__ == '__main__':
  jax.config.update('jax_num_cpu_devices', 8)
  losses = main(parser.parse_args())
  print(f'loss {losses[0]:.3f} at first, {losses[-1]:.3f} at the end')
