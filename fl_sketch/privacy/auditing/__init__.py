"""Audits that attack private rounds and bound epsilon from below."""

from fl_sketch.utils import lazy

__all__ = [
  'audit', 'canaries', 'canary_scores', 'noise_law', 'one_run',
  'one_run_guesses', 'summation_attack',
]  # fmt: skip

__getattr__ = lazy.attach(__name__)
