"""Reference pages: algorithms, sketches, codecs, config fields, commands."""

import pathlib


def write(folder: pathlib.Path):
  """Writes all of them."""
