"""Engines that carry the rounds of a run to real sites."""
