"""A client with a PyTorch model: NumPy encodes what it sends, without JAX."""

import os
import pathlib
import socket
import struct

from fl_sketch.sites import numpy_codecs
import numpy as np
import numpy_client
import torch


class Model(torch.nn.Module):
  """The library's mlp: widths of the hidden layers, and of the output."""

  def __init__(self, inputs, *widths):
    """Build its layers."""
    super().__init__()
    pairs = zip((inputs, *widths), widths, strict=False)
    self.layers = torch.nn.ModuleList(torch.nn.Linear(*x) for x in pairs)

  def forward(self, x):
    """Return the logits."""
    for layer in self.layers[:-1]:
      x = torch.relu(layer(x))
    return self.layers[-1](x)

  def leaves(self):
    """List the parameters in the order of the run's: bias, then kernel."""
    return [
      x for one in self.layers for x in (one.bias.data, one.weight.data.T)
    ]

  def read(self):
    """Return all parameters in a row, f32[d]."""
    return torch.cat([x.reshape(-1) for x in self.leaves()])

  def load(self, vector):
    """Set all parameters from f32[d]."""
    sizes = [x.numel() for x in self.leaves()]
    for x, part in zip(self.leaves(), vector.split(sizes), strict=True):
      x.copy_(part.reshape(x.shape))


def local_sgd(model, batches, rate):
  """Return work(parameters, round) -> (update, loss) of plain SGD.

  `batches` is round -> pairs (x, labels), one a local step.
  """

  def work(params, number):
    start, losses = torch.tensor(params), []
    model.load(start)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for x, labels in batches(number):
      optimizer.zero_grad()
      loss = torch.nn.functional.cross_entropy(model(x), labels)
      loss.backward()
      optimizer.step()
      losses.append(loss.item())
    return (start - model.read()).numpy(), np.mean(losses)

  return work


def serve(handle, path=None):
  """Answer the requests that the engine's client hands over, one by one."""
  path = path or os.environ['FL_SKETCH_SITE']
  with socket.socket(socket.AF_UNIX) as listener:
    pathlib.Path(path).unlink(missing_ok=True)  # of a process that has ended
    listener.bind(path)
    listener.listen()
    while True:
      connection, _ = listener.accept()
      with connection, connection.makefile('rwb') as file:
        (size,) = struct.unpack('<Q', file.read(8))
        reply = handle(file.read(size))
        file.write(struct.pack('<Q', len(reply)) + reply)


def client(about, seed, model, batches, rate, size):
  """Return a client of a run of one-bit tables of `block_srht`."""
  return numpy_client.Client(
    about, seed, model.read().numel(),
    local_sgd(model, batches, rate),
    lambda key, x: numpy_client.block_srht(key, x, size),
    numpy_codecs.eden(rotate=False).encode,
  )  # fmt: skip
