"""Workloads of `fl-sketch bench round` are fed as by the training loop."""

from benchmarks import workloads
import numpy as np
import pytest


@pytest.mark.nightly
@pytest.mark.parametrize('name', list(workloads.WORKLOADS))
def test_the_loop_can_draw_a_cohort(name):
  exp = workloads.build(name, 'fedavg', 5)
  cohort = exp.sample(0, None)
  assert len(set(cohort.ids.tolist())) == exp.config.cohort
  np.testing.assert_array_equal(cohort.ids, exp.sample(0).ids)
