"""Files of sites, their sockets, and comparisons with the simulation."""

import contextlib
import threading

import chex
from fl_sketch.runs import loaded
from fl_sketch.sites import relay, site_process
import harness
import numpy as np

# Payloads of many bytes.
LARGE = {
  'model_options': {'widths': (1600,)},
  'sketch': {'kind': 'block_srht', 'size': 100_000},
}
WIDE = {
  'table': LARGE,
  'bits': LARGE | {
    'codec': {'kind': 'eden', 'rotate': False},
    'downlink_codec': {'kind': 'eden'},
  },
}  # fmt: skip


def write_config(path, fields):
  """Writes a config that sets fields."""
  path.write_text(
    f"from configs import new\n\ndef get_config(variant=''):\n"
    f'  c = new()\n  c.update({fields!r})\n  return c\n'
  )


def write_data(exp, folder):
  """Writes FOLDER/N/train.npz for each client N."""
  for i in range(exp.config.population):
    (folder / f'{i}').mkdir(parents=True, exist_ok=True)
    held = exp.partition.client(i)
    arrays = {k: x[held] for k, x in exp.data.items()}
    np.savez(folder / f'{i}' / 'train.npz', **arrays)


def same_rows(got, want, atol=1e-6, but=()):
  """Checks that the rows of two runs are equal up to rounding."""
  for x, y in zip(harness.rows(got), harness.rows(want), strict=True):
    assert x.keys() == y.keys()
    for name in y.keys() - {*but}:
      np.testing.assert_allclose(x[name], y[name], 1e-5, atol, err_msg=name)


def same_run(got, want, atol=1e-6, but=()):
  """Checks that parameters and rows of two runs are equal up to rounding."""
  params = (loaded.load(x).params for x in (got, want))
  chex.assert_trees_all_close(*params, rtol=0, atol=atol)
  same_rows(got, want, atol, but)


def serve(handle, path):
  """Answers requests on a socket of this path, in a thread without an end."""
  listens = threading.Event()

  def run():
    with site_process.listening(path) as listener:
      listens.set()
      site_process.serve(handle, listener)

  threading.Thread(target=run, daemon=True).start()
  assert listens.wait(30)


class Sockets:
  """Workers that listen on sockets, {site: path}, as a transport."""

  def __init__(self, paths):
    self.paths = paths

  def sites(self):
    return sorted(self.paths)

  def ask(self, requests, timeout):
    for name, request in requests.items():
      with contextlib.suppress(ConnectionError):
        yield name, relay.ask(request, self.paths[name], timeout)
