"""The Hessian of any model: products, spectra and advice.

`spectrum` estimates eigenvalue densities by stochastic Lanczos quadrature,
`adviser` recommends a learning rate, `during_training` records spectra over a
run, and `pseudo_hessian` is the matrix of Song et al.
"""
