"""Names of the past are read, each with a warning that says the new one."""

from fl_sketch import algorithms, local, rounds
from fl_sketch.rounds import aggregation, transforms as t
import jax.numpy as jnp
import pytest

HP = algorithms.Hyper(jnp.float32(0.1), jnp.float32(1.0))


def old(task, hp):
  """An algorithm that is written with keywords of the past."""
  return rounds.federated(
    task.steps(hp),
    aggregation.mean_over_cohort(),
    t.broadcast(),
    drift=len,
    everyone=3,
    moved=str,
  )


def test_arguments_of_the_past_are_those_of_today(own_parts):
  """Catches an own algorithm of an earlier release that no longer loads."""
  with pytest.warns(FutureWarning, match="'everyone' is now called 'full_par"):
    algorithms.register(old, everyone=True)
  assert algorithms.entry('old').full_participation is True
  with pytest.warns(FutureWarning) as warned:
    made = old(local.Task(lambda w, x: ((w - x) ** 2).sum()), HP)
  assert (made.correction, made.full_participation) == (len, 3)
  assert made.update_template is str
  said = {str(w.message) for w in warned}
  assert "The argument 'drift' is now called 'correction'." in said
  assert len(said) == 3


def test_an_attribute_of_the_past_is_found():
  """Catches a constant that went with its old name."""
  with pytest.warns(FutureWarning, match="'PADDING_ID'"):
    assert rounds.NOBODY == rounds.PADDING_ID
  with pytest.raises(AttributeError, match='absent'):
    rounds.absent  # noqa: B018
