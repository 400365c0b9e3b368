"""Configs of the quadratics of Das et al."""

from ...common.config_fields import (
  is_quick as is_quick,
  new as new,
  words as words,
)
