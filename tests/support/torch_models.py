"""PyTorch and transformers, whose logits ours are compared with."""

import pytest


def libraries():
  """(torch, transformers); skips the test without them."""
  reason = 'transformers and torch are not installed: nothing to compare with'
  names = 'torch', 'transformers'
  return [pytest.importorskip(name, reason=reason) for name in names]
