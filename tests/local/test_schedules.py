"""Learning rates of clients by the round: NumPy twins, runs, refusals."""

import math

from fl_sketch import runs
from fl_sketch.local import schedules
from fl_sketch.runs import config
from harness import SMALL
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import refused

ROUNDS = 9
DECAYS = {
  'constant': lambda t, final: 1.0,
  'linear': lambda t, final: 1 - t * (1 - final),
  'cosine': lambda t, final: (
    final + (1 - final) * (1 + math.cos(math.pi * t)) / 2
  ),
}


@pytest.mark.parametrize('warmup', [0, 1, 4])
@pytest.mark.parametrize('kind', DECAYS)
def test_a_schedule_is_its_numpy_twin(kind, warmup):
  """Catches a round of rate 0, and a decay that begins with the warm-up."""
  final = {} if kind == 'constant' else {'final': 0.25}
  make = lambda: schedules.make(kind, rounds=ROUNDS, warmup=warmup, **final)
  found = jax.jit(jax.vmap(make()))(jnp.arange(ROUNDS))
  want = [
    (r + 1) / warmup
    if r < warmup
    else DECAYS[kind]((r - warmup) / (ROUNDS - warmup), 0.25)
    for r in range(ROUNDS)
  ]
  np.testing.assert_allclose(found, want, rtol=1e-6)
  assert min(want) > 0


@pytest.mark.covers('S1-AppG')
def test_a_config_names_its_schedule():
  """Catches a rate of another round, or of the server."""
  decayed = runs.build(SMALL | {'lr_decay': 0.5, 'client_lr': 0.8})
  at = lambda r: decayed.schedule(decayed.hyper, jnp.int32(r)).client_lr
  np.testing.assert_allclose([at(0), at(1), at(2)], [0.8, 0.4, 0.2])
  assert runs.build(SMALL).schedule is None
  cosine = 'cosine(warmup=2, final=0.1)'
  fields = SMALL | {'client_lr': 0.8, 'client_schedule': cosine}
  exp = runs.build(fields)
  of_round = lambda r: exp.schedule(exp.hyper, jnp.int32(r))
  rates = [of_round(r).client_lr for r in range(4)]
  np.testing.assert_allclose(rates, [0.4, 0.8, 0.8, 0.44], rtol=1e-6)
  assert of_round(0).server_lr == exp.hyper.server_lr
  assert exp.config.client_schedule['kind'] == 'cosine'


# Catches a decay that multiplies another, and a rate that nobody reads.
test_schedules_that_mean_nothing_are_refused = refused(
  config.Config.from_mapping,
  ({'client_schedule': 'cosine', 'lr_decay': 0.9}, 'lr_decay'),
  ({'algorithm': 'fedsgd', 'local_steps': 1, 'client_schedule': 'cosine'},
    'client_schedule'),
  error=config.ConfigError,
)  # fmt: skip
