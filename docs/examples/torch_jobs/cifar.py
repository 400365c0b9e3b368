"""The model, data and training that both jobs have, in PyTorch alone."""

import os

import numpy as np
import torch
from torch import nn
from torch.nn import functional

SEED = int(os.environ.get('JOB_SEED', '0'))
BATCH = 32


class Net(nn.Module):
  """Two convolutions and three dense layers: 62,006 numbers."""

  def __init__(self):
    """Draw its weights by the seed."""
    torch.manual_seed(SEED)
    super().__init__()
    self.conv1, self.conv2 = nn.Conv2d(3, 6, 5), nn.Conv2d(6, 16, 5)
    self.fc1 = nn.Linear(16 * 5 * 5, 120)
    self.fc2, self.fc3 = nn.Linear(120, 84), nn.Linear(84, 10)

  def forward(self, x):
    """Return the logits."""
    x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
    x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
    x = functional.relu(self.fc1(torch.flatten(x, 1)))
    return self.fc3(functional.relu(self.fc2(x)))


def load(name, part=slice(None)):
  """Return images and labels of a part of 'train' or 'test'."""
  with np.load(os.environ['JOB_DATA']) as data:
    x, y = data[f'x_{name}'][part], data[f'y_{name}'][part]
  return torch.from_numpy(x).permute(0, 3, 1, 2), torch.from_numpy(y).long()


def pixels(x):
  """Return images as floats between -1 and 1."""
  return x.float() / 127.5 - 1


def train(net, data, samples, draw):
  """Train on samples that a seed and `draw`, an integer, choose."""
  x, y = data
  order = torch.Generator().manual_seed(1000 * SEED + draw)
  optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
  for batch in torch.randperm(len(x), generator=order)[:samples].split(BATCH):
    optimizer.zero_grad()
    functional.cross_entropy(net(pixels(x[batch])), y[batch]).backward()
    optimizer.step()


def accuracy(net, data):
  """Return the share of samples that are classified rightly."""
  x, y = data
  with torch.no_grad():
    return (net(pixels(x)).argmax(1) == y).float().mean().item()
