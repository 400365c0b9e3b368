"""Configs of the comparison on MNIST."""

from ...common.config_fields import new as new
