"""Record what a private client sends, so that it answers no round twice.

Asked again in a round a client draws the same noise: two answers from different
models would differ by what the noise hides.
"""

import hashlib
import pathlib

from fl_sketch.runs import same_run
from fl_sketch.utils import files


class Answers:
  """Digests of the answers in the last round that a client has answered.

  They are in the file of `path`, or in memory alone without one. WorkdirError:
  the file is damaged.
  """

  def __init__(self, path: pathlib.Path | None = None):
    self._path = path
    record = (path and same_run.read(path, 'a record of answers')) or {}
    self.round: int = record.get('round', -1)
    self._sent: dict[str, str] = record.get('sent', {})  # by exchange

  def allows(self, number: int, stage: int, body: bytes) -> bool:
    """Record an answer before it is sent; return whether it may be sent.

    It may not in an earlier round, or if another one was sent in this exchange.
    """
    if number < self.round:
      return False
    sent = self._sent if number == self.round else {}
    digest, name = hashlib.sha256(body).hexdigest(), f'{stage}'
    if name in sent:
      return sent[name] == digest
    sent = sent | {name: digest}
    if self._path is not None:  # first, as a full disk may refuse it
      record = {'round': number, 'sent': sent}
      files.write(self._path, record, durable=True)
    self.round, self._sent = number, sent
    return True
