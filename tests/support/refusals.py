"""Tests that bad input is refused, and in which words."""

import pytest


def refused(build, *rows, error=ValueError):
  """Returns a test of rows (argument, message): `build(argument)` raises."""

  @pytest.mark.parametrize(('argument', 'message'), rows)
  def test(argument, message):
    with pytest.raises(error, match=message):
      build(argument)

  return test


def refused_calls(*rows, error=ValueError):
  """Returns a test of rows (call, message): `call()` raises."""
  return refused(lambda call: call(), *rows, error=error)
