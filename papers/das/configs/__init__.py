"""Configs of the quadratics and of Table 1 of Das et al."""

from ...common.config_fields import (
  is_quick as is_quick,
  new as new,
  paper as paper,
  words as words,
)
