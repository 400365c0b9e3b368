"""Twins of the algorithms that send vectors, whole or through a codec."""

import jax
import numpy as np
import twins_base as base
from twins_base import COIN, mean_gradient, moved, through, through_vector


def fedsgd(hp, theta, rounds):
  for this in rounds:
    sent = [mean_gradient(theta, client) for client in this.clients]
    theta = theta - hp.step(this.mean(sent, theta))
  return theta


def fedavg(hp, theta, rounds, *, local_optimizer=None, mu=0.0):
  own = dict(local_optimizer or {})
  numbers = {k: own[k] for k in own.keys() - {'kind', 'keep_state'}}
  kept = {}
  for this in rounds:
    if not own.get('keep_state'):
      kept = {}
    sent = []
    for client in this.clients:
      adamw = kept.setdefault(client.id, base.AdamW(hp.client_lr, **numbers))
      step = own and adamw.step
      sent.append(moved(hp, theta, client, proximal=mu, step=step))
    theta = theta - hp.step(this.mean(sent, theta))
  return theta


def fedprox(hp, theta, rounds, *, mu=0.01):
  return fedavg(hp, theta, rounds, mu=mu)


def feddyn(hp, theta, rounds, *, alpha=0.1):
  own, shared = np.zeros((hp.population, theta.size)), np.zeros(theta.size)
  for this in rounds:
    if not this.clients:
      continue
    ends = []
    for client in this.clients:
      end = theta - moved(hp, theta, client, -own[client.id], proximal=alpha)
      own[client.id] -= alpha * (end - theta)
      shared -= alpha * client.weight * (end - theta) / hp.population
      ends.append(end)
    target = this.mean(ends, theta) - shared / alpha
    theta = theta + hp.server_lr * (target - theta)
  return theta


def fednova(hp, theta, rounds):
  for this in rounds:
    steps = [float(len(client.batches)) for client in this.clients]
    ways = [
      moved(hp, theta, client) / len(client.batches) for client in this.clients
    ]
    made = this.mean(steps, 0.0)
    theta = theta - hp.server_lr * made * this.mean(ways, theta)
  return theta


def scaffold(hp, theta, rounds, *, local_steps):
  variates = np.zeros((hp.population, theta.size))
  shared = np.zeros(theta.size)
  for this in rounds:
    sent, change = [], np.zeros(theta.size)
    for client in this.clients:
      old = variates[client.id].copy()
      x = moved(hp, theta, client, shared - old, local_steps)
      variates[client.id] = old - shared + x / (local_steps * hp.client_lr)
      change += client.weight * (variates[client.id] - old)
      sent.append(x)
    shared = shared + change / hp.population
    theta = theta - hp.server_lr * this.mean(sent, theta)
  return theta


def fedcom(
  hp, theta, rounds, *, codec, error_feedback=False, residual_decay=1.0
):
  error = np.zeros((hp.population, theta.size))
  for this in rounds:
    sent = []
    for client in this.clients:
      whole = error[client.id] + moved(hp, theta, client)
      sent.append(through(codec, client.codec_key, whole))
      if error_feedback:
        error[client.id] = residual_decay * (whole - sent[-1])
    theta = theta - hp.step(this.mean(sent, theta))
  return theta


def fedcomgate(hp, theta, rounds, *, codec, local_steps, control_gain=None):
  if control_gain is None:
    control_gain = 1 / (1 + codec.omega(theta.size))
  scale = control_gain / (hp.client_lr * local_steps)
  control = np.zeros((hp.population, theta.size))
  for this in rounds:
    sent = []
    for client in this.clients:
      x = moved(hp, theta, client, -control[client.id], local_steps)
      sent.append(through(codec, client.codec_key, x))
    mean = this.mean(sent, theta)
    for client, x in zip(this.clients, sent, strict=True):
      control[client.id] += scale * (x - mean)
    theta = theta - hp.step(mean)
  return theta


def marina(hp, theta, rounds, *, codec, sync_probability):
  before, estimate = theta, np.zeros(theta.size)
  for this in rounds:
    coin = jax.random.fold_in(this.keys.round, COIN)
    heads = bool(jax.random.bernoulli(coin, sync_probability))
    sent = []
    for client in this.clients:
      g = mean_gradient(theta, client)
      if not heads and this.index > 0:
        g = g - mean_gradient(before, client)
        g = through(codec, client.codec_key, g)
      sent.append(g)
    if heads or this.index == 0:
      estimate = np.zeros(theta.size)
    estimate = estimate + this.mean(sent, theta)
    before = theta
    theta = theta - hp.step(estimate)
  return theta


class _Markov:
  """The server's estimates of each client's gradient, and of their mean."""

  def __init__(self, hp, d):
    self.estimates, self.mean = np.zeros((hp.population, d)), np.zeros(d)

  def receive(self, theta, this, codec):
    for client in this.clients:
      news = mean_gradient(theta, client) - self.estimates[client.id]
      decoded = through(codec, client.codec_key, news)
      self.estimates[client.id] += decoded
      self.mean += client.weight * decoded / len(self.estimates)
    return self.mean


