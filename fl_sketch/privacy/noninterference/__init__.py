"""Check that clients' data leave a program by noise alone, from its jaxpr."""

from fl_sketch.privacy.noninterference.flow import InterferenceError
from fl_sketch.privacy.noninterference.proof import check, check_round, trust
from fl_sketch.privacy.noninterference.releases import Shown

__all__ = ['InterferenceError', 'Shown', 'check', 'check_round', 'trust']
