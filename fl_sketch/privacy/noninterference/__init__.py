"""Check that clients' data leave a program by noise alone, from its jaxpr."""

from fl_sketch.privacy.noninterference.flow import InterferenceError
from fl_sketch.privacy.noninterference.proof import Proof, check, check_round

__all__ = ['InterferenceError', 'Proof', 'check', 'check_round']
