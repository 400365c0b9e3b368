"""Outer steps that are applied late: the loss against the delay."""

from typing import Any

from fl_sketch import distributed, runs
from fl_sketch.runs import figures, log, metrics
import jax
import numpy as np
import optax

from ..common import registration, study
from ..common.workspace import Fields, Workspace
from . import tasks

_CODEC = 'eden(bits=2, scale="least_squares", error_feedback=True)'
_WORKERS = 2


def delayed(ws: Workspace) -> study.Report:
  """Test losses of two workers at several delays, over seeds."""
  quick = {'delays': [0, 1], 'seeds': [1, 2]}
  quick |= {'every': 4, 'steps': 16, 'width': 16}
  r = registration.read('Delayed-Steps') | ws.pick(quick, {})
  names = 'steps', 'every', 'blend', 'rate', 'width', 'batch'
  own = {name: r[name] for name in names}
  losses = {
    delay: np.array([_loss(ws, own, delay, seed) for seed in r['seeds']])
    for delay in r['delays']
  }
  gaps = {x: 100 * (loss / losses[0] - 1) for x, loss in losses.items() if x}
  ends = {x: list(map(float, metrics.interval(y))) for x, y in gaps.items()}
  rows = [
    [f'{x}', f'{losses[x].mean():.3f}', f'{mean:.2f} [{low:.2f}, {high:.2f}]']
    for x, (mean, low, high) in ends.items()
  ]
  rows.insert(0, ['0', f'{losses[0].mean():.3f}', ''])
  y, low, high = (list(z) for z in zip(*ends.values(), strict=True))
  line = figures.Line('two bits', [*gaps], y, low, high)
  panel = figures.Panel('steps of delay', 'loss above that of none, %', [line])
  return study.registered(
    r, {f'{x}': gaps.get(x, {}) for x in (4, 14)},
    {f'{x}': loss.tolist() for x, loss in losses.items()},
    ('Test loss by the delay, means over seeds.', _HEAD, rows), [panel], _NOTE,
  )  # fmt: skip


def _loss(ws: Workspace, own: Fields, delay: int, seed: int) -> float:
  """The test loss after training with a delay, computed once."""
  own = own | {'delay': delay, 'seed': seed}
  about = {'codec': _CODEC, 'workers': _WORKERS}
  name = f'delayed/{delay}-{seed}'
  return ws.cached(name, own | about, lambda: _trained(ws, **own))


def _trained(
  ws: Workspace, steps: int, every: int, blend: float, rate: float, width: int,
  batch: int, delay: int, seed: int,
) -> float:  # fmt: skip
  task = tasks.decoder(ws, width, _WORKERS, batch, steps)
  fields = {'algorithm': 'fedavg', 'seed': seed}
  exp = runs.build(task.fields | fields, ws.data_dir)
  devices = jax.devices()[:_WORKERS]
  mesh = jax.make_mesh((_WORKERS,), ('workers',), devices=devices)
  falling = optax.cosine_decay_schedule(rate, steps, 0.05)
  # What is sent at the last step is applied after it.
  falling = optax.join_schedules([falling, lambda _: 0.0], [steps])
  inner = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(falling))
  tx: Any = distributed.outer(
    inner, None, distributed.mean_over('workers', _CODEC, seed=seed),
    every=every, delay=delay, blend=blend if delay else 0.0,
  )  # fmt: skip
  step = distributed.train_step(exp.loss_fn, tx, mesh)
  params, state = exp.params, distributed.init(tx, exp.params, mesh)
  draws, samples = np.random.default_rng(seed), len(exp.data['y'])
  for _ in range(steps + delay):
    drawn = draws.integers(samples, size=batch)
    windows = {name: x[drawn] for name, x in exp.data.items()}
    params, state, value = step(params, state, windows)
    value.block_until_ready()  # collectives of several steps block each other
  metrics_fn, model = jax.jit(log.metrics_of(exp)), (params, exp.hyper)
  sums = jax.lax.map(lambda row: metrics_fn(model, row), exp.test)
  return float(sums['loss'].sum() / sums['count'].sum())


_HEAD = 'steps of delay', 'test loss, nats', 'above that of none, %'
_NOTE = (
  'A decoder of characters of depth 4 on tiny Shakespeare, two workers with '
  'AdamW and an outer step of Nesterov momentum, in two bits with error '
  'feedback. With a delay workers keep half of their distance from the new '
  'parameters, and none without: what is lower may be lower for that.'
)
