"""Configs of the quadratics of Das et al."""

from ...common.config_fields import new as new
