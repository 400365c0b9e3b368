"""Rounds over a real transport: messages in place of simulated clients.

The transport itself is the caller's.
"""

from fl_sketch.messaging import client, requests, server, wire

__all__ = ['client', 'requests', 'server', 'wire']
