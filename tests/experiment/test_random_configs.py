"""Any config is built, or refused in one line that names its fault."""

import collections

import pytest
import random_configs

# The warnings are those of a config that is built.
pytestmark = pytest.mark.filterwarnings('ignore')


def check(seeds, **shares):
  """Returns how many were refused, by the type of the error."""
  counts = collections.Counter()
  for seed in seeds:
    written, refusal, message = random_configs.outcome(seed, **shares)
    counts[refusal] += 1
    lines = 1 if refusal else 0
    assert len(message) <= 200, (seed, written, message)
    assert len(message.splitlines()) == lines, (seed, written, message)
  return counts


def test_random_configs_are_built_or_refused():
  """Catches a traceback, or a page of names, for a wrong field."""
  counts = check(range(300), flags=0.1, built=0.3)
  assert counts[''] > 60
  assert counts['ConfigError'] > 100
  assert counts['SystemExit'] > 5


@pytest.mark.long
@pytest.mark.parametrize('part', range(20))
def test_many_random_configs_are_built_or_refused(part):
  """As above, of rarer faults."""
  check(range(1000 * (part + 1), 1000 * (part + 2)))
