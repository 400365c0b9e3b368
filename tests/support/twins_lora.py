"""Twins of means of LoRA: theta is [16], bias, W [4, 2], A [4] and B [2]."""

import jax
import numpy as np
import reference
from twins_base import FACTORS


def _parts(theta):
  return theta[:2], theta[2:10].reshape(4, 2), theta[10:14], theta[14:]


def _theta(*parts):
  return np.concatenate([np.ravel(x) for x in parts])


def _trained(hp, start, client, scale, rate_of_a=1.0):
  """Bias, A and B after a client's steps; the kernel stays."""
  bias, kernel, a, b = start
  for x, y in client.batches:
    whole = kernel + scale * np.outer(a, b)
    grad = reference.gradient(_theta(bias, whole), x, y)
    of_kernel = grad[2:].reshape(4, 2)
    bias = bias - hp.client_lr * grad[:2]
    a, b = (
      a - rate_of_a * hp.client_lr * scale * of_kernel @ b,
      b - hp.client_lr * scale * of_kernel.T @ a,
    )
  return bias, a, b


def _mean_move(this, old, news):
  return this.mean([old - new for new in news], 0 * old)


def naive(hp, theta, rounds, *, lora_scale, rate_of_a=1.0):
  """Means of bias, A and B apart."""
  for this in rounds:
    start = bias, kernel, a, b = _parts(theta)
    ends = [
      _trained(hp, start, client, lora_scale, rate_of_a)
      for client in this.clients
    ]
    bias, a, b = (
      old - hp.server_lr * _mean_move(this, old, [end[i] for end in ends])
      for i, old in enumerate((bias, a, b))
    )
    theta = _theta(bias, kernel, a, b)
  return theta


def ffa(hp, theta, rounds, *, lora_scale):
  return naive(hp, theta, rounds, lora_scale=lora_scale, rate_of_a=0.0)


def flora(hp, theta, rounds, *, lora_scale):
  for this in rounds:
    bias, kernel, a, b = _parts(theta)
    whole = kernel + lora_scale * np.outer(a, b)  # the server's model
    ends = []
    for client in this.clients:
      key = jax.random.fold_in(client.local_key, FACTORS)
      drawn = jax.random.normal(jax.random.fold_in(key, 0), (4, 1)) / 2
      start = bias, whole, np.float64(drawn)[:, 0], np.zeros(2)
      ends.append(_trained(hp, start, client, lora_scale))
    products = [np.outer(*end[1:]) for end in ends]
    step = this.mean(products, np.zeros((4, 2)))
    moved = _mean_move(this, bias, [end[0] for end in ends])
    bias = bias - hp.server_lr * moved
    theta = _theta(bias, kernel + hp.server_lr * lora_scale * step, a, b)
  return theta


def fedex(hp, theta, rounds, *, lora_scale):
  """Written as: the whole model moves by the mean of the clients' models."""
  for this in rounds:
    start = bias, kernel, a, b = _parts(theta)
    ends = [_trained(hp, start, x, lora_scale) for x in this.clients]
    whole = kernel + lora_scale * np.outer(a, b)
    models = [kernel + lora_scale * np.outer(*end[1:]) for end in ends]
    whole = whole - hp.server_lr * _mean_move(this, whole, models)
    bias, a, b = (
      old - hp.server_lr * _mean_move(this, old, [end[i] for end in ends])
      for i, old in enumerate((bias, a, b))
    )
    theta = _theta(bias, whole - lora_scale * np.outer(a, b), a, b)
  return theta
