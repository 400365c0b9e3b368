"""Twins of the algorithms that send tables."""

from fl_sketch import sketches
import jax
import numpy as np
import reference
import twins_base as base
from twins_base import PLAIN, desketch, largest, moved, only, zero_table


def _minus(a, b):
  return jax.tree.map(np.subtract, a, b)


def diffsketch(hp, theta, rounds, *, sketch):
  return safl(hp._replace(server_lr=1.0), theta, rounds, sketch=sketch)


def safl(
  hp, theta, rounds, *, sketch, client_momentum=0.0, clip=None, codec=None,
  downlink_codec=None, hash_rounds=None, wire=PLAIN,
):  # fmt: skip
  average = _averages(client_momentum)
  for this in rounds:
    key = base.hash_key(this, hash_rounds)
    sent = [moved(hp, theta, client) for client in this.clients]
    if clip == 'client':
      sent = [base.clip(x, hp.clip_norm) for x in sent]
    sent = average(this.clients, sent)
    mean = wire.sketched(sketch, key, this, sent, theta, codec)
    mean = base.told(downlink_codec, this, mean)
    estimate = desketch(sketch, key, mean, theta)
    if clip == 'server':
      alpha = sketch.properties.alpha(theta.size)
      estimate = base.clip(estimate, hp.clip_norm * np.sqrt(1 + alpha))
    theta = theta - hp.step(estimate)
  return theta


iterative_sketching = fedsketch_privix = safl  # SGD on the server, by default


def subspace_sketching(
  hp, theta, rounds, *, sketch, hash_rounds, codec=None, downlink_codec=None
):  # fmt: skip
  for this in rounds:
    key = base.hash_key(this, hash_rounds)
    if this.index % hash_rounds == 0:
      start, z = theta, zero_table(sketch, theta)
      server = reference.Server(hp.server.name, z.size)
    sent = [moved(hp, theta, client) for client in this.clients]
    mean = PLAIN.sketched(sketch, key, this, sent, theta, codec)
    z = z - server.step(mean.ravel(), hp.server_lr).reshape(z.shape)
    told = base.told(downlink_codec, this, z)
    theta = start + desketch(sketch, key, told, theta)
  return theta


def _averages(beta):
  """Averages of what each client sends over the rounds in which it does."""
  kept = {}

  def average(clients, sent):
    out = []
    for client, x in zip(clients, sent, strict=True):
      old, count = kept.get(client.id, (0.0, 0))
      new = beta * old + (1 - beta) * x
      kept[client.id] = new, count + 1
      out.append(new / (1 - beta ** (count + 1)))
    return out

  return average


def preconditioned_sketching(
  hp, theta, rounds, *, sketch, every, keep=0.7, damping=0.01,
  client_momentum=0.0, b1=0.9, b2=0.99, codec=None, downlink_codec=None,
):  # fmt: skip
  first, second, squares, d = np.zeros_like(theta), 0.0, None, theta.size
  average = _averages(client_momentum)
  for this in rounds:
    key, r = this.keys.round, this.index
    v = np.ones(d) if squares is None else _second_moment(squares)
    q = (v + (0 if squares is None else damping * v.mean())) ** 0.25
    sent = [moved(hp, theta, client) for client in this.clients]
    scaled = average(this.clients, [x / q for x in sent])
    mean = PLAIN.sketched(sketch, key, this, scaled, theta, codec)
    mean = base.told(downlink_codec, this, mean)
    z = desketch(sketch, key, mean, theta)
    first = b1 * first + (1 - b1) * q * z
    second = b2 * second + (1 - b2) * np.square(z).mean()
    step = first / (1 - b1 ** (r + 1)) / q**2
    step /= np.sqrt(second / (1 - b2 ** (r + 1)) * np.mean(1 / q**2))
    theta = theta - hp.server_lr * step
    if r % every == 0:
      new = this.mean([x**2 for x in sent], theta)
      squares = new if squares is None else keep * squares + (1 - keep) * new
  return theta


def _second_moment(squares):
  """Row means times column means of the matrix, and the mean of the bias."""
  b, w = squares[:2], squares[2:].reshape(4, 2)
  outer = np.outer(w.mean(1), w.mean(0)) / w.mean()
  return reference.flat({'b': np.full(2, b.mean()), 'w': outer})


def fedsketch_heaprix(hp, theta, rounds, *, sketch, k, exact=True, wire=PLAIN):
  for this in rounds:
    sent = [moved(hp, theta, client) for client in this.clients]
    read = _heaprix_exact if exact else _heaprix_literal
    theta = theta - hp.server_lr * read(wire, sketch, k, this, sent, theta)
  return theta


def _heaprix_exact(wire, op, k, this, sent, theta):
  """Two uplinks: a table; then values on its support, and a second table."""
  tables = [base.sketch(op, this.keys.round, x) for x in sent]
  first = wire.mean(this, tables, zero_table(op, theta))
  return _heaprix_rest(wire, op, k, this, sent, theta, first)


