"""The secret of a private run: its permissions, and when a run needs it."""

import functools
import hashlib
import itertools
import os
import stat

from fl_sketch.privacy.mechanisms import generators
from fl_sketch.runs import config, noise_secret, workdir
import jax
import numpy as np
import pytest

from tests.runs.training.test_private_runs import PRIVATE

PROBLEM = {'data': 'a', 'source of fl_sketch': 'b', 'jax': '0'}


def of_run(folder, c=None, *, problem=PROBLEM, resumed=False, **fields):
  c = c or config.Config(**PRIVATE | fields)
  return noise_secret.of_run(c, problem, folder, resumed=resumed)


def words(key):
  return tuple(np.asarray(jax.random.key_data(key)).tolist())


def same(*roots):
  return len({(words(s.noise_key), s.sampling_seed) for s in roots}) == 1


def are_distinct(roots):
  keys = {words(s.noise_key) for s in roots}
  return len(keys) == len({s.sampling_seed for s in roots}) == len(roots)


@pytest.fixture
def entropy(tmp_path):
  """The file of the secret of a run that has just begun."""
  noise_secret.keep(tmp_path, resumed=False)
  return tmp_path / 'secret' / 'entropy'


def test_only_the_owner_reads_the_secret(tmp_path):
  """Catches a file that the permissions of a careless user open to others."""
  old = os.umask(0)
  try:
    noise_secret.keep(tmp_path, resumed=False)
  finally:
    os.umask(old)
  path = tmp_path / 'secret' / 'entropy'
  assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
  assert stat.S_IMODE(path.stat().st_mode) == 0o600
  assert (path.stat().st_size, [*path.parent.iterdir()]) == (32, [path])


def test_every_run_draws_a_secret_and_reads_it_again(tmp_path):
  folders = [tmp_path / str(i) for i in range(20)]
  roots = [noise_secret.keep(folder, resumed=False) for folder in folders]
  assert are_distinct(roots)
  assert all(len(s.sampling_seed) == 32 for s in roots)
  for resumed in False, True:
    again = (noise_secret.keep(folder, resumed=resumed) for folder in folders)
    assert all(map(same, roots, again))


def test_every_bit_of_the_entropy_reaches_both_roots(entropy):
  """Catches roots of a generator that use some bytes of the file alone."""
  whole = entropy.read_bytes()
  folder = entropy.parent.parent
  keep = lambda: noise_secret.keep(folder, resumed=True)
  found = [keep()]
  # All bits of the hash count as well: they would else be fewer than 256.
  roots = generators.roots(hashlib.sha256(whole).digest())
  assert same(found[0], roots)
  for i in range(0, 256, 7):
    changed = bytearray(whole)
    changed[i // 8] ^= 1 << i % 8
    entropy.write_bytes(changed)
    found.append(keep())
  assert are_distinct(found)


@pytest.mark.parametrize('resumed', [False, True])
def test_a_secret_that_is_open_or_damaged_is_refused(entropy, resumed):
  """Catches noise that others know, or that has fewer bits."""
  keep = lambda: noise_secret.keep(entropy.parent.parent, resumed=resumed)
  refused = lambda: pytest.raises(noise_secret.SecretError, match='entropy')
  for mode in 0o640, 0o604, 0o620, 0o601:
    entropy.chmod(mode)
    with refused():
      keep()
  entropy.chmod(0o600)
  for length in 31, 33:
    entropy.write_bytes(b'1' * length)
    with refused():
      keep()
  entropy.unlink()
  with refused():
    noise_secret.keep(entropy.parent.parent, resumed=True)
  assert not entropy.exists()
  entropy.parent.rmdir()
  entropy.parent.write_text('')  # where no secret can be written
  with refused():
    keep()


def test_the_secret_of_what_has_ended_is_deleted(entropy):
  """Catches a run that cannot resume, and noise of an empty file."""
  folder, before = entropy.parent.parent, entropy.read_bytes()
  refused = lambda: pytest.raises(ValueError, match=str(folder))
  (folder / 'config.json').write_text('{"rounds": 3}')
  (folder / 'metrics.jsonl').write_text('{"round": 2}\n')
  with refused():
    noise_secret.forget(folder)
  with workdir.lock(folder), refused():
    noise_secret.forget(folder, unfinished=True)
  assert entropy.read_bytes() == before
  noise_secret.forget(folder, unfinished=True)
  for name, text in ('summary', '{"round": 2}'), ('sweep', '{}'):
    entropy.write_bytes(before)
    (folder / f'{name}.json').write_text(text)
    noise_secret.forget(folder)
    assert entropy.read_bytes() == b''
    (folder / f'{name}.json').unlink()
  for resumed in False, True:
    with refused():
      noise_secret.keep(folder, resumed=resumed)
  with refused():
    noise_secret.forget(entropy.parent)


@pytest.mark.parametrize('broken', ['fdopen', 'replace'])
def test_an_interrupted_write_leaves_nothing_half_made(
  tmp_path, monkeypatch, broken
):
  with monkeypatch.context() as patch:
    patch.setattr(os, broken, lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
      noise_secret.keep(tmp_path, resumed=False)
  path = tmp_path / 'secret' / 'entropy'
  assert not path.exists()
  first = noise_secret.keep(tmp_path, resumed=False)
  assert (path.stat().st_size, [*path.parent.iterdir()]) == (32, [path])
  assert same(first, noise_secret.keep(tmp_path, resumed=True))


def test_a_noise_seed_makes_the_same_secret_again(tmp_path):
  """Catches seeds that share their randomness."""
  seeds = [*itertools.product(range(10), range(2))]
  roots, again = (
    [*itertools.starmap(noise_secret.reproducible, seeds)] for _ in range(2)
  )
  assert are_distinct(roots)
  assert all(map(same, roots, again))
  # It differs from the hash key of a run of this seed.
  assert words(roots[0].noise_key) != words(jax.random.key(0))
  for _ in range(2):
    assert same(of_run(tmp_path, noise_seed=3), noise_secret.reproducible(3))
  assert not [*tmp_path.iterdir()]


def test_a_secret_depends_on_what_a_resumed_run_must_keep(tmp_path):
  """Catches noise that is used again for other data, code or rounding."""
  of = functools.partial(of_run, tmp_path)
  assert same(of(clip_norm=1.0, rounds=50), of(clip_norm=1, rounds=100))
  changes = {}, {'seed': 1}, {'clip_norm': 0.2}, {'server_lr': 0.3}
  assert are_distinct([of(**fields) for fields in changes])
  others = [PROBLEM | {name: 'other'} for name in PROBLEM]
  assert are_distinct([of(problem=x) for x in (PROBLEM, *others, {})])
  assert same(of(), of(problem=dict(reversed(PROBLEM.items()))))
  # Where rates depend on the number of rounds, so does the secret.
  of = functools.partial(of, client_schedule='cosine')
  assert not same(of(rounds=50), of(rounds=100))


def test_a_server_whose_sites_add_the_noise_names_no_secret_of_it(entropy):
  """Catches a last line on a file without noise, and takers that are kept."""
  folder = entropy.parents[1]
  assert f'{entropy} can remove' in noise_secret.sentence(folder)
  (folder / 'sites.json').write_text('{"noise": "sites"}')
  said = noise_secret.sentence(folder)
  assert 'state folder' in said
  assert f'{entropy}' not in said
  announced = entropy.with_name(noise_secret.ANNOUNCED)
  announced.mkdir()
  noise_secret.forget(folder, unfinished=True)
  assert not announced.exists()
