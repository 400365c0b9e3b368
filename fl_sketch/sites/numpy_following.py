"""A model that receivers follow, and their updates, in NumPy alone.

A sender compresses the difference between a new model and what its receivers
have, which holds all that earlier differences have lost. Who has missed some
gets what it lacks, or the whole model where that is fewer bytes. A receiver
trains what it has, and answers with the compressed difference to that, which
the sender adds to its own model: what receivers lack yet is not lost.
"""

from collections.abc import Sequence
import zlib

from fl_sketch.sites.numpy_updates import Arrays, Updates, is_compressed, opened
from fl_sketch.sites.sealed import PayloadError
import numpy as np

_OF_DIFFERENCES, _OF_WHOLE = 0xFFFFFFFE, 0xFFFFFFFF  # senders of messages down
_WHOLE = Updates('dense')  # no compression


def difference(new: Arrays, old: Arrays) -> dict[str, np.ndarray]:
  """Return new - old of floats, in 32 or 64 bits; else the arrays of new.

  An array that old lacks is that of new. ValueError: a shape is not that of
  old.
  """
  for k in new.keys() & old.keys():
    if new[k].shape != old[k].shape:
      raise ValueError(
        f'{k} has shape {new[k].shape}, but {old[k].shape} in the model.'
      )
  kind = lambda x: np.promote_types(x.dtype, np.float32)
  less = lambda x, y: np.asarray(np.subtract(x, y, dtype=kind(x)))
  return {
    k: less(x, old.get(k, 0)) if _is_float(x) else x for k, x in new.items()
  }


def moved(old: Arrays, by: Arrays) -> dict[str, np.ndarray]:
  """Add differences to a model: old + by of floats, in the dtypes of old.

  Other arrays are those of by. What is compressed is rounded to 32 bits, as it
  is where it travels whole.
  """
  made = dict(by)
  for k in by.keys() & old.keys():
    if _is_float(by[k]):
      y = old[k] + by[k]
      y = np.asarray(y, np.float32 if is_compressed(y) else y.dtype)
      made[k] = np.asarray(y, old[k].dtype if _is_float(old[k]) else y.dtype)
  return made


def _is_float(x) -> bool:
  return x.dtype.kind == 'f'


def _layout(arrays):
  kind = lambda x: x.dtype if is_compressed(x) else None  # counts are averaged
  return {k: (kind(x), x.shape) for k, x in arrays.items()}


def nbytes(arrays: Arrays) -> int:
  """Return the bytes of arrays that are not compressed."""
  return sum(x.nbytes for x in arrays.values())


def noise(sent: Arrays, decoded: Arrays) -> float:
  """Return ||decoded - sent|| / ||sent|| of what is compressed; 0 of zeros."""
  total = error = 0.0
  for k, x in sent.items():
    if is_compressed(x):
      x = np.asarray(x, np.promote_types(x.dtype, np.float32))
      total += float(np.vdot(x, x))
      off = x - decoded[k]
      error += float(np.vdot(off, off))
  return (error / (total or 1)) ** 0.5


