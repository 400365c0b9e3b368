"""Runs over sites, whose messages and files are compared with the table."""

import functools
import json

from fl_sketch import models
from fl_sketch.runs.config import Config
from fl_sketch.sites import federation, own_data, site, wire
from fl_sketch.sites.transport import LocalSites
import jax
import numpy as np
import published
import pytest

FIELDS = {
  'dataset': 'digits', 'model': 'faint_pixels', 'population': 2, 'cohort': 2,
  'rounds': 2, 'local_steps': 2, 'batch_size': 4, 'eval_every': 1,
  'clip_norm': 1.0, 'noise_multiplier': 1.0, 'noise_seed': 3, 'delta': 1e-5,
  'standardize': False, 'algorithm': 'dp_fedavg', 'client_lr': 0.1,
}  # fmt: skip
POISSON = {'sampling': 'poisson'}
SAMPLES = {
  'algorithm': 'private_iterative_sketching', 'batch_order': 'poisson',
  'sketch': {'kind': 'block_cyclic', 'size': 64},
}  # fmt: skip
CASES = {
  'local-hidden': {'trust': 'local'},
  'central-hidden': POISSON | {'public_metrics': 'hidden'},
  'central-private': POISSON | {'public_metrics': 'private'},
  'central-all': POISSON | {'public_metrics': 'all'},
  'samples': SAMPLES | {'public_metrics': 'hidden'},
}


def faint_pixels(num_classes):
  """An update of it is 0 on the grid."""

  def apply(w, x, key):
    y = x.reshape(len(x), -1) @ w
    fixed = jax.lax.stop_gradient(y)
    return fixed + 1e-30 * (y - fixed)

  return models.Model(lambda key, x: np.eye(64, num_classes, dtype='f4'), apply)


def answer(client, found, message):
  """Answer a request; add (name in the table, part) -> what is sent."""
  reply = client.handle(message)
  sent = wire.decode_reply(reply)
  parts = {('requests', ''): message}
  if sent.kind == wire.ReplyKind.JSON:
    about = json.loads(bytes(sent.body))
    parts = {('greetings', k): x for k, x in about.items()}
  else:
    size = 4 * len(wire.NO_METRICS)
    parts['losses', ''] = bytes(sent.body[:size])
    parts['payloads', ''] = bytes(sent.body[size:])
  for name, x in parts.items():
    found.setdefault(name, []).append((sent.client, x))
  return reply


@pytest.mark.nightly
@pytest.mark.parametrize('name', CASES)
def test_only_what_the_table_names_tells_of_sites(name, tmp_path, capfd):
  """Catches files, messages and printed lines that one site's data change."""
  models.register(faint_pixels)
  c = site.deployed(Config.from_mapping(FIELDS | CASES[name]))
  rng, left = np.random.default_rng(0), []
  x = rng.integers(17, size=(9, 8, 8, 1), dtype=np.uint8)
  other = slice(1, 9) if name == 'samples' else slice(0, 9)
  for held in (slice(0, 8), other):
    found, sites, folder = {}, {}, tmp_path / f'{held}'
    for i, mine in enumerate((slice(0, 8), held)):
      arrays = {'x': x[mine], 'y': np.arange(9)[mine]}
      own = lambda c, i=i, arrays=arrays: own_data.problem(c, i, arrays)
      client = site.client(c, i, own, folder / 'sites' / f'{i}')
      sites[f'{i}'] = functools.partial(answer, client, found)
    capfd.readouterr()
    federation.run(c, LocalSites(sites), folder, progress=False)
    left.append(found | published.contents(folder, capfd.readouterr()))
  told = published.told(c, *left, sites=True)
  want = {'payloads'} if 'central' in name else set()
  if 'all' in name or 'private' in name:
    want |= {'losses', 'train_loss', 'loss.png'}
  assert {x for x in told if not x.startswith('sites/')} == want
