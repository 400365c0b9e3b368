"""Configs of Chen et al.'s figures with the paper's models."""

from ...common.config_fields import new as new, paper as paper, words as words
