"""The theory of four papers as functions, and measurements of its quantities.

`song`, `das`, `haddadpour` and `chen` have the statements of each paper as
functions on the host, their conditions checked unless check=False, of numbers
and arrays (`evaluation.formula`); `catalog.table()` lists them with the
evidence for each form. `tails` bounds inner products under
a random operator and `embeddings` measures them; `compression` has the noise of
few-bit tables and what it does to an adaptive server. `curvature` estimates the
Hessian's spectrum of the user's own model and recommends learning rates.
"""

from fl_sketch.utils import lazy

__all__ = [
  'catalog', 'chen', 'compression', 'curvature', 'das', 'embeddings',
  'evaluation', 'haddadpour', 'song', 'tails',
]  # fmt: skip

__getattr__ = lazy.attach(__name__)
