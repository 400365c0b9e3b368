"""Memory before a run: what fits, what is refused, what is advised."""

import dataclasses
import mmap
import re

import chex
from fl_sketch import training
from fl_sketch.training import (
  memory as memory_lib,
  preflight,
  program as program_lib,
)
import numpy as np
import pytest

from tests.planning.test_plan import (
  COHORT,
  GIB,
  PRIVATE,
  SAFL,
  SCAFFOLD,
  built,
  mesh,
)


@pytest.fixture(scope='module')
def scaffold():
  return built(**SCAFFOLD)


MEMORY = memory_lib.Memory(
  devices=2, on_host=True, held={'model': GIB, 'training data': 3 * GIB},
  state=GIB, round=5 * GIB, evaluation=2 * GIB, process=GIB, mapped=100 * GIB,
)  # fmt: skip


def test_peaks():
  assert MEMORY.device_peak == 9 * GIB
  assert MEMORY.host_peak == GIB + 2 * 9 * GIB  # a CPU's devices are the host
  elsewhere = MEMORY._replace(on_host=False)
  assert elsewhere.host_peak == GIB + GIB  # what a checkpoint takes
  idle = MEMORY._replace(round=0, evaluation=0)
  assert idle.host_peak == GIB + 2 * 4 * GIB + GIB
  # What fits, or is not known, is not refused.
  for have in (None, None), (9 * GIB, 19 * GIB), (None, 19 * GIB):
    assert not memory_lib.shortfalls(MEMORY, memory_lib.Available(*have))


@pytest.mark.parametrize(('on_host', 'have', 'message'), [
  (True, (None, 18),
    r'takes 19.0 GiB of the host, which has 18.0 GiB\. '
    r'Change feed; or the machine, to one with 19.0 GiB\.'),
  (False, (8, 18),
    r'takes 9.0 GiB of each device, which has 8.0 GiB\. '
    r'.* to one with 2.0 GiB and 9.0 GiB on each device\.'),
  (False, (8, 1), r'each device, which .* and 2.0 GiB of the host, which'),
])  # fmt: skip
def test_what_does_not_fit_is_refused(on_host, have, message):
  have = memory_lib.Available(*(n and n * GIB for n in have))
  memory = MEMORY._replace(on_host=on_host)
  lacking = memory_lib.shortfalls(memory, have)
  assert re.search(message, f'{preflight.too_large(memory, lacking, ["feed"])}')


def refused(exp, limit):
  """The error on devices of so many bytes."""
  have = memory_lib.Available(limit, None)
  with pytest.raises(memory_lib.TooLargeError) as e:
    preflight.check(exp, mesh(), have=have)
  assert str(e.value).count('Change ') == 1
  return str(e.value).partition('Change ')[2].split('; or ')[:-1]


