"""The example of compressed gradients: fl-sketch slow-link."""

import json
import re
import signal

from fl_sketch.distributed import processes
from fl_sketch.rounds import processes as peers
import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
import runs

TINY = {
  'workers': 2, 'width': 8, 'depth': 1, 'heads': 2, 'context': 8, 'windows': 2,
  'steps': 6, 'eval_every': 2, 'checkpoint_every': 3, 'learning_rate': 0.01,
  # Workers differ at a checkpoint: in their parameters, and in a residual.
  'every': 2, 'compressor': 'top_k(k=0.1, error_feedback=True)',
  'both_ways': False, 'optimizer': 'adamw',
}  # fmt: skip


@pytest.fixture
def flags(tmp_path):
  path = tmp_path / 'text.txt'
  path.write_text('To be, or not to be: that is the question.\n' * 20)

  def flags(name, **others):
    of_run = TINY | {'workdir': tmp_path / name, 'text': path} | others
    return [f'--{k}={v}' for k, v in of_run.items()]

  return flags


def command(monkeypatch, *flags):
  """Runs it in this process, on the devices of the tests."""
  monkeypatch.setattr(processes, 'start', lambda *a, workers: None)
  return runs.command('slow_link', *flags)


def state(workdir):
  """All arrays of the last checkpoint."""
  folder = max((workdir / 'checkpoints').iterdir(), key=lambda x: int(x.name))
  handler = ocp.PyTreeCheckpointHandler()
  with ocp.Checkpointer(handler) as reader:
    like = handler.metadata(folder / 'default').tree
    host = ocp.RestoreArgs(restore_type=np.ndarray)
    how = {'restore_args': jax.tree.map(lambda _: host, like)}
    args = ocp.args.PyTreeRestore(like, **how)
    return jax.tree.leaves(reader.restore(folder / 'default', args=args))


def equal(one, other):
  assert runs.rows(one) == runs.rows(other)
  for x, y in zip(state(one), state(other), strict=True):
    np.testing.assert_array_equal(x, y)


def test_bad_input_is_one_line(flags, monkeypatch):
  """Catches a traceback, and sizes that fail in the middle of a run."""
  for given, message in (
    ({'context': 90}, '--text is too short for --context=90'),
    ({'text': 'absent.txt'}, 'DataError: No text in absent.txt'),
    ({'steps': 0}, '--steps=0: 0 is not a positive integer'),
    ({'heads': 3}, 'heads=3'),
    ({'beside': 'absent'}, "No such file or directory: 'absent'"),
  ):
    done = command(monkeypatch, *flags('bad', **given))
    assert done.returncode == 1
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.nightly
def test_a_killed_run_ends_with_the_same_bits(flags, monkeypatch, tmp_path):
  """Catches lost memory of workers, other batches, rows that come twice."""
  whole, cut = tmp_path / 'whole', tmp_path / 'cut'
  done = command(monkeypatch, *flags('whole'))
  assert 'Done: validation loss' in done.stdout, done.stderr
  assert re.match(r'Bytes out of a worker per step: [\d,]+', done.stdout)
  row = json.loads((whole / 'metrics.jsonl').read_text().splitlines()[-1])
  assert {'bytes', 'train_loss', 'validation_loss_of_all'} < row.keys()
  assert (whole / 'loss.png').exists()
  batches, drawn = processes.batches, []

  def killed(mesh, draw):
    drawn.append(draw)
    if len(drawn) == 6:  # between a row and a checkpoint
      raise InterruptedError
    return batches(mesh, draw)

  monkeypatch.setattr(processes, 'batches', killed)
  assert 'InterruptedError' in command(monkeypatch, *flags('cut')).stderr
  assert len(runs.rows(cut)) == 3  # one of them of the checkpoint
  again = command(monkeypatch, *flags('cut'), f'--beside={whole}')
  assert 'Done' in again.stdout, again.stderr
  assert len(drawn) == 9
  equal(whole, cut)
  other = command(monkeypatch, *flags('cut', seed=1))
  assert 'seed: 0 then, 1 now' in other.stderr


@pytest.mark.nightly
def test_a_loss_that_is_not_finite_ends_a_run(flags, monkeypatch, tmp_path):
  """Catches a run that goes on, and a checkpoint that it spoils."""
  text = flags('nan', learning_rate=1e38, checkpoint_every=1)
  done = command(monkeypatch, *text)
  assert re.search(r'DivergedError: Step \d: .*learning_rate=1e', done.stderr)
  if any((tmp_path / 'nan' / 'checkpoints').iterdir()):
    assert all(np.isfinite(x).all() for x in state(tmp_path / 'nan'))


def start_both(flags, tmp_path):
  port = runs.free_port()
  more = ['--num_processes=2', f'--coordinator=127.0.0.1:{port}']
  logs = [tmp_path / f'{i}.log' for i in range(2)]
  command = ['-m', 'launch.slow_link', *flags, *more]
  both = [runs.start([*command, f'--process_id={i}'], logs[i]) for i in (0, 1)]
  return list(zip(both, logs, strict=True))


@pytest.mark.long
def test_two_processes_end_as_one_when_one_is_killed(flags, tmp_path):
  """Catches other numbers in several processes, and one that waits."""
  one, two = tmp_path / 'one', tmp_path / 'two'
  runs.finish((runs.start(['-m', 'launch.slow_link', *flags('one', steps=60)],
                          log := tmp_path / 'log'), log))  # fmt: skip
  both = start_both(flags('two', steps=60), tmp_path)
  runs.wait_for_rows(two, 10, *both[0])
  both[1][0].send_signal(signal.SIGKILL)
  both[1][0].wait()
  runs.finish(both[0], 60, status=1)
  said = both[0][1].read_text()
  assert peers.GONE in said
  assert 'Traceback' not in said
  runs.finish_all(start_both(flags('two', steps=60), tmp_path))
  equal(one, two)