def _heaprix_rest(wire, op, k, this, sent, theta, first):
  """The second uplink, after the mean of the first tables."""
  fresh = jax.random.fold_in(this.keys.round, 2)
  top = base.support(op, this.keys.round, first, theta, k)
  both = [(x[top], base.sketch(op, fresh, x)) for x in sent]
  zero = np.zeros(k), zero_table(op, theta)
  values, second = wire.mean(this, both, zero, index=1)
  y1 = np.zeros_like(theta)
  y1[top] = values
  rest = _minus(second, base.sketch(op, fresh, y1))
  return y1 + desketch(op, fresh, rest, theta)


def _heaprix_literal(wire, op, k, this, sent, theta):
  """One uplink, whose table is read twice under one hash."""
  key = this.keys.round
  table = wire.sketched(op, key, this, sent, theta)
  estimate = desketch(op, key, table, theta)
  heavymix = only(estimate, base.support(op, key, table, theta, k))
  rest = _minus(table, base.sketch(op, key, heavymix))
  return heavymix + desketch(op, key, rest, theta)


def fedsketchgate(
  hp, theta, rounds, *, sketch, local_steps, k=None, control_gain=None,
  printed=False, wire=PLAIN,
):  # fmt: skip
  control = np.zeros((hp.population, theta.size))
  reader = sketch if printed else _linear_reader(sketch, theta)
  scale = 1 / local_steps
  if not printed:
    alpha = reader.properties.alpha(theta.size)
    gain = 1 / (1 + alpha) if control_gain is None else control_gain
    scale = gain / (hp.client_lr * local_steps)
  for this in rounds:
    key = this.keys.round
    sent = [
      moved(hp, theta, client, -control[client.id], local_steps)
      for client in this.clients
    ]
    tables = [base.sketch(sketch, key, x) for x in sent]
    mean = wire.mean(this, tables, zero_table(sketch, theta))
    if k is None:
      step = desketch(sketch, key, mean, theta)
    else:
      step = _heaprix_rest(wire, sketch, k, this, sent, theta, mean)
    shared = desketch(reader, key, mean, theta)
    for client, table in zip(this.clients, tables, strict=True):
      estimate = desketch(reader, key, wire.clipped(table), theta)
      control[client.id] -= scale * (shared - estimate)
    theta = theta - hp.server_lr * step
  return theta


def _linear_reader(op, theta):
  """A count sketch's table is read by the mean, any other by its operator."""
  if op.properties.name != 'count_sketch':
    return op
  return sketches.count_sketch(*zero_table(op, theta).shape, combine='mean')


def sketched_sgd(
  hp, theta, rounds, *, sketch, k, candidates=4, momentum=0.0, wire=PLAIN
):
  error = np.zeros((hp.population, theta.size))
  velocity = np.zeros((hp.population, theta.size))
  for this in rounds:
    key = this.keys.round
    ids = [client.id for client in this.clients]
    for client in this.clients:
      j = client.id
      velocity[j] = momentum * velocity[j] + base.mean_gradient(theta, client)
      error[j] += hp.server_lr * velocity[j]
    tables = [base.sketch(sketch, key, x) for x in error[ids]]
    table = wire.mean(this, tables, zero_table(sketch, theta))
    estimate = desketch(sketch, key, table, theta)
    top = largest(estimate, min(candidates * k, theta.size))
    exact = wire.mean(this, error[ids][:, top], np.zeros(len(top)), index=1)
    best = largest(exact, k)
    theta = theta.copy()
    theta[top[best]] -= exact[best]
    error[np.ix_(ids, top[best])] = 0
    velocity[np.ix_(ids, top[best])] = 0
  return theta


def fetchsgd(
  hp, theta, rounds, *, sketch, k, momentum=0.9, error_update='zero',
  momentum_masking=True, codec=None, wire=PLAIN,
):  # fmt: skip
  velocity = error = zero_table(sketch, theta)
  for this in rounds:
    key = this.keys.run
    sent = [base.mean_gradient(theta, client) for client in this.clients]
    mean = wire.sketched(sketch, key, this, sent, theta, codec)
    velocity = momentum * velocity + mean
    error = error + hp.server_lr * velocity
    estimate = desketch(sketch, key, error, theta)
    delta = only(estimate, largest(estimate, k))
    spent = base.sketch(sketch, key, delta)
    if error_update == 'zero':
      error = np.where(spent != 0, 0, error)
    else:
      error = error - spent
    if momentum_masking:
      velocity = np.where(spent != 0, 0, velocity)
    theta = theta - delta
  return theta


def decentralised(hp, theta, rounds, *, sketch, mixing):
  """Everybody takes part in every round; row j of `mixing` is of client j."""
  models = np.tile(theta, (len(mixing), 1))
  for this in rounds:
    key = this.keys.round
    clients = sorted(this.clients, key=lambda client: client.id)
    assert [client.id for client in clients] == list(range(len(mixing)))
    tables = [
      base.sketch(sketch, key, moved(hp, models[client.id], client))
      for client in clients
    ]
    for j, row in enumerate(mixing):
      weighted = lambda *xs, row=row: sum(
        a * x for a, x in zip(row, xs, strict=True)
      )
      average = jax.tree.map(weighted, *tables)
      models[j] -= hp.server_lr * desketch(sketch, key, average, theta)
  return models.mean(0)