def invented(exp, mesh, run=None, like=None):
  """Replaces compilation by a simple formula for memory."""
  c, lanes = exp.config, len(run.args[2].ids) if run else COHORT
  return MEMORY._replace(
    on_host=False,
    held={
      'training data': 0 if c.feed == 'host' else 100,
      'client state': 10 if c.client_state == 'host' else 300,
      "server's state": 100 if c.server_state == 'sharded' else 200,
    },
    round=50 * (exp.clients_per_step or COHORT // 2) + 10 * lanes,
    evaluation=0,
  )


PLACES = [
  "feed to 'host'", "client_state to 'host'", "server_state to 'sharded'",
]  # fmt: skip


@pytest.mark.parametrize(
  ('limit', 'advice'),
  [
    (1290, [*PLACES, 'clients_per_step to 9']),  # of 1300
    (1195, [PLACES[1], 'clients_per_step to 7']),
    (1000, ['clients_per_step to 4']),
    (400, [' and '.join([*PLACES, 'clients_per_step to 1'])]),
    (300, [' and '.join([*PLACES, 'clients_per_step to 1', 'cohort to 14'])]),
    (150, []),
  ],
)
def test_the_mildest_change_is_advised(monkeypatch, scaffold, limit, advice):
  """At most four rounds are compiled for it, each of which takes minutes."""
  compilations = []

  def memory_of(*args, compiled=True):
    compilations.append(compiled)
    return invented(*args)

  monkeypatch.setattr(program_lib, 'memory_of', memory_of)
  assert refused(scaffold._replace(clients_per_step=10), limit) == advice
  assert sum(compilations) <= 1 + 4


def peak(exp):
  return program_lib.memory_of(exp, mesh()).device_peak


def test_chunks_are_chosen_unless_a_run_is_private(
  monkeypatch, scaffold, capsys
):
  """Catches accelerators that refuse a run; a private one they must refuse."""
  monkeypatch.setattr(program_lib, 'memory_of', lambda *x, **_: invented(*x))
  whole = scaffold._replace(clients_per_step=None)
  have = memory_lib.Available(1000, None)
  preflight.check(whole, mesh(), have=have)
  assert 'It fits with clients_per_step=4' in capsys.readouterr().err
  private = built(**PRIVATE)._replace(clients_per_step=None)
  assert any('clients_per_step' in text for text in refused(private, 1195))


@pytest.mark.nightly
def test_devices_that_cannot_hold_all_clients_at_once_work_on_chunks(
  monkeypatch, tmp_path, capsys
):
  """Catches chunks that do not fit, and ones that train another model."""
  chunks = built(**SAFL, model_options={'widths': (256,)}, server_lr=0.01)
  whole = chunks._replace(clients_per_step=None)
  limit = (peak(whole) + peak(chunks._replace(clients_per_step=1))) // 2
  have = memory_lib.Available(limit, None)
  monkeypatch.setattr(memory_lib, 'available', lambda device: have)
  params = [
    training.train(exp, tmp_path / name, progress=False).state.params
    for name, exp in (('chunks', chunks), ('whole', whole))
  ]
  chex.assert_trees_all_close(*params, atol=1e-4)
  note = capsys.readouterr().err
  (lanes,) = map(int, re.findall(r'fits with clients_per_step=(\d+)', note))
  assert 1 <= lanes < COHORT // 2
  assert peak(whole._replace(clients_per_step=lanes)) <= limit


@pytest.mark.parametrize(
  ('lack', 'n'),
  [
    (lambda n: 10 * n - 55, 5),
    (lambda n: n - 1000, 99),
    (lambda n: n + 1, 0),
    (lambda n: n**0.5 - 5.5, 25),  # no straight line: 50, then 25
    (lambda n: -5 if n == 1 else 0.1 * n, 1),
  ],
)
def test_the_largest_number_that_fits(lack, n):
  assert preflight._largest(100, 1, lack(100), lack) == n


FREE = {'proc/meminfo': 'MemTotal:  9000 kB\nMemAvailable:    4000 kB\n'}
V1 = {
  'proc/self/cgroup': '4:memory:/a/b\n3:cpuset:/\n0::/\n',
  'cgroup/memory/a/b/memory.limit_in_bytes': '9223372036854771712',
  'cgroup/memory/a/memory.limit_in_bytes': '3072',
}
V2 = {'proc/self/cgroup': '0::/x\n'}


@pytest.mark.parametrize(
  ('files', 'kib'),
  [
    ({}, None),
    (FREE, 4100),  # with what the process has
    (FREE | V2 | {'cgroup/x/memory.max': 'max'}, 4100),
    (FREE | V2 | {'cgroup/x/memory.max': '1024'}, 1),
    (FREE | V2 | {'cgroup/memory.max': '2048'}, 2),
    (FREE | V1, 3),
  ],
)
def test_memory_that_a_host_has(tmp_path, monkeypatch, files, kib):
  """`files`: of a fake /proc and /sys, name -> text."""
  for name, path in (('_PROC', 'proc'), ('_CGROUP', 'cgroup')):
    monkeypatch.setattr(memory_lib, name, tmp_path / path)
  files = {'proc/self/status': 'VmRSS:\t  100 kB\n'} | files
  for name, text in files.items():
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
  device = mesh().local_devices[0]
  assert memory_lib.available(device) == (None, kib and kib * 1024)


def test_a_process_knows_its_size():
  before = memory_lib.resident()
  # Of its own pages: an array may lie in those of what was freed.
  held = np.frombuffer(mmap.mmap(-1, 2**25), np.uint8)
  held[:] = 1
  assert 2**24 < memory_lib.resident() - before < 2**26
  assert held.all()


def test_the_longest_dispatch_that_is_played_is_measured():
  """Catches memory and a compilation of rounds that end at an evaluation."""
  fields = {'rounds': 25, 'rounds_per_dispatch': 100, 'eval_every': 10}
  exp = built(**SAFL | fields | {'checkpoint_every': 25})
  run = program_lib.program(exp, mesh())
  assert run.args[2].ids.shape[0] == 10
  once = dataclasses.replace(exp.config, eval_every=1)
  run = program_lib.program(exp._replace(config=once), mesh())
  assert run.args[2].ids.shape[0] == 1  # a scan, as it is played
