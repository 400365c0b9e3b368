"""Rounds over a real transport: messages in place of simulated clients.

`wire` encodes payloads as bytes with a checksum, `client` makes a client's
message, and `server` collects the messages of a round and plays the server's
part. The transport itself is the caller's.
"""

from fl_sketch.messaging import client, server, wire

__all__ = ['client', 'server', 'wire']
