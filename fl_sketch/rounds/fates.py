"""What became of each client in a round, and what a byzantine one sends."""

from collections.abc import Callable

from fl_sketch.utils.types import Key, Params

NOT_SELECTED, PARTICIPATED, STRAGGLER, DROPPED_OUT = range(4)
# (pseudo-gradient, key) -> the update that a byzantine client sends.
Behaviour = Callable[[Params, Key], Params]
