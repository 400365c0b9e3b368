"""Benchmark of a round against hand-written training loops.

Every contestant runs in a process of its own, one after another and again, so
that a machine that slows down slows them all; the table has medians over the
repeats, and their ratios.
"""

from collections.abc import Callable
import dataclasses
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from fl_sketch import reporting, rounds, training
from fl_sketch.rounds import comms, mesh as mesh_lib
import jax
from jax.sharding import PartitionSpec as P
import tqdm

from . import workloads

# Options of the hand-written loops.
_JAX = {
  'lenet': '--conv im2col2 --poolhow mask --order pool-relu',
  'logreg': '',
}
_TORCH = {'lenet': '--loop plain', 'logreg': '--loop vmap'}


def measure(name: str, variant: str, timed: int) -> dict[str, float]:
  """Measures one variant of a workload in this process.

  Args:
    name: of the workload.
    variant: 'loop' is the whole of `training.train`; others are bare rounds,
      sampling and transfers included.
    timed: rounds after the first `PARITY_ROUNDS`.

  Returns:
    Median seconds a round, and the parameters' norm after `PARITY_ROUNDS`.
  """
  total = workloads.PARITY_ROUNDS + timed
  exp = workloads.build(name, variant, total)
  run = _train if variant == 'loop' else _bare_rounds
  return run(exp, total)


def _bare_rounds(exp, total):
  mesh = mesh_lib.cohort_mesh()
  round_fn = jax.jit(
    rounds.run_round(
      exp.make, mesh, fetch=exp.fetch, clients_per_step=exp.clients_per_step
    ),
    donate_argnums=1,
  )
  state = rounds.init(exp.make(exp.hyper), exp.params, exp.config.population)
  state, data, hyper, key = mesh_lib.place(
    mesh, (state, exp.data, exp.hyper, jax.random.key(0))
  )
  seconds, norm = [], 0.0
  for r in range(total):
    begun = time.perf_counter()
    cohort = rounds.pad_cohort(exp.sample(r), mesh.size)
    cohort = mesh_lib.place(mesh, cohort, P(comms.SHARD))
    state, _ = round_fn(hyper, state, cohort, key, data)
    jax.block_until_ready(state)
    seconds.append(time.perf_counter() - begun)
    if r + 1 == workloads.PARITY_ROUNDS:
      norm = workloads.norm(state)
  return _result(seconds[workloads.PARITY_ROUNDS :], norm)


def _train(exp, total):
  """Time between rows of metrics.jsonl: everything a run does in a round."""
  with tempfile.TemporaryDirectory() as folder:
    first = workloads.PARITY_ROUNDS
    short = dataclasses.replace(exp.config, rounds=first, eval_every=first)
    result = training.train(exp._replace(config=short), f'{folder}/parity')
    norm = workloads.norm(result.state)
    training.train(exp, f'{folder}/run')
    rows = reporting.read_metrics(f'{folder}/run')
  clock = [row['seconds'] for row in rows]
  # The last row waits for the evaluation and is left out.
  spent = (clock[-2] - clock[first - 1]) / (total - 1 - first)
  return _result([spent], norm)


def _result(seconds, norm):
  return {'median': statistics.median(seconds), 'norm': norm}


def compare(
  name: str, peers: pathlib.Path | None, repeats: int, timed: int, program: str
) -> dict[str, dict[str, float]]:
  """Measures every contestant `repeats` times in turn, each in a new process.

  Args:
    name: of the workload.
    peers: folder of hand-written loops, if any.
    repeats: runs of each contestant.
    timed: rounds that are timed in each of them.
    program: the module that runs `measure` as its command `worker`.

  Returns:
    For each contestant its median seconds a round and its parity norm.

  Raises:
    RuntimeError: a contestant failed, or did not do the same work.
  """
  contestants = _contestants(name, peers, timed, program)
  results: dict[str, list[dict[str, float]]] = {key: [] for key in contestants}
  turns = list(contestants.items()) * repeats
  for label, run in (bar := tqdm.tqdm(turns, name)):
    bar.set_postfix_str(label)
    results[label].append(run())
  medians = {
    label: _result([r['median'] for r in runs], runs[0]['norm'])
    for label, runs in results.items()
  }
  for label, result in medians.items():
    norm, want = result['norm'], workloads.WORKLOADS[name].norm
    sketched = 'sketch' in workloads.VARIANTS[name].get(label, {})
    if not sketched and abs(norm - want) > 1e-5 * want:
      raise RuntimeError(
        f'{label} did other work on {name}: norm {norm}, not {want}.'
      )
  return medians


def _contestants(
  name: str, peers: pathlib.Path | None, timed: int, program: str
) -> dict[str, Callable[[], dict[str, float]]]:
  def ours(variant):
    options = f'--workload={name} --variant={variant} --timed={timed}'
    command = f'-m {program} worker {options}'.split()
    return lambda: json.loads(_run(command).splitlines()[-1])

  def peer(script, options):
    return lambda: _run_peer(peers, script, f'--config {name} {options}', timed)

  entries = {v: ours(v) for v in workloads.VARIANTS[name]}
  if peers is None:
    return entries
  over = f'--over shardmap --devices {len(jax.devices())}'
  entries['hand JAX'] = peer('bench_jax.py', f'{over} {_JAX[name]}')
  if name == 'logreg':
    entries['hand JAX gram'] = peer('bench_jax.py', f'{over} --local gram')
  if importlib.util.find_spec('torch'):
    entries['hand PyTorch'] = peer(
      'bench_torch.py', f'{_TORCH[name]} --threads 2'
    )
  return entries


def _run(command, **environment):
  done = subprocess.run(
    [sys.executable, *command],
    check=False,
    capture_output=True,
    text=True,
    env=os.environ | environment,
  )
  if done.returncode:
    raise RuntimeError(f'{command} failed: {done.stderr[-2000:]}')
  return done.stdout


def _run_peer(peers, script, options, timed):
  with tempfile.TemporaryDirectory() as out:
    command = [str(peers / script), *options.split(), '--rounds', str(timed)]
    _run(command, PEER_OUT=out)
    (path,) = pathlib.Path(out).glob('*.json')
    result = json.loads(path.read_text())
  return {'median': result['median'], 'norm': result['parity_norm']}
