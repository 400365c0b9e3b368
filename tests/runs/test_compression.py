"""The advised compressors, against what they then do."""

from fl_sketch import codecs, runs, sketches
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.runs import compression, config, plan as plan_lib
from fl_sketch.utils import registry
import jax
import jax.numpy as jnp
import numpy as np
import pytest

CONFIG = {
  'model_options': {'widths': (32,)}, 'population': 6, 'cohort': 4, 'rounds': 1,
}  # fmt: skip
D = 64 * 32 + 32 + 32 * 10 + 10
UPDATES = np.random.default_rng(0).normal(1, 2, (4, D)).astype(np.float32)
BUDGETS = (132, None), (None, 132), (132, 132), (132, 1000)


def advise(up, down, fields=CONFIG):
  budgets = {'uplink_bytes': up, 'downlink_bytes': down}
  return compression.advise_compression(fields, **budgets)


@pytest.fixture
def drawn(monkeypatch):
  """Random updates in place of those of clients, which take a second."""
  monkeypatch.setattr(compression, '_updates', lambda *_: UPDATES)


def noise_of(choice):
  """Build (key, updates) -> ||D - x||^2 / ||x||^2, for D, x of a `Choice`."""
  op = sketches.make(**registry.parse_call(choice.sketch))
  up, down = (
    codecs.make(**registry.parse_call(text or 'identity'))
    for text in (choice.codec, choice.downlink_codec)
  )

  def read(codec, key, table):
    return codec.decode(key, codec.encode(key, table), table)

  def noise(key, updates):
    mean, keys = updates.mean(0), jax.random.split(key, len(updates) + 1)
    of_client = lambda x: read(up, x[0], op.sketch(key, x[1]))
    tables = jax.lax.map(of_client, (keys[1:], updates))
    error = op.desketch(key, read(down, keys[0], tables.mean(0)), mean) - mean
    return jnp.square(error).sum() / jnp.square(mean).sum()

  # A program takes longer to compile than to run.
  fast = {'xla_backend_optimization_level': 0}
  return jax.jit(noise, compiler_options=fast)


@pytest.mark.nightly
@pytest.mark.parametrize(('up', 'down'), BUDGETS)
def test_choices_have_their_noise(up, down):
  """Catches clients' noise that is forgotten, or counted n times."""
  # A draw deviates by 24 % or less, that of block_cyclic(size=33): 15 % are 5.3
  # standard errors of the mean of 72, 1e-7 to miss one.
  keys = jax.random.split(jax.random.key(0), 72)
  updates = compression._updates(CONFIG, None, None)
  for choice in advise(up, down):
    noise = noise_of(choice)
    measured = np.mean([noise(key, updates) for key in keys])
    assert measured == pytest.approx(choice.alpha, rel=0.15), choice


def test_each_budget_has_its_own_winner(drawn):
  """Catches a direction that is left out, or has no limit."""
  for up, down in BUDGETS:
    choices = advise(up, down)
    assert all(c.up <= (up or 4 * D) for c in choices)
    assert all(c.down <= (down or 4 * D) for c in choices)
    rounded = [round(choice.cosine, 2) for choice in choices]
    assert rounded == sorted(rounded, reverse=True)
    assert choices[-1].sketch == 'block_cyclic(size=33)'  # plain tables
  up, down, both, _ = (advise(*budgets)[0][:5] for budgets in BUDGETS)
  part, table = 'eden(bits=1, num_coordinates=1024)', 'block_srht(size=1024)'
  coded = lambda bits: f'eden(bits={bits}, rotate=False)'
  assert up == ('identity', part, 'eden(bits=3)', 132, 910)
  assert down == (table, coded(4), 'eden(bits=1)', 516, 132)
  assert both == (table, coded(1), 'eden(bits=1)', 132, 132)


@pytest.mark.nightly
@pytest.mark.parametrize('row', [0, 1, -1])
def test_a_run_of_a_choice_has_its_bytes(row, drawn):
  """Catches parts that no config takes, and bytes that no run has."""
  choice = advise(132, 1000)[row]
  parts = dict(zip(choice._fields[:3], choice, strict=False))
  adam = {'algorithm': 'safl', 'server_optimizer': 'adam'}
  exp = runs.build(config.Config(**CONFIG, **adam, **parts))
  up, down = plan_lib.wire(exp, mesh_lib.cohort_mesh())
  assert ({*up}, {*down}) == ({choice.up}, {choice.down})


def test_too_few_bytes_are_refused(drawn):
  """Catches a table without an entry, or a budget that one could meet."""
  for *budgets, name in (3, None, 'uplink_b'), (9, 3, 'downlink_b'):
    with pytest.raises(config.ConfigError, match=name):
      advise(*budgets)
  for budget in (4, 5):
    choices = advise(budget, None)
    assert (len(choices) == 1) == (budget == 4)
    assert max(c.up for c in choices) == budget


def test_clients_that_send_updates_are_advised_and_no_others():
  """Catches updates of SGD for slopes, and a state of local work refused."""
  with pytest.raises(ValueError, match='decomfl'):
    advise(132, None, fields=CONFIG | {'algorithm': 'decomfl'})
  adamw = {'kind': 'adamw', 'keep_state': True}
  assert advise(132, None, fields=CONFIG | {'local_optimizer': adamw})


LARGE = 2**14
KEY = jax.random.key(3)
X = np.float32(np.exp(2 * np.random.default_rng(4).standard_normal(LARGE)))


@pytest.mark.nightly
def test_cosine_of_a_momentum_step():
  """Catches a formula for another mean, such as one that is not corrected."""
  x, size = X / np.linalg.norm(X), LARGE // 100
  op = sketches.block_srht(size)
  alpha = compression.table_alpha(LARGE, size)

  def one(average, key):
    estimate = op.desketch(key, op.sketch(key, x), x)
    average = 0.9 * average + 0.1 * estimate
    return average, (average @ x) / jnp.linalg.norm(average)

  keys = jax.random.split(KEY, 500)
  scan = jax.jit(lambda keys: jax.lax.scan(one, jnp.zeros(LARGE), keys))
  measured = float(scan(keys)[1][100:].mean())
  assert measured == pytest.approx(compression.step_cosine(alpha), rel=0.03)
