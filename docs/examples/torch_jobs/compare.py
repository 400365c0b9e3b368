"""Run both jobs with and without compression; compare bytes and accuracy.

  python compare.py DATA_DIR OUT [--rounds=200] [--samples=2000] [--seeds ...]

Seeds are 5 to 9 unless others are given.

DATA_DIR has CIFAR-10 as tensorflow-datasets keeps it. Bytes are those of TCP
between the server and both clients, both ways, polling and heartbeats among
them: of Flower by a proxy, of NVFlare by the loopback of a network namespace,
which needs Linux, and root or a system that lets users make them. A run that
OUT has is not run again.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

import cifar
import numpy as np
import torch

HERE = pathlib.Path(__file__).resolve().parent
ENGINES, NONE = ('nvflare', 'flower'), 'none'
ONE_BIT = {'compressor': "eden(scale='least_squares', error_feedback=True)"}
# The options of the one line that is added; none leaves the job as it is.
OPTIONS = {
  NONE: {}, 'one bit': ONE_BIT,
  'one bit up, two down': ONE_BIT | {'down': 'eden(bits=2)'},
}  # fmt: skip
_ALONE = 'unshare', '--map-root-user', '--net', 'sh', '-c'
_PREFIX = {
  'nvflare': [*_ALONE, 'ip link set lo up; exec "$@"', 'sh'], 'flower': [],
}  # fmt: skip


def main():
  """Run what OUT lacks, and print a table."""
  parser = argparse.ArgumentParser(usage=__doc__)
  parser.add_argument('data_dir')
  parser.add_argument('out', type=pathlib.Path)
  parser.add_argument('--rounds', type=int, default=200)
  parser.add_argument('--samples', type=int, default=2000)
  parser.add_argument('--seeds', type=int, nargs='+', default=range(5, 10))
  options = parser.parse_args()
  options.out = options.out.resolve()
  options.out.mkdir(parents=True, exist_ok=True)
  data = options.out / 'cifar10.npz'
  if not data.exists():
    np.savez(data, **_cifar10(options.data_dir))
  os.environ['JOB_DATA'] = str(data)
  rows = {}
  for seed in options.seeds:
    for engine in ENGINES:
      for number, name in enumerate(OPTIONS):
        row = _row(options, engine, seed, number, OPTIONS[name])
        rows.setdefault((engine, name), []).append(row)
  _show(rows)


def _cifar10(data_dir):
  from fl_sketch.runs import config, problem

  fields = {'dataset': 'cifar10', 'model': 'resnet8', 'standardize': False}
  loaded = problem.load(config.Config.from_mapping(fields), data_dir)
  test = {k: np.concatenate(list(x)) for k, x in loaded.test.items()}
  mask = test.pop('mask')
  parts = {'train': loaded.data, 'test': {k: x[mask] for k, x in test.items()}}
  return {f'{k}_{name}': x[k] for name, x in parts.items() for k in 'xy'}


def _row(options, engine, seed, number, compression):
  """Return the bytes, accuracy and seconds of a job, run once."""
  folder = options.out / f'{engine}-{options.rounds}-{seed}-{number}'
  path = folder / 'row.json'
  if path.exists():
    return json.loads(path.read_text())
  folder.mkdir(exist_ok=True)
  given = {
    'JOB_SEED': f'{seed}', 'JOB_COMPRESSION': json.dumps(compression),
    'OMP_NUM_THREADS': '1',
    'PYTHONPATH': f'{HERE}:{os.environ.get("PYTHONPATH", "")}',
  }  # fmt: skip
  script = HERE / f'{engine}_job.py'
  command = [*_PREFIX[engine], sys.executable, script]
  command += folder, options.rounds, options.samples
  start = time.monotonic()
  with (folder / 'log.txt').open('w') as log:
    done = subprocess.run(
      [*map(str, command)], env=os.environ | given,
      stdout=subprocess.PIPE, stderr=log, text=True, check=True,
    )  # fmt: skip
  (model,) = folder.glob('**/*model.pt')
  row = {
    'bytes': int(done.stdout.split()[-1]), 'accuracy': _accuracy(model),
    'seconds': time.monotonic() - start,
  }  # fmt: skip
  path.write_text(json.dumps(row))
  return row


def _accuracy(path):
  """Return the accuracy of the model of a file on the test set, in per cent."""
  kept = torch.load(path, weights_only=False)
  net = cifar.Net()
  net.load_state_dict(kept.get('model', kept))
  return 100 * cifar.accuracy(net, cifar.load('test'))


def _show(rows):
  """Print a table: bytes, accuracy, and what compression loses, by seed."""
  print('| engine | compression | MB | times fewer | accuracy, % | lost |')
  print('| --- | --- | ---: | ---: | ---: | ---: |')
  for (engine, name), found in rows.items():
    size, accuracy = _columns(found)
    whole, before = _columns(rows[engine, NONE])
    print(
      f'| {engine} | {name} | {size.mean() / 1e6:.2f} '
      f'| {whole.mean() / size.mean():.1f} | {_shown(accuracy)} '
      f'| {_shown(before - accuracy)} |'
    )


def _columns(found):
  return (np.array([row[x] for row in found]) for x in ('bytes', 'accuracy'))


def _shown(values):
  error = np.std(values, ddof=1) / len(values) ** 0.5
  return f'{np.mean(values):.2f} ± {error:.2f}'


main()