class Publisher:
  """Sends each new model as a compressed difference to what receivers have.

  The last model is `model`; receivers have `arrays`.

  Args:
    compressor: of what receivers answer, a text as of `Updates`.
    down: of the differences that are sent; None is `compressor`.
    seed: of the public random draws.

  >>> publisher, follower = Publisher('eden(bits=2)'), Follower('eden(bits=2)')
  >>> for scale in 1.0, 2.0:
  ...   publisher.publish({'w': scale * np.ones(5000)})
  ...   model = follower.receive(publisher.messages(follower.version))
  >>> message = follower.reply({'w': np.full(5000, -0.5)}, sender=7)
  >>> bool(publisher.read(message)['w'].mean() < -0.4)
  True

  ValueError: `down` has a sketch, whose errors would add up.
  """

  def __init__(
    self, compressor: str, *, down: str | None = None, seed: int = 0
  ):
    self._up, self._down = _both(compressor, down, seed)
    self.version, self.model, self.arrays = -1, {}, {}
    self.noise = 0.0  # of the last difference
    self._last = -1  # checksum of the last model
    self._whole = b''  # the message with all of the version
    self._differences: dict[int, bytes] = {}  # by the version that they make

  def publish(self, arrays: Arrays):
    """Take a model: a new version for receivers, if it has changed."""
    self.model, checksum = arrays, _checksum(arrays)
    if checksum == self._last:
      return
    version = self.version + 1
    if _layout(arrays) != _layout(self.arrays):  # all receivers get it whole
      to = {'number': version, 'sender': _OF_WHOLE}
      self._whole, decoded = _WHOLE.encode_decoded(arrays, **to)
      self.arrays = {k: np.array(x) for k, x in decoded.items()}
      self._differences = {}
    else:
      by = difference(arrays, self.arrays)
      to = {'number': version, 'sender': _OF_DIFFERENCES}
      self._differences[version], decoded = self._down.encode_decoded(by, **to)
      self.noise, self._whole = noise(by, decoded), b''
      self.arrays = moved(self.arrays, decoded)
      while sum(map(len, self._differences.values())) > nbytes(self.arrays):
        del self._differences[min(self._differences)]
    self.version, self._last = version, checksum

  def messages(self, known: int) -> list[bytes]:
    """Return what a receiver needs that has version `known`; -1 is none."""
    wanted = range(known + 1, self.version + 1)
    if known >= 0 and all(n in self._differences for n in wanted):
      return [self._differences[n] for n in wanted]
    if not self._whole:
      to = {'number': self.version, 'sender': _OF_WHOLE}
      self._whole = _WHOLE.encode(self.arrays, **to)
    return [self._whole]

  def read(self, message: bytes) -> dict[str, np.ndarray]:
    """Return what a receiver's arrays have moved by, to add to `model`.

    PayloadError: they are not of the last model, of other shapes, or too many.
    """
    if (update := opened(message)).number != self.version:
      raise PayloadError(
        f'An update of version {update.number} came for version {self.version}.'
      )
    size = lambda arrays: sum(x.size for x in arrays.values())
    if size(update.like) > 4 * size(self.arrays):  # which a sketch could claim
      raise PayloadError('An update has more than 4 times the model.')
    own = {k: self.arrays.get(k, x) for k, x in update.like.items()}
    return self._up.decode_opened(update, like=own)


class Follower:
  """Rebuilds the models of a `Publisher`, and compresses the replies to it.

  It has the arguments of its publisher.
  """

  def __init__(
    self, compressor: str, *, down: str | None = None, seed: int = 0
  ):
    self.up, self._down = _both(compressor, down, seed)
    self.version, self.arrays = -1, {}
    self.noise = 0.0  # of the last reply

  def receive(
    self, messages: Sequence[bytes], version: int | None = None
  ) -> dict[str, np.ndarray]:
    """Return the model of the last message.

    PayloadError: a message is damaged, or not of the version after ours; or the
    last is not of `version`, if that is given.
    """
    for update in map(opened, messages):
      if update.sender == _OF_WHOLE:
        self.arrays = _WHOLE.decode_opened(update, like=update.like)
      elif self.arrays and update.number <= self.version:
        continue  # sent again, as our last reply did not arrive
      elif not self.arrays or update.number != self.version + 1:
        raise PayloadError(
          f'Version {update.number} of the model was sent to a receiver of '
          f'version {self.version}.'
        )
      else:
        by = self._down.decode_opened(update, like=self.arrays)
        self.arrays = moved(self.arrays, by)
      self.version = update.number
    if version not in (None, self.version):
      raise PayloadError(
        f'This receiver has version {self.version} of the model, not {version}.'
      )
    return self.arrays

  def reply(self, by: Arrays, *, sender: int) -> bytes:
    """Encode what arrays have moved by, the `difference` to the model."""
    to = {'number': self.version, 'sender': sender}
    message, decoded = self.up.encode_decoded(by, **to)
    self.noise = noise(by, decoded)
    return message


def _checksum(arrays) -> int:
  total = 0
  for name, x in arrays.items():
    total = zlib.crc32(f'{name} {x.dtype} {x.shape}'.encode(), total)
    total = zlib.crc32(
      np.ascontiguousarray(x).reshape(-1).view('u1').data, total
    )
  return total


def _both(compressor, down, seed):
  up, down = (Updates(x, seed=seed) for x in (compressor, down or compressor))
  if down.compressor.has_sketch:
    raise ValueError(
      f'{compressor=} has a sketch; choose another way back, such as '
      "down='eden(bits=2)'."
    )
  down.feedback = False  # its differences have what earlier ones have lost
  return up, down
