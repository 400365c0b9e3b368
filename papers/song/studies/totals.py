"""What is sent in all with a sketch and without: Song, sections 5 and 8."""

import itertools

from fl_sketch import algorithms, sketches
from fl_sketch.runs import figures
import jax
import jax.numpy as jnp
import numpy as np

from ...common import programs, registration, study, summaries, workspace
from ...common.workspace import Workspace
from ..statements import convergence as song
from . import races

_QUICK = {
  'seeds': [1, 2], 'dimension': 32, 'sizes': [4, 16], 'conditions': [1, 100],
  'operators': ['srht'], 'target': 0.5,
}  # fmt: skip


def rounds_to(op, curvature, target, seeds) -> list[int]:
  """Count rounds until the gap is `target` of the first, by seed.

  One client, as those that are alike do the same; at Theorem E.1's step.
  """
  bent = jnp.asarray(curvature, jnp.float32)
  alpha = op.properties.alpha(len(curvature))
  step = song.largest_step('E1', smoothness=float(max(curvature)), alpha=alpha)
  loss_fn = lambda w, x: 0.5 * jnp.sum(bent * w**2) + 0 * jnp.sum(x)
  make = algorithms.make('iterative_sketching', loss_fn, sketch=op)
  hp = algorithms.Hyper(jnp.float32(step), jnp.float32(1))
  begin, nothing = programs.everybody(make, 1), np.zeros((1, 1, 1), np.float32)
  goal = target * bent.sum()

  def one(seed):
    start, step = begin(hp, jax.random.key(seed), jnp.ones_like(bent))
    goes_on = lambda carry: jnp.sum(bent * carry[0].params ** 2) > goal
    go = lambda carry: (step(carry[0], nothing)[0], carry[1] + 1)
    return jax.lax.while_loop(goes_on, go, (start, jnp.int32(0)))[1]

  return jax.jit(jax.vmap(one))(np.asarray(seeds, np.uint32)).tolist()


def communication(ws: Workspace) -> study.Report:
  """Numbers sent over those of dense training, in every cell."""
  registered = registration.read('S0-NoExtra') | ws.pick(_QUICK, {})
  d, sizes = registered['dimension'], registered['sizes']
  ratios, curved, between, counts, panels, rows = {}, {}, {}, {}, [], []
  dense = sketches.identity()
  for operator in registered['operators']:
    lines = []
    for condition in registered['conditions']:
      curvature = np.geomspace(1, 1 / condition, d)
      times = ws.cached(
        f'song/totals/{operator}-{condition}',
        {'seeds': registered['seeds'], 'd': d, 'sizes': sizes}
        | {'target': registered['target']},
        lambda o=operator, c=curvature: [
          rounds_to(op, c, registered['target'], registered['seeds'])
          for op in (*(races.operator(o, b) for b in sizes), dense)
        ],
      )
      counts[f'{operator}, {condition}'] = times
      whole = d * times[-1][0]
      sent = {
        b: b * np.array(t) for b, t in zip(sizes, times[:-1], strict=True)
      }
      for b, numbers in sent.items():
        cell = f'{operator}, b = {b}, condition {condition:,}'
        ratios[cell] = numbers / whole
        if condition >= 100:
          curved[cell] = ratios[cell]
        rows.append([
          operator, f'{condition:,}', str(b),
          workspace.shown(numbers / b, digits=0), f'{times[-1][0]:,}',
          workspace.shown(ratios[cell], digits=2),
        ])  # fmt: skip
      for a, b in itertools.permutations(sizes, 2):
        cell = f'b = {a} over b = {b}, {operator}, condition {condition:,}'
        between[cell] = sent[a] / sent[b]
      over = np.stack([x / whole for x in sent.values()], 1)
      ends = summaries.interval(over)
      lines.append(
        figures.Line(
          f'condition {condition:,}', sizes, *ends, cell=rows[-1][-1]
        )
      )
    labels = 'numbers in a table, b', 'b T over d T without a sketch'
    panels.append(
      figures.Panel(*labels, lines, operator, x_scale='log', y_mark=1.0)
    )
  values = {'all': ratios, 'curved': curved, 'sizes': between}
  head = 'operator', 'condition', 'b', 'T', 'T dense', 'b T over dense'
  table = f'd = {d}: rounds to a hundredth of the first gap', head, rows
  seeds = {'rounds of every size, then dense': counts}
  return study.registered(registered, values, seeds, table, panels, _SETTING)


_SETTING = (
  'Quadratics with curvatures from 1 to 1 / condition in equal ratios, from '
  'w = 1. Each run has the largest step of Theorem E.1 for its own alpha, and '
  'so has dense gradient descent, with alpha 0.'
)
