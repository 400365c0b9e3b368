"""Outer steps through a hub, of sites in threads of one process."""

import concurrent.futures
import contextlib
import shutil
import subprocess
import sys
import threading
import time
from typing import Any

from fl_sketch.sites import hosted, hub, outer_rounds
import harness
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.distributed import test_meshes as outer_steps

SITES = 3
STEPS = 12
SIGN = 'sign(error_feedback=True)'


@contextlib.contextmanager
def serving(folder, address='tcp://127.0.0.1:*', **options):
  """A hub that serves in a thread."""
  made = hub.Hub(address, folder, **{'sites': SITES, 'silence': 1.0} | options)
  with concurrent.futures.ThreadPoolExecutor(1) as pool:
    served = pool.submit(made.serve)
    try:
      yield made
    finally:
      made.stop()
      served.result()


def flat(tree):
  return np.concatenate([np.ravel(x) for x in tree.values()])


def local_step(place, number):
  """A step of gradient descent with decay, as of the twin."""
  x = flat(place)
  a, b = outer_steps.A[number], outer_steps.B[number]
  x = x - outer_steps.RATE * (a.T @ (a @ x - b) + x / 2)
  parts = np.split(np.float32(x), [4, 8])
  return {
    k: jnp.reshape(part, old.shape)
    for (k, old), part in zip(place.items(), parts, strict=True)
  }


def site_of(address, number, compressor='dense', **options: Any):
  options = {'every': 2, 'patience': 20} | options
  params = outer_steps.PARAMS
  return hosted.Site(address, number, params, compressor, **options)


def play(address, number, steps=STEPS, step=local_step, **options):
  """A site's places and anchors after every step, and its last state."""
  rows = []
  with site_of(address, number, **options) as site:
    place, _ = site.begin()
    for _ in range(steps):
      place = site.exchange(step(place, number))
      rows.append([flat(site.shared.params), flat(place)])
  return np.array(rows), site.shared


def played(address, numbers=range(SITES), **options):
  with concurrent.futures.ThreadPoolExecutor(len(numbers)) as pool:
    run = lambda number: play(address, number, **options)
    return [*pool.map(run, numbers)]


def bits(tree):
  return [np.asarray(x).tobytes() for x in jax.tree.leaves(tree)]


@pytest.mark.parametrize(('every', 'delay', 'blend'), [
  (4, 0, 0.0), (5, 2, 0.5),
  pytest.param(4, 3, 0.0, marks=pytest.mark.nightly),
])  # fmt: skip
def test_is_the_numpy_twin_of_outer(every, delay, blend, tmp_path):
  """Catches a mean of some sites, a round that is applied early or twice."""
  options = {'every': every, 'delay': delay, 'blend': blend}
  with serving(tmp_path) as made:
    got = played(made.address, **options)
  want = np.array([*outer_steps.twin(STEPS, fragments=1, **options)])
  for number, (rows, _) in enumerate(got):
    np.testing.assert_allclose(rows, want[:, :, number], 2e-5, atol=2e-6)


def test_anchors_and_the_replayed_log_have_the_same_bits(tmp_path):
  """Catches an order of arrival in a sum, and a log without a payload."""
  with serving(tmp_path) as made:
    got = played(made.address, compressor=SIGN)
  again = outer_rounds.replay(tmp_path, outer_steps.PARAMS, SIGN)
  for _, shared in got:
    assert bits(shared) == bits(again)


@pytest.mark.parametrize('snapshot_every', [2, 100])
def test_who_comes_late_or_again_has_the_bits_of_all(snapshot_every, tmp_path):
  """Catches a state of another round than the log goes on with."""
  options = {'sites': 2, 'snapshot_every': snapshot_every}
  with serving(tmp_path / 'hub', **options) as made:
    kept = {'folder': tmp_path / '0', 'save_every': 1}
    alone = lambda n: play(made.address, n, 6, **(kept if n == 0 else {}))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
      (rows, shared), _ = pool.map(alone, range(2))
    assert (tmp_path / 'hub/state.bin').exists() == (snapshot_every == 2)
    for number, options in (2, {}), (0, kept):
      with site_of(made.address, number, **options) as site:
        place, _ = site.begin()
        assert site.round == len(made.log) == 3
        assert bits(site.shared) == bits(shared)
    np.testing.assert_array_equal(flat(place), rows[-1, 1])


