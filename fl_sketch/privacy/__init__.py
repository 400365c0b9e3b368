"""Differential privacy: accounting, private mechanisms, and audits.

Modules of its packages can be imported from here, too. `check` shows of a
function that clients' data leave it by noise alone (`noninterference`).
"""

from typing import TYPE_CHECKING

from fl_sketch.utils import lazy

if TYPE_CHECKING:
  from fl_sketch.privacy import accounting, auditing, mechanisms
  import fl_sketch.privacy.noninterference as noninterference
  from fl_sketch.privacy.noninterference import check

__all__ = ['accounting', 'auditing', 'check', 'mechanisms', 'noninterference']

_MODULES = {
  'accounting': 'allocation calibration correlation events gaussian groups '
  'hypothesis_tests losses profiles statements step_losses tilted_losses types',
  'auditing': 'audit canaries canary_scores one_run one_run_guesses '
  'summation_attack',
  'mechanisms': 'aggregation banded_noise chacha20 clipping discrete_gaussian '
  'generators given_noise grid private_metrics quantile_bound '
  'secure_aggregation',
}
__getattr__ = lazy.attach(
  __name__, noninterference=('check',),
  **{part: names.split() for part, names in _MODULES.items()},
)  # fmt: skip
