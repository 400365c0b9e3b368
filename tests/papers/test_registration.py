"""A result is refused unless it is of a registration older than its runs."""

import subprocess

import numpy as np
from papers.common import registration, verdicts
import pytest

TEXT = """\
seeds = [7, 8, 9]
[[claim]]
key = 'ahead'
text = 'points ahead'
relation = '>='
bound = 0.5
"""
NAME, IDENTITY = 'X-1', ('-c', 'user.name=a', '-c', 'user.email=a@b.c')


@pytest.fixture
def git(tmp_path, monkeypatch):
  """Registers X-1 in a repository of its own; returns a call of git there."""
  folder = tmp_path / 'registered'
  folder.mkdir()
  monkeypatch.setattr(registration, 'FOLDER', folder)

  def call(*arguments):
    command = ['git', '-C', str(tmp_path), *IDENTITY, *arguments]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    return run.stdout.strip()

  def commit():
    call('add', '.')
    call('commit', '--allow-empty', '-qm', 'x')
    return call('rev-parse', 'HEAD')

  call('init', '-q')
  call.commit, call.path = commit, folder / f'{NAME}.toml'
  return call


def result(commit):
  registered = registration.read(NAME)
  return {'name': NAME, 'commit': commit, 'registered': registered}


def test_a_registration_is_older_than_its_runs(git):
  """Catches claims that were written down after the numbers were seen."""
  before = git.commit()
  git.path.write_text(TEXT)
  own, after = git.commit(), git.commit()
  for commit in (own, after, f'{after}-dirty'):
    registration.check(result(commit))
  for found in result(before), result(after) | {'began': before}:
    with pytest.raises(registration.RegistrationError, match='younger'):
      registration.check(found)


def test_a_result_is_of_its_registration(git):
  """Catches a bound that was moved after the runs, and a file that is gone."""
  git.path.write_text(TEXT)
  found = result(git.commit())
  move = lambda: git.path.write_text(TEXT.replace('0.5', '0.4'))
  for change in move, git.path.unlink:
    change()
    with pytest.raises(registration.RegistrationError, match='another'):
      registration.check(found)
  registration.check({'name': NAME, 'commit': None})  # never registered


def test_no_claim_is_dropped_or_added(git):
  """Catches a claim that leaves, or comes, after its number was seen."""
  git.path.write_text(TEXT)
  registered = registration.read(NAME)
  values = np.array([1.0, 1.1, 1.2])
  (claim,) = registration.claims(registered, {'ahead': values})
  assert claim == verdicts.of_seeds('points ahead', values, '>=', 0.5)
  for found in ({}, {'behind': values}, {'ahead': values, 'more': values}):
    with pytest.raises(registration.RegistrationError, match='registered are'):
      registration.claims(registered, found)
