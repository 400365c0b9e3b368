"""What the documents name is there."""

import re

from runs import ROOT


def test_every_line_of_the_fault_table_names_tests_that_are_there():
  lines = (ROOT / 'docs' / 'guides' / 'faults.md').read_text().splitlines()
  rows = [x for x in lines if x.startswith('| ') and '---' not in x]
  rows = [x for x in rows if not x.endswith('| test |')]
  assert len(rows) > 20
  for row in rows:
    tests = re.findall(r'`(test_\w+\.py)::(test_\w+)`', row)
    assert tests, row
    for file, test in tests:
      texts = (x.read_text() for x in (ROOT / 'tests').rglob(file))
      assert any(f'def {test}(' in text for text in texts), row