def test_a_round_without_a_site_leaves_it_what_it_moved_by():
  """Catches steps that are lost, and memory of what was never sent."""
  place, before, after = (
    {'w': jnp.ones(3)},
    {'w': jnp.zeros(3)},
    {'w': jnp.full(3, 2.0)},
  )
  away = hosted._follow(0.5, place, before, after, False)
  np.testing.assert_array_equal(away['w'], 3.0)  # as far from the anchor


def test_a_killed_hub_goes_on_with_its_log(tmp_path):
  """Catches rounds that are lost, or played again, after a restart."""
  reached, back = threading.Barrier(SITES + 1), threading.Event()
  steps = dict.fromkeys(range(SITES), 0)

  def step(place, number):
    steps[number] += 1
    if steps[number] == 7:  # three rounds are closed
      reached.wait(20)
      back.wait(20)
    return local_step(place, number)

  with concurrent.futures.ThreadPoolExecutor(SITES) as pool:
    with serving(tmp_path) as made:
      run = lambda number: play(made.address, number, step=step)
      sites = [pool.submit(run, number) for number in range(SITES)]
      reached.wait(20)
    log = tmp_path / hub.LOG
    log.write_bytes(log.read_bytes() + log.read_bytes()[:99])  # half a round
    with serving(tmp_path, made.address) as made:
      back.set()
      got = [site.result() for site in sites]
    assert len(made.log) == STEPS // 2
  again = outer_rounds.replay(tmp_path, outer_steps.PARAMS, 'dense')
  assert all(bits(shared) == bits(again) for _, shared in got)


def test_a_lost_payload_is_sent_again(tmp_path, monkeypatch):
  """Catches a round that waits for what was lost on the way."""
  answer, lost = hub.Hub._answer, []

  def lose_first(self, site, kind, *frames):
    if kind != hub.PAYLOAD or lost:
      answer(self, site, kind, *frames)
    lost.extend([site] * (kind == hub.PAYLOAD))

  monkeypatch.setattr(hub.Hub, '_answer', lose_first)
  with serving(tmp_path) as made:
    played(made.address, steps=2)
    assert len(made.log) == 1


def test_lost_rounds_are_sent_again(tmp_path, monkeypatch):
  """Catches a site that waits for ever, or applies the round after."""
  send, lost = hub.Hub._send, []

  def lose_first(self, site, kind, *frames):
    if kind != hub.ROUND or site in lost:
      send(self, site, kind, *frames)
    lost.extend([site] * (kind == hub.ROUND))

  monkeypatch.setattr(hub.Hub, '_send', lose_first)
  with serving(tmp_path) as made:
    got = played(made.address)
  assert {*lost} == {b'0', b'1', b'2'}
  again = outer_rounds.replay(tmp_path, outer_steps.PARAMS, 'dense')
  assert all(bits(shared) == bits(again) for _, shared in got)


def test_a_payload_of_an_earlier_start_is_that_of_its_site(tmp_path):
  """Catches a site that adds up what it would have sent, not what counts."""
  steps, ready = [], threading.Event()

  def other(place, number):
    steps.append(number)
    if steps.count(0) == 2:  # site 0 comes to the end of round 0 before site 1
      ready.set()
    assert number == 0 or ready.wait(20)
    return local_step(local_step(place, number), number)

  with serving(tmp_path, sites=2) as made:
    with site_of(made.address, 0, delay=1) as early:
      place, _ = early.begin()
      for _ in range(2):
        place = early.exchange(local_step(place, 0))
    while not made._payloads:
      time.sleep(0.01)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
      run = lambda number: play(made.address, number, 2, step=other)
      got = [*pool.map(run, range(2))]
  again = outer_rounds.replay(tmp_path, outer_steps.PARAMS, 'dense')
  assert all(bits(shared) == bits(again) for _, shared in got)


