"""Chen, Li, Banerjee (arXiv:2411.06770) as functions.

`rates` has the convergence bounds of SAFL, `constants` and `corollaries` what
enters them and what follows, `gradients` bounds on gradient norms, and
`monitor` measures the quantities of the bounds during training.
"""

from .rates import (
  check_rate,
  constant_rate,
  corrected_budget,
  decaying_rate,
  printed_budget,
)

__all__ = [
  'check_rate', 'constant_rate', 'corrected_budget', 'decaying_rate',
  'printed_budget',
]  # fmt: skip
