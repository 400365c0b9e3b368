"""Gradient leakage: reconstructing a client's inputs from what it sends.

`reconstruct` searches for inputs whose message equals the observed one: `views`
computes the message of given inputs, `objectives` its distance to the observed
one, and `searches` has the optimisers; `closed_form` needs no search.
`defences` perturb messages before they are sent; `scores` rate an attack.
"""

from fl_sketch.attacks import defences, scores
from fl_sketch.attacks.closed_form import dense_input, last_layer_label
from fl_sketch.attacks.reconstruction import Reconstruction, reconstruct
from fl_sketch.attacks.views import view

__all__ = [
  'Reconstruction', 'defences', 'dense_input', 'last_layer_label',
  'reconstruct', 'scores', 'view',
]  # fmt: skip
