"""Plants the bugs of `mutants.py` in copies of the commit: who catches it?

A tier must pass without a bug before it is used. Results are kept by commit, so
that the same command goes on where it was interrupted.
"""

from collections.abc import Iterator
import contextlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from mutants import MUTANTS, Mutant

ROOT = pathlib.Path(__file__).parents[2]
# The tests of a tier, from those of the tiers below it.
TIERS = {'fast': 'not nightly and not long', 'nightly': 'nightly and not long'}


def check(root: pathlib.Path):
  """Checks that every bug can be planted in exactly one place."""
  for mutant in MUTANTS:
    text = _file(root, mutant).read_text(encoding='utf-8')
    found = text.count(mutant.old)
    if found != 1:
      raise ValueError(
        f'Expected {mutant.old!r} once in {mutant.path}, found it {found} '
        f'times: the bug {mutant.name!r} no longer applies.'
      )
    compile(text.replace(mutant.old, mutant.new), mutant.path, 'exec')


def run(commit: str, results: pathlib.Path) -> dict[str, dict[str, str]]:
  """The tier and the test that catch each bug, by its name."""
  rows = json.loads(results.read_text()) if results.exists() else {}
  passing = rows.setdefault('tiers that pass', [])
  for number, mutant in enumerate(MUTANTS, 1):
    if mutant.name not in rows:
      rows[mutant.name] = _caught(mutant, commit, passing)
      partial = results.with_suffix('.partial')
      partial.write_text(json.dumps(rows, indent=1))
      partial.replace(results)
    print(
      f'{number}/{len(MUTANTS)}', mutant.name, rows[mutant.name], flush=True
    )
  return rows


def _caught(mutant: Mutant, commit: str, passing: list[str]) -> dict[str, str]:
  """The tier and the test that catch a bug; adds to the tiers that pass."""
  tests = mutant.near or mutant.path.partition('/')[0]
  near = [f'tests/{tests}', f'fl_sketch/{mutant.path}']
  for tier in TIERS:
    if tier not in passing:
      with _copy(commit) as copy:
        if test := _first_failure(copy, tier, []):
          raise RuntimeError(f'{test} fails without a bug.')
      passing.append(tier)
    with _copy(commit) as copy:
      check(copy)
      file = _file(copy, mutant)
      text = file.read_text(encoding='utf-8')
      file.write_text(text.replace(mutant.old, mutant.new), encoding='utf-8')
      for paths in (near, []):
        if test := _first_failure(copy, tier, paths):
          return {'tier': tier, 'test': test}
  return {'tier': 'none below long', 'test': ''}


@contextlib.contextmanager
def _copy(commit: str) -> Iterator[pathlib.Path]:
  """The files of a commit, in a folder of their own."""
  archive = subprocess.check_output(['git', 'archive', commit], cwd=ROOT)
  with tempfile.TemporaryDirectory() as folder:
    subprocess.run(['tar', '-x', '-C', folder], input=archive, check=True)
    yield pathlib.Path(folder)


def _first_failure(copy: pathlib.Path, tier: str, paths: list[str]) -> str:
  """The first test that fails; '' if all pass."""
  command = [
    *(sys.executable, '-m', 'pytest', '-n', '2', '--dist', 'loadgroup', '-x'),
    *('-m', TIERS[tier], '--deselect', 'tests/test_mutants.py', *paths),
  ]
  done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
  line = r'^(?:FAILED|ERROR) (\S+::.+?)(?:@[^@]*?)?(?: - .*)?$'
  if failed := re.search(line, done.stdout, re.MULTILINE):
    return failed[1]
  if done.returncode not in (0, 5):  # 5: the tier has no test in these paths
    raise RuntimeError(f'{command} failed:\n{done.stdout}\n{done.stderr}')
  return ''


def _file(root: pathlib.Path, mutant: Mutant) -> pathlib.Path:
  return root / 'fl_sketch' / mutant.path


if __name__ == '__main__':
  git = lambda *args: subprocess.check_output(
    ['git', *args], cwd=ROOT, text=True
  )
  if git('status', '--porcelain', '--untracked-files=no'):
    sys.exit('Expected no uncommitted changes: bugs go into the last commit.')
  check(ROOT)
  head = git('rev-parse', 'HEAD').strip()
  out = ROOT / 'runs' / 'mutations' / f'{head[:7]}.json'
  out.parent.mkdir(parents=True, exist_ok=True)
  rows = run(head, out)
  missed = [x.name for x in MUTANTS if not rows[x.name]['test']]
  sys.exit(f'Not caught: {missed}' if missed else 0)
