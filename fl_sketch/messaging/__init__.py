"""Rounds over a real transport: messages in place of simulated clients.

The transport itself is the caller's.
"""

from fl_sketch.messaging import client, server, wire

__all__ = ['client', 'server', 'wire']
