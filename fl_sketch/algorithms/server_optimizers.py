"""Server optimizers: estimate of the mean pseudo-gradient -> update."""

import functools
from typing import Any

from fl_sketch.rounds.algorithm import Hyper
from fl_sketch.utils import fields
import jax
import jax.numpy as jnp
import optax

ServerOptimizer = optax.GradientTransformation | str

_momentum = lambda momentum=0.9, **options: optax.trace(momentum, **options)
_paper_amsgrad = functools.partial(
  optax.scale_by_amsgrad, bias_correction_mu=False, bias_correction_nu=False
)
_ADAPTIVE, _MOMENTUM = ('b1', 'b2', 'eps'), ('momentum',)
# Factory and the names of its options.
_SERVER_OPTIMIZERS = {
  'adam': (optax.scale_by_adam, _ADAPTIVE),
  'amsgrad': (_paper_amsgrad, _ADAPTIVE),
  'yogi': (optax.scale_by_yogi, _ADAPTIVE),
  'adagrad': (functools.partial(optax.scale_by_rss, 0.0), ('eps',)),
  'momentum': (_momentum, _MOMENTUM),
  'nesterov': (functools.partial(_momentum, nesterov=True), _MOMENTUM),
  'sgd': (optax.identity, ()),
}


def make_server_optimizer(name: str, **options) -> optax.GradientTransformation:
  """Build a server optimizer, without its learning rate.

  Names are 'adam', 'amsgrad' (without bias correction, as in the papers),
  'yogi', 'adagrad', 'momentum', 'nesterov' (the outer step of DiLoCo, Douillard
  et al., arXiv:2311.08105) and 'sgd'; options are b1, b2 and eps, or momentum.
  An unknown name or option raises ValueError.
  """
  names = options_of(name)
  if unknown := sorted(set(options) - set(names)):
    raise ValueError(f'{name} does not support {unknown}; it has {names}.')
  return _SERVER_OPTIMIZERS[name][0](**options)


def corrected_amsgrad(
  b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> optax.GradientTransformation:
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

  return optax.GradientTransformation(moments.init, update)


def options_of(name: str) -> tuple[str, ...]:
  """Return the options of a server optimizer; ValueError if it is unknown."""
  if name not in _SERVER_OPTIMIZERS:
    names = tuple(_SERVER_OPTIMIZERS)
    shown = fields.shown(name)
    raise ValueError(f'server_optimizer={shown} is unknown; use {names}.')
  return _SERVER_OPTIMIZERS[name][1]


def server_step(
  hp: Hyper,
  server_optimizer: ServerOptimizer = 'sgd',
  schedule: optax.Schedule | None = None,
) -> optax.GradientTransformation:
  """Estimate -> update of the parameters: optimiser, schedule, ``server_lr``.

  `server_optimizer` is a name of `make_server_optimizer`, or any of optax
  without its learning rate; `schedule` is round -> factor on ``server_lr``.
  """
  if isinstance(server_optimizer, str):
    server_optimizer = make_server_optimizer(server_optimizer)
  decay = optax.scale_by_schedule(schedule) if schedule else optax.identity()
  rate = optax.scale_by_learning_rate(hp.server_lr)
  return optax.chain(server_optimizer, decay, rate)
