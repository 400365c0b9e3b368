"""Server optimizers: estimate of the mean pseudo-gradient -> update."""

import functools
from typing import Any, NamedTuple

from fl_sketch.local import optimizers
from fl_sketch.rounds.algorithm import Hyper
from fl_sketch.utils import fields, registry
import jax
import jax.numpy as jnp
import optax


class Direction(NamedTuple):
  """A transformation of optax without learning rate and sign of the step."""

  tx: optax.GradientTransformation


ServerOptimizer = Direction | optimizers.Factory | str
_momentum = lambda momentum=0.9, **options: optax.trace(momentum, **options)
_paper_amsgrad = functools.partial(
  optax.scale_by_amsgrad, bias_correction_mu=False, bias_correction_nu=False
)
# Factories of directions, by name; where optax has the name, in its place.
_DIRECTIONS = {
  'adam': optax.scale_by_adam,
  'amsgrad': _paper_amsgrad,
  'yogi': optax.scale_by_yogi,
  'adagrad': functools.partial(optax.scale_by_rss, 0.0),
  'momentum': _momentum,
  'nesterov': functools.partial(_momentum, nesterov=True),
  'sgd': optax.identity,
}
REGISTRY = optimizers.Registry('server_optimizer', context=('learning_rate',))
register, names = REGISTRY.register, REGISTRY.names
for _name, _factory in {**optimizers.of_optax(), **_DIRECTIONS}.items():
  register(_factory, name=_name)


def make_server_optimizer(
  name: str, **options: Any
) -> Direction | optimizers.Factory:
  """Build a server optimizer from NAME or NAME(OPTION=VALUE), and options.

  Names are those of optax; 'amsgrad' is without bias correction and 'adagrad'
  starts at 0, as in the papers, 'momentum' and 'nesterov' (the outer step of
  DiLoCo, Douillard et al., arXiv:2311.08105) take `momentum`, 'sgd' nothing.

  >>> make = make_server_optimizer('lion(b1=0.8)', weight_decay=0.0)
  >>> tx = make(learning_rate=0.5)
  >>> tx.update(jnp.ones(2), tx.init(jnp.ones(2)), jnp.ones(2))[0].tolist()
  [-0.5, -0.5]
  """
  name, given = parsed(name)
  REGISTRY.check(name, options)
  factory = functools.partial(REGISTRY.entry(name).factory, **options, **given)
  if name not in _DIRECTIONS:
    return factory
  if given:
    optimizers.check(
      f'server_optimizer={name}', lambda learning_rate: factory()
    )
  return Direction(factory())


def corrected_amsgrad(
  b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> Direction:
  r"""Return the AMSGrad of PyTorch, which corrects both biases.

  :math:`\frac{m}{1 - \beta_1^t} / (\sqrt{\hat v / (1 - \beta_2^t)} +
  \epsilon)` with the largest v so far, :math:`\hat v`; optax takes the
  largest of the corrected v.
  """
  moments = _paper_amsgrad(b1, b2)

  def update(updates, state, params=None):
    new: Any = moments.update(updates, state, params)[1]
    scale_m, scale_v = 1 - b1**new.count, 1 - b2**new.count
    step = lambda m, v: m / scale_m / (jnp.sqrt(v / scale_v) + eps)
    return jax.tree.map(step, new.mu, new.nu_max), new

  return Direction(optax.GradientTransformation(moments.init, update))


def parsed(text: Any) -> tuple[str, dict[str, Any]]:
  """Return name and options of NAME(OPTION=VALUE, ...); ValueError of others.

  >>> parsed('lion(b1=0.8)')
  ('lion', {'b1': 0.8})
  """
  if not isinstance(text, str):
    raise ValueError(
      f"server_optimizer={fields.shown(text)} must be a name like 'lion'; "
      'register your own by server_optimizers.register.'
    )
  options = registry.parse_call(text, 'server_optimizer')
  name = options.pop(registry.KIND)
  REGISTRY.check(name, options)
  return name, options


def server_step(
  hp: Hyper,
  server_optimizer: ServerOptimizer = 'sgd',
  schedule: optax.Schedule | None = None,
) -> optax.GradientTransformation:
  """Estimate -> update of the parameters: optimiser, schedule, ``server_lr``.

  `server_optimizer` is a text as of `make_server_optimizer`, or a function of
  ``learning_rate``, as `optax.lion`; `schedule` is round -> factor on
  ``server_lr``. A transformation of optax, whose rate is fixed, is refused.
  """
  optimizer = server_optimizer
  if isinstance(optimizer, str):
    optimizer = make_server_optimizer(optimizer)
  if isinstance(optimizer, Direction):
    decay = optax.scale_by_schedule(schedule) if schedule else optax.identity()
    rate = optax.scale_by_learning_rate(hp.server_lr)
    return optax.chain(optimizer.tx, decay, rate)
  given = f'server_optimizer={fields.shown(server_optimizer)}'
  rate = hp.server_lr
  if schedule is not None:
    given += ' with a schedule'
    rate = lambda count: hp.server_lr * schedule(count)
  optimizers.check(given, optimizer, rate)
  return optimizer(learning_rate=rate)
