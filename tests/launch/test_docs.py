"""What the documents name is there."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
NAMED = re.findall(
  r'`(test_\w+\.py)::(test_\w+)`', (ROOT / 'docs' / 'faults.md').read_text()
)


@pytest.mark.parametrize(('file', 'test'), NAMED)
def test_the_fault_table_names_tests_that_are_there(file, test):
  text = next((ROOT / 'tests').rglob(file)).read_text()
  assert f'def {test}(' in text


def test_no_line_of_the_fault_table_is_without_a_test():
  lines = (ROOT / 'docs' / 'faults.md').read_text().splitlines()
  rows = [x for x in lines if x.startswith('| ') and '---' not in x]
  rows = [x for x in rows if not x.endswith('| test |')]
  assert len(rows) > 20
  assert all('.py::test_' in row for row in rows)