def ef21(hp, theta, rounds, *, codec):
  markov = _Markov(hp, theta.size)
  for this in rounds:
    mean = markov.receive(theta, this, codec)
    theta = theta - hp.step(mean)
  return theta


def cd_adam(hp, theta, rounds, *, codec, b1=0.9, b2=0.99, eps=1e-8):
  """As main.py of the authors, updateLocalModel, 'adam'."""
  markov = _Markov(hp, theta.size)
  copy, m, v, top = np.zeros((4, theta.size))
  for t, this in enumerate(rounds, 1):
    news = markov.receive(theta, this, codec) - copy
    copy = copy + through(codec, base.server_codec_key(this.keys), news)
    m = b1 * m + (1 - b1) * copy
    v = b2 * v + (1 - b2) * copy**2
    top = np.maximum(top, v)
    denominator = np.sqrt(top) / np.sqrt(1 - b2**t) + eps
    theta = theta - hp.server_lr / (1 - b1**t) * m / denominator
  return theta


def demo(hp, theta, rounds, *, codec, momentum=0.999, signs=True):
  own = np.zeros((hp.population, theta.size))
  for this in rounds:
    sent = []
    for client in this.clients:
      own[client.id] *= momentum
      own[client.id] += mean_gradient(theta, client)
      sent.append(through(codec, client.codec_key, own[client.id]))
      own[client.id] -= sent[-1]
    mean = this.mean(sent, theta)
    theta = theta - hp.server_lr * (_sign(mean) if signs else mean)
  return theta


def onebit_adam(hp, theta, rounds, *, warmup, b1=0.9, b2=0.999, eps=1e-8):
  error = np.zeros((hp.population, theta.size))
  server_error, m, v = np.zeros((3, theta.size))
  for this in rounds:
    sent = [mean_gradient(theta, client) for client in this.clients]
    if this.index < warmup:
      mean = this.mean(sent, theta)
      m = b1 * m + (1 - b1) * mean
      v = b2 * v + (1 - b2) * mean**2
    else:
      coded = []
      for client, g in zip(this.clients, sent, strict=True):
        whole = b1 * m + (1 - b1) * g + error[client.id]
        coded.append(_one_bit(whole))
        error[client.id] = whole - coded[-1]
      whole = this.mean(coded, theta) + server_error
      m = _one_bit(whole)
      server_error = whole - m
    step = hp.server_lr * m / (np.sqrt(v) + eps)
    theta = theta - np.where(v == 0, 0, step)
  return theta


def _one_bit(x):
  return _sign(x) * np.linalg.norm(x) / np.sqrt(x.size)


def _sign(x):
  return np.where(x >= 0, 1.0, -1.0)


def cocktail_sgd(hp, theta, rounds, *, codec, mask_ratio):
  d = theta.size
  residual, server_error = np.zeros((hp.population, d)), np.zeros(d)
  size = max(1, round(mask_ratio * d))
  for this in rounds:
    mask = base.shared_mask(this.keys, size, d)
    decoded = []
    for client in this.clients:
      start = theta - residual[client.id]
      whole = theta - (start - moved(hp, start, client))
      decoded.append(through_vector(codec, client.codec_key, whole[mask]))
      whole[mask] -= decoded[-1]
      residual[client.id] = whole
    total = this.mean(decoded, np.zeros(size)) + server_error[mask]
    reply = through_vector(codec, base.server_codec_key(this.keys), total)
    server_error[mask] = total - reply
    theta = theta.copy()
    theta[mask] -= hp.server_lr * reply
  return theta


def power_sgd(hp, theta, rounds, *, rank):
  """Of the matrix alone; the basis is that of an eigendecomposition."""
  error, q = np.zeros((hp.population, 4, 2)), None
  for this in rounds:
    if q is None:
      key = jax.random.fold_in(this.keys.run, 0)
      q = np.asarray(jax.random.normal(key, (2, rank)), np.float64)
    sent = [moved(hp, theta, client) for client in this.clients]
    targets = [
      x[2:].reshape(4, 2) + error[client.id]
      for client, x in zip(this.clients, sent, strict=True)
    ]
    span = this.mean([m @ q for m in targets], np.zeros((4, rank)))
    p = np.linalg.eigh(span @ span.T)[1][:, -rank:]
    own = [m.T @ p for m in targets]
    for client, m, x in zip(this.clients, targets, own, strict=True):
      error[client.id] = m - p @ x.T
    q = this.mean(own, q)
    mean = this.mean(sent, theta)
    mean[2:] = (p @ q.T).ravel()
    theta = theta - hp.step(mean)
  return theta


def signsgd(hp, theta, rounds):
  for this in rounds:
    votes = np.zeros(theta.size)
    for client in this.clients:
      votes += client.weight * _sign(mean_gradient(theta, client))
    theta = theta - hp.server_lr * _sign(votes)
  return theta
