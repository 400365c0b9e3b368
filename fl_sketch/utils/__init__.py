"""Host helpers that every other package may use.

None of them imports a sketch, a round or a config.
"""

from fl_sketch.utils import lazy

__version__ = '0.1.0'  # in the lowest layer, so that files can record it
__getattr__ = lazy.attach(__name__)
