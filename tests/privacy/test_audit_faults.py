"""Audits of kinds of private rounds, right (at 1e-6) and broken (at 0.05)."""

import audit_games as common
from fl_sketch import algorithms, sketches
from fl_sketch.privacy.accounting import types
from fl_sketch.privacy.auditing import canaries
import pytest

D = 32
TABLE = sketches.block_cyclic(8)
# Algorithm, settings of its release, its sketch.
CASES = {
  'dp_fedavg': ('dp_fedavg', {}, None),
  'dp_normfedavg': ('dp_normfedavg', {}, None),
  'before': ('iterative_sketching', {'before_sketch': True}, TABLE),
  'samples': ('private_iterative_sketching', {}, TABLE),
}  # fmt: skip
SAMPLED = {'steps': 20, 'q': 0.2, 'population': 10}
# A case, its claim, and what part of the noise is found to be too little.
GAMES = [
  ('dp_normfedavg', SAMPLED, 0.85), ('before', {}, 0.85),
  ('samples', SAMPLED | {'q': 0.25, 'population': 8, 'unit': 'sample'}, 0.6),
  ('dp_fedavg', {
    'steps': 20, 'sampling': types.Sampling.RANDOM_ALLOCATION, 'epoch_steps': 5,
    'population': 10,
  }, 0.7),
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(('case', 'fields', 'less'), GAMES)
def test_a_round_hides_what_it_claims_and_no_more(case, fields, less):
  """Catches noise of an algorithm, or coins of a game, unlike the claim's."""
  (name, release, sketch), claimed = CASES[case], common.claim(**fields)
  options = {} if sketch is None else {'sketch': sketch}
  steps = 4 if case == 'samples' else 1
  if case == 'samples':
    make = algorithms.make(
      name, canaries.inner_product, local_steps=4, expected_batch=2, **options
    )
  else:
    make = common.algorithm(name, claimed, release, **options)
  turns, canary = claimed.steps // steps, None
  if sketch is not None:
    canary = common.adversarial(sketch, turns, D)
  for noise in 1.0, less:
    game = common.game_of(make, claimed, noise, D, canary)
    game = game._replace(steps_per_round=steps)
    report = common.play(game, 0.05 if noise < 1 else common.NEVER)
    assert report.violated == (noise < 1), report.text()
