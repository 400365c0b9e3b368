"""The advised compressors, against what they then do."""

from fl_sketch import planning
from fl_sketch.experiment import config
import pytest

CONFIG = {
  'model_options': {'widths': (32,)}, 'population': 6, 'cohort': 4, 'rounds': 1,
}  # fmt: skip


@pytest.mark.nightly
def test_choices_have_their_noise_and_bytes_and_the_best_is_first():
  """Catches a share of the clients' own noise that is forgotten, or counted n
  times; the means of 24 draws are within 15 %, several standard errors."""
  choices = planning.advise_compression(CONFIG, 132, draws=24)
  for choice in choices:
    assert choice.measured == pytest.approx(choice.alpha, rel=0.15), choice
  assert len(choices) == 9
  assert {c.up for c in choices} <= {*range(128, 133)}
  cosines = [choice.cosine for choice in choices]
  assert cosines == sorted(cosines, reverse=True)
  assert choices[0].codec == 'eden(bits=1, num_coordinates=1024)'
  assert choices[-1].sketch == 'block_cyclic(size=33)'


def test_what_is_advised_is_a_config():
  """Catches the text of a choice that no config can have."""
  best = planning.advise_compression(CONFIG, 132, draws=0)
  for tables in (c for c in best if c.sketch and c.codec):
    names = {'sketch': tables.sketch, 'codec': tables.codec}
    config.Config.from_mapping(CONFIG | names | {'algorithm': 'safl'})


def test_too_few_bytes_are_refused():
  """Catches a table without an entry, or a budget that one could meet."""
  with pytest.raises(config.ConfigError, match='uplink_bytes=3 is too'):
    planning.advise_compression(CONFIG, 3)
  for budget in (4, 5):
    choices = planning.advise_compression(CONFIG, budget, draws=0)
    assert len(choices) == (1 if budget == 4 else 3)
    assert max(c.up for c in choices) == budget


@pytest.mark.parametrize('algorithm', ['decomfl', 'fedkseed', 'ferret'])
def test_clients_that_send_no_updates_are_refused(algorithm):
  """Catches advice on the updates of SGD, of which such a config sends none."""
  fields = CONFIG | {'algorithm': algorithm}
  if algorithm == 'ferret':
    fields |= {'options': {'size': 50}}
  with pytest.raises(ValueError, match='send no updates of the mod'):
    planning.advise_compression(fields, 132)


def test_updates_of_clients_that_keep_an_optimizer_are_measured():
  """Catches DiLoCo, whose local work has a state that begins anew, refused."""
  adamw = {'kind': 'adamw', 'keep_state': True}
  own, plain = (
    planning.advise_compression(CONFIG | more, 132, draws=0)
    for more in ({'local_optimizer': adamw, 'client_lr': 1e-3}, {})
  )
  alphas = [{c.alpha for c in choices} for choices in (own, plain)]
  assert len(alphas[0]) == len(alphas[1])
  assert alphas[0] != alphas[1]
