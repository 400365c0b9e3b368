"""Twins of the algorithms that the training of language models is compared to.

Seeds and normal numbers are those of `sketch_twins`, one integer at a time.
"""

import statistics

import numpy as np
import reference
from sketch_twins import ENTRY, SAMPLE, seeds, word


def normal(seed):
  """The direction z of a seed: of b first, then of w, each with its own seed."""
  inverse = statistics.NormalDist().inv_cdf
  of = lambda i, n: [
    inverse(((word(at, own) >> 9) + 0.5) / 2**23)
    for own in [[word(2 * i, seed), word(2 * i + 1, seed)]]
    for at in range(n)
  ]
  return np.array([*of(0, 2), *of(1, 8)])


def loss(theta, x, y):
  return np.square(x @ theta[2:].reshape(4, 2) + theta[:2] - y).mean()


def slopes(hp, theta, client, directions, mu):
  """Of each step those along its directions f64[steps, P, d]."""
  found, local = [], theta.copy()
  for (x, y), of_step in zip(client.batches, directions, strict=True):
    at = lambda h, z, x=x, y=y, local=local: loss(local + h * z, x, y)
    rise = np.array([at(mu, z) - at(-mu, z) for z in of_step]) / (2 * mu)
    local = local - hp.client_lr * rise @ of_step / len(rise)
    found.append(rise)
  return np.array(found)


def decomfl(hp, theta, rounds, *, local_steps, directions=10, mu=1e-3):
  for this in rounds:
    drawn = seeds(local_steps * directions, ENTRY, this.keys.round)
    z = np.reshape(list(map(normal, drawn)), (local_steps, directions, -1))
    sent = [slopes(hp, theta, client, z, mu) for client in this.clients]
    mean = this.mean(sent, np.zeros((local_steps, directions)))
    moved = np.einsum('kp,kpd->d', mean, z) / directions
    theta = theta - hp.server_lr * hp.client_lr * moved
  return theta


def fedkseed(hp, theta, rounds, *, local_steps, pool=4096, mu=5e-4):
  for this in rounds:
    z = np.array(list(map(normal, seeds(pool, ENTRY, this.keys.run))))
    sent = []
    for client in this.clients:
      words = seeds(local_steps, SAMPLE, client.local_key)
      own, sums = [first % pool for first, _ in words], np.zeros(pool)
      for j, (g,) in zip(own, slopes(hp, theta, client, z[own][:, None], mu)):
        sums[j] += g
      sent.append(sums)
    mean = this.mean(sent, np.zeros(pool))
    theta = theta - hp.server_lr * hp.client_lr * mean @ z
  return theta
