"""Configs of the attacks of Song et al."""

from ...common.config_fields import attack as attack, is_quick as is_quick
