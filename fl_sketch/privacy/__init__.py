"""Differential privacy: accounting, private mechanisms, and audits.

Modules of its packages can be imported from here, too. `check` shows of a
function that clients' data leave it by noise alone (`noninterference`).
"""

import pkgutil
from typing import TYPE_CHECKING

from fl_sketch.utils import lazy

if TYPE_CHECKING:
  from fl_sketch.privacy import accounting, auditing, mechanisms
  import fl_sketch.privacy.noninterference as noninterference
  from fl_sketch.privacy.noninterference import check

__all__ = ['accounting', 'auditing', 'check', 'mechanisms', 'noninterference']

_modules = {
  part: [x.name for x in pkgutil.iter_modules([f'{__path__[0]}/{part}'])]
  for part in ('accounting', 'auditing', 'mechanisms')
}
__getattr__ = lazy.attach(__name__, noninterference=('check',), **_modules)
