"""PyTorch models of transformers, whose logits ours are compared with."""

import numpy as np
import pytest


def libraries():
  """(torch, transformers); skips the test without them."""
  reason = 'transformers and torch are not installed: nothing to compare with'
  names = 'torch', 'transformers'
  return [pytest.importorskip(name, reason=reason) for name in names]


def logits(build, inputs, folder, scale=1.0):
  """Logits of a model with normal weights, which is saved in a folder.

  Args:
    build: transformers -> the model.
    inputs: torch -> its arguments.
    folder: gets model.safetensors and config.json.
    scale: of the weights.
  """
  torch, transformers = libraries()
  torch.manual_seed(0)
  model = build(transformers)
  with torch.no_grad():
    for weight in model.parameters():
      weight.copy_(scale * torch.randn_like(weight))
    expected = model.eval()(**inputs(torch)).logits.numpy()
  model.save_pretrained(folder)
  rest = tuple(range(expected.ndim - 1))
  assert np.ptp(expected, axis=rest).min() > 1e-2  # samples and places differ
  return expected
