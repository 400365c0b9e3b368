"""Gradient leakage: who sees what a client sends looks for what it has.

`reconstruct` searches for inputs that would have sent what was observed;
`views` says what a client with given inputs sends, `objectives` how far that is
from what was observed, `searches` how to look. `closed_form` needs no search.
`defences` are what clients may do about it, `scores` how well an attack went.
"""

from fl_sketch.attacks import defences, scores
from fl_sketch.attacks.closed_form import dense_input, last_layer_label
from fl_sketch.attacks.reconstruction import Reconstruction, reconstruct
from fl_sketch.attacks.views import view

__all__ = [
  'Reconstruction',
  'defences',
  'dense_input',
  'last_layer_label',
  'reconstruct',
  'scores',
  'view',
]