def test_what_is_not_finite_stays_with_its_site(tmp_path):
  """Catches one diverged site that takes all others along."""
  nan = lambda place, number: jax.tree.map(lambda x: x * np.nan, place)
  with serving(tmp_path, sites=2) as made:
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
      bad = pool.submit(play, made.address, 1, step=nan)
      good = pool.submit(play, made.address, 0)
      with pytest.raises(ValueError, match='not finite'):
        bad.result()
      assert np.isfinite(good.result()[0]).all()


def test_a_site_of_another_run_is_refused(tmp_path):
  """Catches sites with other draws, whose anchors would part."""
  with serving(tmp_path, sites=1) as made:
    play(made.address, 0, 2)
    with pytest.raises(ValueError, match='another run'):
      play(made.address, 1, 2, seed=1)
    play(made.address, 2, 2, folder=tmp_path / '2', save_every=1)
    for number, seed in (2, 1), (3, 0):
      with pytest.raises(ValueError, match='another folder'):
        play(made.address, number, 2, folder=tmp_path / '2', seed=seed)


def test_only_sites_with_a_key_are_answered(tmp_path):
  """Catches a hub that takes payloads of whoever finds its address."""
  auth = pytest.importorskip('zmq.auth')
  for folder in 'hub/sites', 'site':
    (tmp_path / folder).mkdir(parents=True)
  hub_key, _ = auth.create_certificates(tmp_path / 'hub', 'hub')
  shutil.copy(hub_key, tmp_path / 'site')
  site_key, _ = auth.create_certificates(tmp_path / 'site', 'site')
  shutil.copy(site_key, tmp_path / 'hub/sites')
  keys = {'keys': tmp_path / 'hub'}
  with serving(tmp_path / 'log', sites=1, **keys) as made:
    play(made.address, 0, 2, keys=tmp_path / 'site')
    with pytest.raises(TimeoutError, match='silent'):
      play(made.address, 1, 2, patience=0.5)
    assert len(made.log) == 1


def test_what_is_no_message_is_refused(tmp_path):
  """Catches a hub that one damaged message ends."""
  zmq = pytest.importorskip('zmq')
  with serving(tmp_path) as made, zmq.Context() as context:
    with context.socket(zmq.DEALER) as socket:
      socket.connect(made.address)
      joins = [hub.ALIVE, bytes(16), hub.THERE.pack(-1, -1, 0)]
      socket.send_multipart(joins)
      assert socket.recv_multipart()[0] == hub.OPEN
      for frames in (
        [hub.ALIVE],
        [hub.ALIVE, b'', b''],
        [hub.PAYLOAD, b'x' * 99],
      ):
        socket.send_multipart(frames)
        kind, text = socket.recv_multipart()
        assert kind == hub.REFUSED
        assert b'malformed' in text
    assert not len(made.log)


@pytest.mark.nightly
def test_processes_are_killed_and_come_back(tmp_path):
  """Catches the guide's program, and what threads of one process hide."""
  (tmp_path / 'text').write_text('abcdefgh ' * 100)
  start = lambda *args: stack.enter_context(
    subprocess.Popen([sys.executable, *map(str, args)], cwd=harness.ROOT)
  )
  hub_at = f'tcp://127.0.0.1:{harness.free_port()}'
  options = '--rounds=12', '--every=4', '--delay=2', '--compressor=sign'
  site = lambda i: start(
    harness.ROOT / 'docs/examples/elastic_site.py', hub_at, i,
    tmp_path / 'text', tmp_path / f'{i}', *options,
  )  # fmt: skip
  rows = lambda i: (tmp_path / f'{i}/metrics.jsonl').read_text().count('\n')
  with contextlib.ExitStack() as stack:
    flags = '--workdir', tmp_path / 'hub', '--address', hub_at
    flags += '--sites=2', '--deadline=30'
    serves = start('-m', 'launch', 'hub', *flags)
    stack.callback(serves.terminate)
    sites = [site(i) for i in range(2)]
    stack.callback(lambda: [x.kill() for x in sites])
    while not (tmp_path / '1/metrics.jsonl').exists() or rows(1) < 3:
      assert sites[1].poll() is None
      time.sleep(0.05)
    sites[1].kill()
    sites[1] = site(1)
    assert [x.wait(300) for x in sites] == [0, 0]
  assert len(hub.Log(tmp_path / 'hub' / hub.LOG)) >= 12
