"""FLoRA and FedEx-LoRA: the mean of products of factors, which LoRA needs."""

from collections.abc import Callable
import functools
import itertools

from fl_sketch.local import Task
from fl_sketch.models import lora
from fl_sketch.rounds import aggregation, chain, comms, transforms as t
from fl_sketch.rounds.algorithm import Algorithm, Hyper, federated
from fl_sketch.rounds.keys import factors_key
from fl_sketch.utils import fields
import jax
import jax.numpy as jnp


def flora(
  task: Task, hp: Hyper, *, lora_scale: fields.Positive = 1.0
) -> Algorithm:
  r"""FLoRA: clients start from new factors, and receive those of all.

  Each draws its A, with B = 0. :math:`W \leftarrow W + \eta_g s \sum_i p_i A_i
  B_i` with the weights p_i of the participants. Other trained arrays are
  averaged as in `fedavg`. Clients start from the kernel W + s A B with the
  factors A, B of the first parameters, which stay. Parameters without adapters
  raise ValueError.

  Symbols: client_lr eta; server_lr eta_g, 1 in the paper; p_i p_k; A and B
  transposed, as of `models.lora`.

  Departures: all clients have one rank. The broadcast is billed as the stacked
  factors of the participants, of which the simulation keeps the product.

  Source: Wang, Shen, He, Sun, Wang, Lyu, Li, NeurIPS 2024, arXiv:2409.05976;
  checked against the authors' code, github.com/ATP-1010/FederatedLLM.
  """

  def merged(x):
    if not lora.is_adapter(x):
      return x
    return lora.Adapter(lora.merge(x, lora_scale), x.a, jnp.zeros_like(x.b))

  def fresh(trained, key):
    numbers = itertools.count()

    def start(x):
      if not lora.is_adapter(x):
        return x
      return x._replace(a=lora.draw(key, next(numbers), x.a.shape, x.a.dtype))

    return _map(start, trained)

  def step(param, moved):
    if not lora.is_adapter(param):
      return -hp.server_lr * moved
    # Clients draw their own in every round: those of the model stay.
    a, b = jnp.zeros_like(param.a), jnp.zeros_like(param.b)
    return lora.Adapter(-hp.server_lr * lora_scale * moved.base, a, b)

  return _algorithm(task, hp, _stacked, step, merged, fresh)


def fedex(
  task: Task, hp: Hyper, *, lora_scale: fields.Positive = 1.0
) -> Algorithm:
  r"""FedEx-LoRA: averages factors, and adds what that misses to the kernels.

  :math:`A \leftarrow \bar A = \sum_i p_i A_i`, :math:`B \leftarrow \bar B` and
  :math:`W \leftarrow W + s (\sum_i p_i A_i B_i - \bar A \bar B)`. Other arrays
  are averaged as in `fedavg`. Parameters without adapters raise ValueError.

  Symbols: client_lr eta; server_lr eta_g, 1 in the paper; the paper's 1 / k
  p_i; A and B transposed, as of `models.lora`.

  Departures: a server_lr other than 1 scales the steps of factors and of the
  model A B. The residual of a kernel is billed as a pair of factors for each
  participant, or as a matrix if that is fewer bytes.

  Source: Singhal, Ponkshe, Vepakomma, ACL 2025, arXiv:2410.09432, section 4.
  """

  def step(param, moved):
    if not lora.is_adapter(param):
      return -hp.server_lr * moved
    a, b = -hp.server_lr * moved.a, -hp.server_lr * moved.b
    residual = _away(param, a, b) - hp.server_lr * moved.base
    return lora.Adapter(lora_scale * residual, a, b)

  return _algorithm(task, hp, _residual, step)


def _algorithm(
  task, hp, size, step, received=lambda x: x, start=None
) -> Algorithm:
  def local(params, batches, key, correction):
    trained, kernels = lora.split(_map(received, params))
    steps = task._replace(loss_fn=lora.beside(task.loss_fn, kernels)).steps(hp)
    if start is None:
      return steps(trained, batches, key, correction)
    first = start(trained, factors_key(key))
    moved, metrics = steps(first, batches, key, correction)
    # Relative to the server's parameters: it knows no factors of the client.
    away = lambda x, begun, move: x - (begun - move)
    return jax.tree.map(away, trained, first, moved), metrics

  def product(param, moved):  # how far that of the factors moved
    if not lora.is_adapter(param):
      return moved
    return moved._replace(base=_away(param, -moved.a, -moved.b))

  decode = lambda _, moved, params: _map(product, _map(received, params), moved)
  return federated(
    local,
    aggregation.mean_over_cohort(decode=decode),
    _billed(size),
    t.stateless(lambda mean, params, **_: _map(step, params, mean)),
    update_template=lambda params: lora.split(params)[0],
  )


def _away(param, a, b):
  return param.a @ param.b - (param.a + a) @ (param.b + b)


def _billed(size: Callable[..., jax.Array]) -> chain.Link:
  """Build a downlink whose bill has factors in place of their products."""

  def init(params):
    if not any(map(lora.is_adapter, _leaves(params))):
      raise ValueError('flora and fedex require parameters with adapters.')
    return comms.bill()

  def update(mean, _, params=None, *, comm, weight, **__):
    mean = comm.announce(mean)
    adapters = list(filter(lora.is_adapter, _leaves(mean)))
    sizes = [(comms.nbytes((x.a, x.b)), comms.nbytes(x.base)) for x in adapters]
    whole = comms.bill(down=comms.nbytes(mean) - comms.nbytes(adapters))
    count = comm.total((weight > 0).astype(jnp.uint32))
    down = size(sizes, count, comm.slots(weight.size)[1])
    return mean, whole._replace(down=whole.down + down.astype(jnp.uint32))

  return chain.Link(init, update, chain.SHARED, broadcasts=True)


def _stacked(sizes, count, slots):
  factors = sum(factors for factors, _ in sizes)
  comms.bill(down=slots * factors)  # raises if they may be too many
  return count * factors


def _residual(sizes, count, slots):
  comms.bill(down=sum(map(sum, sizes)))
  smaller = lambda factors, dense: jnp.where(
    count <= dense // factors, count * factors, dense
  )
  return sum(factors + smaller(factors, dense) for factors, dense in sizes)


_leaves = functools.partial(jax.tree.leaves, is_leaf=lora.is_adapter)
_map = functools.partial(jax.tree.map, is_leaf=lora.is_adapter)
