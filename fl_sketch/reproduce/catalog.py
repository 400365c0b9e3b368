"""Every study by its name, in the order of the papers."""

import difflib

from fl_sketch.reproduce import study
from fl_sketch.reproduce.chen import (
  dimension as chen_dimension,
  figures as chen,
  headline as chen_headline,
  spectra as chen_spectra,
)
from fl_sketch.reproduce.das import (
  images as das_images,
  quadratics as das_quadratics,
)
from fl_sketch.reproduce.haddadpour import (
  drift as haddadpour_drift,
  figures as haddadpour,
  tables as haddadpour_tables,
)
from fl_sketch.reproduce.song import figures as song

_MODULES = (
  song,
  das_quadratics,
  das_images,
  haddadpour,
  haddadpour_tables,
  haddadpour_drift,
  chen,
  chen_headline,
  chen_spectra,
  chen_dimension,
)
STUDIES: dict[str, study.Study] = {
  s.name: s for module in _MODULES for s in module.STUDIES
}


def find(name: str) -> study.Study:
  """The study of this name.

  Raises:
    ValueError: there is none; the message has the nearest name.
  """
  if name not in STUDIES:
    near = difflib.get_close_matches(name, STUDIES, n=1, cutoff=0.4)
    hint = f' Did you mean {near[0]!r}?' if near else ''
    raise ValueError(f'Expected a study of --list, not {name!r}.{hint}')
  return STUDIES[name]
