"""Tests that bad input is refused, and in which words."""

from hypothesis import given, settings, strategies as st
import pytest


def refused(build, *rows, error=ValueError):
  """Returns a test of rows (argument, message): `build(argument)` raises."""

  @pytest.mark.parametrize(('argument', 'message'), rows)
  def test(argument, message):
    with pytest.raises(error, match=message):
      build(argument)

  return test


def counts_below_one(module, counts):
  """Returns a test of calls that are valid: factory -> options that count."""
  no_count = st.one_of(st.integers(max_value=0), st.floats())

  @settings(deadline=None, derandomize=True, max_examples=50)
  @given(st.sampled_from(sorted(counts)), st.data())
  def test(name, data):
    option = data.draw(st.sampled_from(sorted(counts[name])))
    bad = counts[name] | {option: data.draw(no_count)}
    with pytest.raises(ValueError, match=option):
      getattr(module, name)(**bad)

  return test
