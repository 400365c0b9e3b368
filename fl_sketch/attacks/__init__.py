"""Gradient leakage: reconstructing a client's inputs from what it sends.

`reconstruct` searches for inputs whose message, a `view`, equals the observed
one: `objectives` has distances of messages, and the optimisers.
`defences` perturb messages before they are sent; `scores` rate an attack.
"""

from fl_sketch.attacks import defences, scores
from fl_sketch.attacks.reconstruction import (
  Reconstruction,
  dense_input,
  last_layer_label,
  reconstruct,
  view,
)

__all__ = [
  'reconstruct', 'view', 'Reconstruction', 'dense_input', 'last_layer_label',
  'defences', 'scores',
]  # fmt: skip
