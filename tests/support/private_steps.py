"""Private local work on the batches of `cases`."""

from fl_sketch.local import private_sgd


def private_steps(loss_fn, least=-1.0, expected_batch=4):
  """Hp -> work on (x, y), without x[..., 0] that is not above `least`."""

  def work(hp):
    steps = private_sgd(
      lambda params, batch: loss_fn(params, (batch['x'], batch['y'])),
      hp.client_lr,
      hp.clip_norm,
      hp.noise_multiplier,
      expected_batch=expected_batch,
    )

    def local(params, batches, key, correction):
      x, y = batches
      masked = {'x': x, 'y': y, 'mask': x[..., 0] > least}
      return steps(params, masked, key, correction)

    return local

  return work
