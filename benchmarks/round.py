"""Benchmark of a run against hand-written training loops.

Every contestant runs in a process of its own, one after another and again, so
that a machine that slows down slows them all.
"""

from collections.abc import Sequence
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

from fl_sketch import runs
from fl_sketch.utils import files
import jax
import tqdm

from . import workloads

_TIMED = 20  # rounds after those of parity
# Options of the hand-written loops.
_JAX = dict(lenet='--conv im2col2 --poolhow mask --order pool-relu', logreg='')
_TORCH = {'lenet': '--loop plain', 'logreg': '--loop vmap'}


def work(name: str, variant: str):
  """Run one variant of a workload in this process; write a JSON as peers do.

  It has the seconds a round of `runs.train`, all included, and the
  parameters' norm after `PARITY_ROUNDS`.
  """
  first = workloads.PARITY_ROUNDS
  build = lambda rounds: workloads.build(name, variant, rounds)
  with tempfile.TemporaryDirectory() as folder:
    parity = runs.train(build(first), f'{folder}/parity')
    norm = workloads.norm(parity.state)
    runs.train(build(first + _TIMED), f'{folder}/run')
    rows = runs.read_metrics(f'{folder}/run')
  # The last row waits for the evaluation and is left out.
  spent = rows[-2]['seconds'] - rows[first - 1]['seconds']
  result = {'median': spent / (_TIMED - 1), 'parity_norm': norm}
  files.write(pathlib.Path(os.environ['PEER_OUT'], f'{name}.json'), result)


def compare(
  name: str,
  peers: pathlib.Path | None,
  repeats: int,
  program: str,
  variants: Sequence[str] = (),
  **env: str,
) -> dict[str, list[float]]:
  """Return each contestant's seconds a round, of every new process.

  Each runs `repeats` times, in turn; those of `peers`, a folder of hand-written
  loops, as well. `program` is the module that has `work` as its command,
  `variants` those of ours to run, all by default, `env` of the environment.

  Raises:
    RuntimeError: a contestant failed, or did not do the same work.
  """
  commands = _commands(name, peers, program, variants)
  seconds: dict[str, list[float]] = {label: [] for label in commands}
  want = workloads.WORKLOADS[name].norm
  for label in (bar := tqdm.tqdm(list(commands) * repeats, name)):
    bar.set_postfix_str(label)
    result = run(commands[label], **env)
    norm = result['parity_norm']
    sketched = 'sketch' in workloads.VARIANTS[name].get(label, {})
    if not sketched and abs(norm - want) > 1e-5 * want:
      raise RuntimeError(
        f'{label} did other work on {name}: norm {norm}, not {want}.'
      )
    seconds[label].append(result['median'])
  return seconds


def _commands(name, peers, program, variants):
  commands = {
    variant: ['-m', program, 'worker', name, variant]
    for variant in variants or workloads.VARIANTS[name]
  }
  if peers is None:
    return commands

  def peer(script, options):
    options = f'--config {name} --rounds {_TIMED} {options}'
    return [str(peers / script), *options.split()]

  over = f'--devices {len(jax.devices())} --over shard'
  commands['hand JAX'] = peer('bench_jax.py', f'{over}map {_JAX[name]}')
  on_cpu = jax.default_backend() == 'cpu'
  over += 'map' if on_cpu else 'vmap'  # accelerators train clients at once
  if not on_cpu:
    commands['hand JAX vmap'] = peer('bench_jax.py', over)
  if name == 'logreg':
    commands['hand JAX gram'] = peer('bench_jax.py', f'{over} --local gram')
  if importlib.util.find_spec('torch') and on_cpu:
    torch = f'{_TORCH[name]} --threads 2'
    commands['hand PyTorch'] = peer('bench_torch.py', torch)
  return commands


def run(command: Sequence[str], **env: str) -> dict[str, Any]:
  """Run Python with a command; return the JSON that it writes to PEER_OUT.

  Raises RuntimeError if it fails.
  """
  with tempfile.TemporaryDirectory() as out:
    env = os.environ | {'PEER_OUT': out} | env
    python = [sys.executable, *command]
    done = subprocess.run(python, capture_output=True, text=True, env=env)
    if done.returncode:
      raise RuntimeError(f'{command} failed: {done.stderr[-2000:]}')
    (path,) = pathlib.Path(out).glob('*.json')
    return json.loads(path.read_text())
