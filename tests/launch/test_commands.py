"""Programs that tests run in their own process."""

from absl import flags
from launch import hosts
import runs


def test_programs_do_not_share_flags():
  """Catches a test that gets the flags of the test before it."""
  before = [*flags.FLAGS]
  assert hosts.__name__ in flags.FLAGS.flags_by_module_dict()
  for _ in range(2):
    done = runs.command('reproduce', '--list', '--verbosity=1')
    assert (done.returncode, done.stderr) == (0, '')
    assert done.stdout.startswith('S0-X1 ')
  done = runs.command('reproduce')
  assert done.returncode == 1
  assert 'Expected --list, --page, or NAME' in done.stderr
  done = runs.command('train', runs.QUICK)
  assert done.returncode == 1
  assert '--workdir is required without --plan' in done.stderr
  assert sorted(flags.FLAGS) == sorted(before)
  assert hosts.__name__ in flags.FLAGS.flags_by_module_dict()
