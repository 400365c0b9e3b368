"""Several processes from one command: a list of hosts, and Slurm."""

import os
import shlex
import signal
import subprocess
import sys
import time

from launch import hosts
import pytest
from runs import ROOT

# A module in place of launch.train, which waits until all are there. --do1=3:
# process 1 exits with 3; others, --then=75, once they are told to stop, or,
# --times0=2, only when they are told again. What happens leaves a file.
STUB = """
import os, signal, sys, time
flags = dict(x.split('=', 1) for x in sys.argv[1:])
index = flags['--process_id']
told = []
def mark(name):
  with open(os.path.join(flags['--folder'], name + '.new'), 'w') as f:
    f.write(str(os.getpid()))
  os.rename(f.name, os.path.join(flags['--folder'], name))
def note(number, frame):
  told.append(number)
  mark(f'{index} told {len(told)}')
  sys.stdout.write(f'told {number}\\n')
  if len(told) == int(flags.get('--times' + index, 1)):
    sys.exit(int(flags.get('--then', 143)))
signal.signal(signal.SIGTERM, note)
place = os.getcwd(), os.environ['JAX_STUB']
sys.stdout.write(' '.join([str(sys.argv[1:]), *place]) + '\\n')
mark(index)
there = lambda i: os.path.exists(os.path.join(flags['--folder'], str(i)))
while not all(map(there, range(int(flags['--num_processes'])))):
  time.sleep(0.01)
if '--do' + index in flags:
  sys.exit(int(flags['--do' + index]))
while True:
  time.sleep(0.01)
"""
# In place of ssh: notes its arguments, and runs the last as a login shell does.
FAKE_SSH = """#!/bin/sh
printf '%s\\n' "$@" > "$FAKE_LOG.$$"
for last; do :; done
cd / && exec sh -c "$last"
"""
LAUNCH = """
import sys
from absl import app
import launch
from launch import hosts
hosts.MODULE = 'stub'
hosts.LAST_WAIT = 0.2
app.run(hosts.main, flags_parser=launch.parse_flags)
"""


ODD = ['--odd=a "b" $c\'d', '--do0=0', '--do1=0']


@pytest.fixture
def place(tmp_path):
  """A folder with the stub, fake commands on PATH, and marks of processes."""
  (tmp_path / 'marks').mkdir()
  (tmp_path / 'bin').mkdir()
  (tmp_path / 'stub.py').write_text(STUB)
  return tmp_path


def executable(path, text):
  path.write_text(text)
  path.chmod(0o755)


def run(place, cwd, command, *args, **more):
  """Starts a command, with args for the stub, where PATH has the fakes."""
  environment = {
    'PATH': f'{place / "bin"}:{os.environ["PATH"]}',
    'PYTHONPATH': f'{place}:{ROOT}',
    'JAX_STUB': "it's here",
    'FAKE_LOG': str(place / 'ssh'),
  }
  return subprocess.Popen(
    [*command, f'--folder={place / "marks"}', *args],
    cwd=cwd,
    env=os.environ | environment | more,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )


def start(place, names, *args, flags=()):
  command = [sys.executable, '-c', LAUNCH, f'--hosts={names}', *flags, '--']
  return run(place, place, command, *args)


def ended(process):
  """(exit status, lines), of a process that ends by itself."""
  try:
    out, _ = process.communicate(timeout=600)
  finally:
    process.kill()
  return process.returncode, out.splitlines()


def wait_for(place, *names):
  end = time.monotonic() + 60
  while not all((place / 'marks' / name).exists() for name in names):
    assert time.monotonic() < end, list((place / 'marks').iterdir())
    time.sleep(0.01)


def test_a_command_names_the_process_and_quotes_what_it_is_given(monkeypatch):
  for name in os.environ:
    if name.startswith(hosts.PASSED_ON):
      monkeypatch.delenv(name)
  monkeypatch.setenv('XLA_FLAGS', '--a --b')
  names, args = ['a', 'localhost'], ['launch.train', '--workdir=the run']
  ssh, local = (hosts.command(names, i, 99, args) for i in range(2))
  assert ssh[:-1] == [*hosts.SSH, '--', 'a']
  assert shlex.split(ssh[-1])[:2] == local[:2] == ['sh', '-c']
  folder, _, line, *_ = local[-1].splitlines()
  assert shlex.split(folder)[:2] == ['cd', os.getcwd()]
  assert shlex.split(line.split(' </dev/null')[0]) == [
    'env', 'XLA_FLAGS=--a --b', sys.executable, '-u', '-m', 'launch.train',
    '--workdir=the run', '--coordinator=a:99', '--num_processes=2',
    '--process_id=1',
  ]  # fmt: skip
  remote = shlex.split(ssh[-1])[-1]
  assert remote == local[-1].replace('process_id=1', 'process_id=0')


def test_the_coordinator_must_be_reached_by_all():
  assert hosts.port_of(['a', 'localhost']) == hosts.PORT
  assert hosts.port_of(['localhost'] * 2) > 1023
  with pytest.raises(ValueError, match='first of hosts=localhost,a'):
    hosts.port_of(['localhost', 'a'])


