"""The channel of updates: sketch, compression, privacy, robust mean."""

from typing import NamedTuple

from fl_sketch import codecs, sketches
from fl_sketch.rounds import aggregation, chain, error_feedback, transforms as t
from fl_sketch.rounds.robust import Rule


class Channel(NamedTuple):
  """From the clients' updates to an estimate of their mean, through tables.

  An algorithm whose factory has an argument ``channel: Channel`` takes these
  fields as options. Its `links` are `encode`, `mean`, `broadcast` and `decode`.
  """

  sketch: sketches.Sketch
  codec: codecs.Codec | None = None  # of the clients' tables
  downlink_codec: codecs.Codec | None = None  # of the mean table
  privacy: aggregation.PrivateMean | None = None  # bounds and noise on tables
  robust: Rule | None = None  # in place of the mean
  hash_rounds: int | None = None  # that share one R; None: 1, 0: all

  def links(self) -> tuple[chain.Link, ...]:
    """Build all links, in their order."""
    return self.encode(), self.mean(), *self.broadcast(), self.decode()

  def encode(self) -> chain.Link:
    """Build the link of each client: update -> table."""
    return t.sketch(self.sketch, hash_rounds=self.hash_rounds)

  def mean(self) -> chain.Link:
    """Build the uplink: the clients' tables -> their mean."""
    return aggregation.mean_over_cohort(
      privacy=self.privacy, robust=self.robust, codec=self.codec
    )

  def broadcast(self) -> tuple[chain.Link, ...]:
    """Build the downlink: encode the mean table, which both sides decode."""
    return error_feedback.broadcast(self.downlink_codec, self.sketch.zero_table)

  def decode(self) -> chain.Link:
    """Build the link of server and clients: table -> estimate."""
    return t.desketch(self.sketch, hash_rounds=self.hash_rounds)
