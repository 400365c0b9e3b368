"""SAFL: clients send sketches; the server steps by an adaptive optimizer."""

from typing import Annotated

from fl_sketch.algorithms import server_optimizers
from fl_sketch.algorithms.channel import Channel
from fl_sketch.local import Task
from fl_sketch.rounds import chain, transforms as t
from fl_sketch.rounds.algorithm import Algorithm, Hyper, federated
from fl_sketch.utils import fields
import jax
import jax.numpy as jnp
import optax


def safl(
  task: Task,
  hp: Hyper,
  channel: Channel,
  *,
  server_optimizer: server_optimizers.ServerOptimizer = 'adam',
  schedule: optax.Schedule | None = None,
  client_momentum: fields.Share = 0.0,
  clip: Annotated[str, fields.choice(('client', 'server'))] | None = None,
) -> Algorithm:
  r"""Sketch, average, de-sketch, then any optax server optimizer.

  :math:`D = R_t^\top \frac1n \sum_c R_t \Delta_c`, and
  :math:`x \leftarrow x - \kappa\,\mathrm{ADA}(D)`; server and clients compute
  the moments from D. With `sketches.layerwise` every layer has its own table.

  With ``client_momentum`` a client sketches the average :math:`m_c \leftarrow
  \beta m_c + (1 - \beta) \Delta_c` of its updates, divided by :math:`1 -
  \beta^t`; set b1 to 0, since momentum on both sides doubles the lag.

  ``clip`` is for heavy-tailed noise: 'client' bounds every
  :math:`\|\Delta_c\|` by ``clip_norm`` before the sketch, 'server' bounds
  :math:`\|D\|` by ``clip_norm`` :math:`\sqrt{1 + \alpha}`.

  Options:
    server_optimizer: ADA, as of `server_step`.
    client_momentum: beta; 0 keeps no state on clients. Ours, not the paper's.
    clip: None, 'client' or 'server'.

  Symbols: client_lr eta_t; server_lr kappa; sketch R, sk and desk; its size b;
  b1, b2, eps beta_1, beta_2, epsilon; clip_norm tau.

  Departures: we decode in the round that encoded; the printed client loop
  decodes a mean of the next one. 'amsgrad' is Algorithm 2, without bias
  correction; the paper's experiments have 'adam'. The sketch's noise lifts
  second moments to :math:`\|\Delta\|^2 / b`: keep eps well below
  :math:`\|\Delta\| / \sqrt b`. ``clip`` reconstructs SACFL, which the paper's
  abstract names and no text prints; 'client' is the per-round clipping of
  FAT-Clipping (Yang et al., arXiv:2210.00690).

  Raises ValueError if ``clip`` or ``client_momentum`` is set with ``privacy``,
  or ``clip`` without ``clip_norm`` or, on the server, a stated alpha.

  Source: Chen, Li, Banerjee, arXiv:2411.06770, Algorithms 1 and 2.
  """
  if channel.privacy is not None and (clip is not None or client_momentum):
    raise ValueError(
      f'Private safl supports neither {clip=} nor {client_momentum=}; remove '
      'them.'
    )
  if clip is not None and hp.clip_norm is None:
    raise ValueError(f'{clip=} requires clip_norm; set it.')
  on_client, on_server = [], []
  if clip == 'client':
    on_client.append(t.per_client(_clip(lambda _: hp.clip_norm)))
  if client_momentum:
    on_client.append(t.per_client(optax.ema(client_momentum)))
  if clip == 'server':
    alpha = channel.sketch.properties.alpha
    if alpha is None:
      raise ValueError("clip='server' requires a sketch that states its alpha.")
    raised = lambda params: hp.clip_norm * (1 + alpha(params)) ** 0.5
    on_server.append(_clip(raised))
  return federated(
    task.steps(hp),
    *on_client,
    *channel.links(),
    *on_server,
    server_optimizers.server_step(hp, server_optimizer, schedule),
  )


def _clip(bound) -> chain.Link:
  """Scale updates down to a norm of bound(params), f32[], at most."""

  def clip(updates, params, **_):
    norm = optax.tree.norm(updates)
    scale = jnp.minimum(1, bound(params) / jnp.maximum(norm, 1e-38))
    return jax.tree.map(lambda x: (x * scale).astype(x.dtype), updates)

  return t.stateless(clip)