@pytest.mark.nightly
def test_a_local_process_and_one_by_ssh_succeed(place):
  executable(place / 'bin' / 'ssh', FAKE_SSH)
  status, lines = ended(start(place, 'far,localhost', *ODD))
  assert status == 0
  rest = f"{place} it's here"
  for i in range(2):
    args = [f'--folder={place / "marks"}', *ODD]
    args += ['--coordinator=far:8476', '--num_processes=2', f'--process_id={i}']
    assert f'[{i}] {args} {rest}' in lines
  (log,) = place.glob('ssh.*')
  assert log.read_text().split()[:6] == [*hosts.SSH[1:], '--', 'far']


def test_one_that_fails_ends_the_others_and_gives_the_status(place):
  executable(place / 'bin' / 'ssh', FAKE_SSH)
  status, lines = ended(start(place, 'far,localhost', '--do1=3'))
  assert (status, '[0] told 15' in lines) == (3, True)


@pytest.mark.nightly
def test_a_process_that_ignores_sigterm_is_killed_after_the_grace_period(place):
  flags = ['--do1=3', '--times0=9']
  process = start(place, 'localhost,localhost', *flags, flags=['--grace=0.2'])
  status, lines = ended(process)
  assert (status, lines.count('[0] told 15')) == (3, 1)


@pytest.mark.nightly
def test_a_signal_is_passed_on_and_75_comes_back(place):
  process = start(place, 'localhost,localhost', '--then=75', '--times0=2')
  wait_for(place, '0', '1')
  process.send_signal(signal.SIGINT)
  wait_for(place, '0 told 1', '1 told 1')
  # A stopped process does not end the others, which may still be saving.
  with pytest.raises(subprocess.TimeoutExpired):
    process.wait(0.3)
  process.terminate()
  status, lines = ended(process)
  counts = [lines.count(f'[{i}] told 15') for i in range(2)]
  assert (status, counts) == (75, [2, 1])


@pytest.mark.nightly
def test_no_process_is_left_when_the_launcher_is_killed(place):
  executable(place / 'bin' / 'ssh', FAKE_SSH)
  process = start(place, 'far,localhost')
  wait_for(place, '0', '1')
  process.kill()
  process.communicate()
  wait_for(place, '0 told 1', '1 told 1')


# Runs the command after its options as two tasks; passes TERM on, as srun does.
FAKE_SRUN = """#!/bin/bash
echo "srun $*" >> "$LOG"
while [[ $1 == --* ]]; do shift; done
worst=0
for i in 0 1; do SLURM_PROCID=$i "$@" & pids+=($!); done
trap 'caught=1; kill -TERM "${pids[@]}"' TERM
for pid in "${pids[@]}"; do
  while caught=; wait "$pid"; status=$?; [ "$caught" ]; do :; done
  ((status > worst)) && worst=$status
done
exit $worst
"""
FAKE_SCONTROL = """#!/bin/sh
echo "scontrol $*" >> "$LOG"
[ "$1" = show ] && printf 'n7\nn8\n'
exit 0
"""
# Runs the stub in the place of launch.train.
FAKE_PYTHON = """#!/bin/sh
shift 3
exec '{python}' '{stub}' "$@"
"""


def slurm_script(place, *args):
  """The Slurm script, after its tasks have started."""
  executable(place / 'bin' / 'srun', FAKE_SRUN)
  executable(place / 'bin' / 'scontrol', FAKE_SCONTROL)
  python = FAKE_PYTHON.format(python=sys.executable, stub=place / 'stub.py')
  executable(place / 'bin' / 'python', python)
  script = run(
    place, ROOT, ['bash', ROOT / 'launch' / 'slurm.sh'], *args,
    LOG=str(place / 'log'), PYTHON='python', SLURM_CPUS_PER_TASK='4',
    SLURM_JOB_ID='12345', SLURM_JOB_NODELIST='n[7-8]', SLURM_NTASKS='2',
  )  # fmt: skip
  wait_for(place, '0', '1')
  return script


def test_slurm_starts_one_task_a_node(place):
  status, lines = ended(slurm_script(place, *ODD))
  assert status == 0
  for i in range(2):
    args = [f'--folder={place / "marks"}', *ODD]
    args += ['--coordinator=n7:22345', '--num_processes=2', f'--process_id={i}']
    assert f"{args} {ROOT} it's here" in lines
  log = (place / 'log').read_text()
  assert log.startswith('scontrol show hostnames n[7-8]\nsrun ')
  assert '--cpus-per-task=4 --kill-on-bad-exit=0 --wait=300' in log
  assert 'requeue' not in log


@pytest.mark.parametrize('then', [75, 1])
def test_slurm_queues_a_run_again_that_was_stopped_and_saved(place, then):
  script = slurm_script(place, f'--then={then}')
  script.send_signal(signal.SIGUSR1)  # the time is nearly up
  status, lines = ended(script)
  assert (status, lines.count('told 15')) == (then, 2)
  log = (place / 'log').read_text().splitlines()
  assert ('scontrol requeue 12345' in log) == (then == 75)


def test_slurm_leaves_a_cancelled_run_to_slurm(place):
  script = slurm_script(place, '--then=75')
  script.terminate()
  with pytest.raises(subprocess.TimeoutExpired):
    script.wait(0.3)
  assert not list((place / 'marks').glob('* told 1'))  # Slurm does that
  for i in range(2):
    os.kill(int((place / 'marks' / str(i)).read_text()), signal.SIGTERM)
  assert ended(script)[0] == 75
  assert 'requeue' not in (place / 'log').read_text()
