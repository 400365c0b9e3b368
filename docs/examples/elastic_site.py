"""Trains a character decoder with sites that may come and go.

  fl-sketch hub --workdir=HUB --sites=2
  python elastic_site.py tcp://HOST:7000 0 TEXT FOLDER

Each site is a process with a number and a folder of its own. It trains by
itself, and every 16 steps it sends what it has moved by, in two bits a number.
The same command begins again where the site was; others go on without it.
"""

import argparse
import json
import pathlib
import time

from fl_sketch import models
from fl_sketch.models import losses
from fl_sketch.sites import hosted
import jax
import numpy as np
import optax

LENGTH, WINDOWS = 64, 4  # characters of a window, windows of a batch
SIZES = {'width': 128, 'depth': 4, 'heads': 4}  # nanoGPT's, for a CPU
TWO_BITS = 'eden(bits=2, scale="least_squares", error_feedback=True)'

parser = argparse.ArgumentParser()
parser.add_argument('hub')
parser.add_argument('number', type=int)
parser.add_argument('text', type=pathlib.Path)
parser.add_argument('folder', type=pathlib.Path)
parser.add_argument('--rounds', type=int, default=500)
parser.add_argument('--compressor', default=TWO_BITS)
parser.add_argument('--every', type=int, default=16)
parser.add_argument('--delay', type=int, default=14)
parser.add_argument('--blend', type=float, default=0.5)


def problem(text):
  """Returns (tokens, initial parameters, loss): equal on all sites."""
  letters, tokens = np.unique([*text.read_text()], return_inverse=True)
  model = models.as_model(models.make('gpt_nano', len(letters), **SIZES))
  loss, _ = losses.make(model, losses.tokens)
  params = model.init(jax.random.key(0), tokens[None, :LENGTH])
  return tokens.astype(np.int32), params, loss


def draw(rng, tokens):
  """Draws a batch of windows."""
  starts = rng.integers(len(tokens) - LENGTH, size=(WINDOWS, 1))
  windows = tokens[starts + np.arange(LENGTH + 1)]
  return {'x': windows[:, :-1], 'y': windows[:, 1:]}


def main():
  """Trains until the run has all rounds."""
  args = parser.parse_args()
  args.folder.mkdir(parents=True, exist_ok=True)
  tokens, params, loss = problem(args.text)
  inner = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(2e-3))

  @jax.jit
  def train_step(place, opt, batch):
    value, grads = jax.value_and_grad(loss)(place, batch)
    updates, opt = inner.update(grads, opt, place)
    return optax.apply_updates(place, updates), opt, value

  rng = np.random.default_rng()
  opt = inner.init(params)
  train_step(params, opt, draw(rng, tokens))  # compiles before it joins
  options = {k: vars(args)[k] for k in ('every', 'delay', 'blend', 'folder')}
  with hosted.Site(
    args.hub, args.number, params, args.compressor, **options
  ) as site:
    place, opt = site.begin(opt)
    times = [time.time()]  # at which a step ended
    with (args.folder / 'metrics.jsonl').open('a') as file:
      while site.round < args.rounds:
        before = site.round
        place, opt, value = train_step(place, opt, draw(rng, tokens))
        place = site.exchange(place, opt)
        value = float(value)
        times.append(time.time())
        if site.round > before:
          row = {'round': site.round, 'loss': value, 'waited': site.waited}
          file.write(f'{json.dumps(row | {"times": times})}\n')
          file.flush()
          times = []


if __name__ == '__main__':
  main()
