"""Gradients and server optimizers of the NumPy twins."""

import math

import jax
import numpy as np


def flat(params):
  """{'b': [2], 'w': [4, 2]} -> [10], the order of a ravelled pytree."""
  return np.concatenate([np.ravel(x) for x in jax.tree.leaves(params)])


def gradient(theta, x, y):
  """Of mean((x w + b - y)^2), in float64."""
  b, w = theta[:2], theta[2:].reshape(4, 2)
  error = 2 * (x @ w + b - y) / y.size
  return np.concatenate([error.sum(0), (x.T @ error).ravel()])


def unflat(x):
  return {'b': x[:2], 'w': x[2:].reshape(4, 2)}


class Server:
  """The server optimisers, as in their papers."""

  def __init__(self, name, d):
    self.name, self.t = name, 0
    self.m, self.v, self.vhat = np.zeros(d), np.zeros(d), np.zeros(d)

  def step(self, g, lr):
    self.t += 1
    return getattr(self, self.name)(g, lr)

  def sgd(self, g, lr):
    return lr * g

  def cosine(self, g, lr):
    progress = (self.t - 1) / 5
    factor = 0.9 * 0.5 * (1 + math.cos(math.pi * progress)) + 0.1
    return lr * factor * g

  def momentum(self, g, lr):
    self.m = 0.9 * self.m + g
    return lr * self.m

  def nesterov(self, g, lr):
    self.m = 0.9 * self.m + g
    return lr * (g + 0.9 * self.m)

  def adam(self, g, lr):
    self.m = 0.9 * self.m + 0.1 * g
    self.v = 0.999 * self.v + 0.001 * g * g
    m, v = self.m / (1 - 0.9**self.t), self.v / (1 - 0.999**self.t)
    return lr * m / (np.sqrt(v) + 1e-8)

  def amsgrad(self, g, lr):
    self.m = 0.9 * self.m + 0.1 * g
    self.v = 0.999 * self.v + 0.001 * g * g
    self.vhat = np.maximum(self.vhat, self.v)
    return lr * self.m / (np.sqrt(self.vhat) + 1e-8)

  def yogi(self, g, lr):
    if self.t == 1:  # optax starts both moments at 1e-6
      self.m, self.v = np.full(g.size, 1e-6), np.full(g.size, 1e-6)
    self.m = 0.9 * self.m + 0.1 * g
    self.v = self.v - 0.001 * np.sign(self.v - g * g) * g * g
    m, v = self.m / (1 - 0.9**self.t), self.v / (1 - 0.999**self.t)
    return lr * m / (np.sqrt(v) + 1e-3)

  def adagrad(self, g, lr):
    self.v = self.v + g * g
    return lr * g / np.sqrt(self.v + 1e-7)
