"""The Hessian of any model: products, spectra and advice.

`spectrum` estimates eigenvalue densities by stochastic Lanczos quadrature,
`adviser` recommends a learning rate, `during_training` records spectra over a
run, and `pseudo_hessian` is the matrix of Song et al.
"""

from fl_sketch.utils import lazy

__all__ = [
  'adviser', 'during_training', 'pseudo_hessian', 'spectrum',
  'spectrum_report',
]  # fmt: skip

__getattr__ = lazy.attach(__name__)
