"""Grids of gradient-leakage attacks on sketches, section 7 of Song et al.

`settings` has the fields of a grid's config, `victims` the attacked models and
batches; `campaign` runs every attack, and `report` makes tables and figures.
"""

from . import campaign, report, settings, victims

__all__ = ['campaign', 'report', 'settings', 'victims']
