"""Writes the parameters of a workdir's newest checkpoint to an .npz file."""

import json
import pathlib
import sys

from fl_sketch import experiment, rounds
from fl_sketch.rounds import mesh as mesh_lib, traffic
from fl_sketch.training import checkpoints, client_state
import jax
import numpy as np


def main(workdir, out):
  folder = pathlib.Path(workdir)
  config = json.loads((folder / 'config.json').read_text())
  exp = experiment.build(config)
  state = rounds.init(exp.make(exp.hyper), exp.params, config['population'])
  mesh = mesh_lib.cohort_mesh(1)
  state = mesh_lib.place(mesh, state)
  store = checkpoints.Checkpoints(folder / 'checkpoints', keep=100, devices=2)
  saved = store.restore(state, traffic.Ledger.empty(config['population'], 0))
  state = client_state.OnDevice(mesh).restored(saved.state, saved.rows)
  leaves = jax.tree_util.tree_leaves_with_path(jax.device_get(state))
  np.savez(out, **{jax.tree_util.keystr(path): x for path, x in leaves})


if __name__ == '__main__':
  main(*sys.argv[1:])
