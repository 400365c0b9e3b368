"""SAFL: Chen, Li, Banerjee, Sketched Adaptive FL, arXiv:2411.06770."""

import functools

from fl_sketch import local as local_work
from fl_sketch import sketches
from fl_sketch import transforms as t
from fl_sketch.algorithms import base
import optax

_paper_amsgrad = functools.partial(
  optax.scale_by_amsgrad, bias_correction_mu=False, bias_correction_nu=False
)
_paper_adagrad = functools.partial(
  optax.scale_by_rss, initial_accumulator_value=0.0
)
# Each with the options it takes.
_SERVER_OPTIMIZERS = {
  'adam': (optax.scale_by_adam, ('b1', 'b2', 'eps')),
  'amsgrad': (_paper_amsgrad, ('b1', 'b2', 'eps')),
  'yogi': (optax.scale_by_yogi, ('b1', 'b2', 'eps')),
  'adagrad': (_paper_adagrad, ('eps',)),
  'momentum': (lambda momentum=0.9: optax.trace(momentum), ('momentum',)),
  'sgd': (optax.identity, ()),
}


def make_server_optimizer(name: str, **options) -> optax.GradientTransformation:
  """The preconditioner of the server step, without its learning rate.

  'amsgrad' is the paper's, without bias correction; 'adam', which all the
  paper's experiments use, has it.

  >>> make_server_optimizer('adam', b2=0.99).init is not None
  True

  Args:
    name: 'adam', 'amsgrad', 'yogi', 'adagrad', 'momentum' or 'sgd'.
    **options: b1, b2 and eps, or momentum.

  Raises:
    ValueError: there is no optimiser of that name, or it lacks an option.
  """
  if name not in _SERVER_OPTIMIZERS:
    known = tuple(_SERVER_OPTIMIZERS)
    raise ValueError(f'Expected server_optimizer={name!r} in {known}.')
  factory, takes = _SERVER_OPTIMIZERS[name]
  if unknown := sorted(set(options) - set(takes)):
    raise ValueError(f'Expected options of {name} in {takes}, got {unknown}.')
  return factory(**options)


def safl(
  local: local_work.Local,
  hp: base.Hyper,
  *,
  sketch: sketches.Sketch,
  server_optimizer: optax.GradientTransformation | str = 'adam',
  schedule: optax.Schedule | None = None,
) -> base.Algorithm:
  r"""Sketch, average, de-sketch, then any optax optimiser on the server.

  :math:`D = R_t^\top \frac1n \sum_c R_t \Delta_c`, and
  :math:`x \leftarrow x - \kappa\,\mathrm{ADA}(D)` with moments that server and
  clients alike compute from D. Up and down: b floats.

  The printed client loop decodes a mean that is not there yet; we decode in
  the round that encoded. Below d, the sketch's noise lifts every second moment
  to at least :math:`\|\Delta\|^2 / b`: keep eps well below
  :math:`\|\Delta\| / \sqrt b`.

  Args:
    local: local work.
    hp: hyperparameters; kappa is ``server_lr``.
    sketch: a linear operator.
    server_optimizer: ADA without its learning rate: a name that
      `make_server_optimizer` knows, or any optax transformation.
    schedule: round -> factor on ``server_lr``.
  """
  if isinstance(server_optimizer, str):
    server_optimizer = make_server_optimizer(server_optimizer)
  decay = optax.identity()
  if schedule is not None:
    decay = optax.scale_by_schedule(schedule)
  return base.federated(
    local,
    t.sketch(sketch),
    t.mean_over_cohort(),
    t.broadcast(),
    t.desketch(sketch),
    server_optimizer,
    decay,
    optax.scale_by_learning_rate(hp.server_lr),
  )
