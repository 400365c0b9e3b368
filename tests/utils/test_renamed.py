"""Names of the past are read, each with a warning that says the new one."""

from fl_sketch import algorithms, codecs, local, rounds, sketches
from fl_sketch.data import store
from fl_sketch.experiment.config import Config
from fl_sketch.local import optimizers
from fl_sketch.models import losses
from fl_sketch.privacy.mechanisms import aggregation
from fl_sketch.rounds import aggregation as means, transforms as t
from fl_sketch.utils import old_fields
import jax.numpy as jnp
import pytest

HP = algorithms.Hyper(jnp.float32(0.1), jnp.float32(1.0))


def old(task, hp):
  """An algorithm that is written with keywords of the past."""
  links = task.steps(hp), means.mean_over_cohort(), t.broadcast()
  return rounds.federated(*links, drift=len, everyone=3, moved=str)


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


OLD_FIELDS = {
  'algorithm': 'safl', 'lanes_per_step': 4, 'downlink': 'eden(keep=5)',
  'sketch': 'srht(size=60)', 'loss': 'classes', 'exact': None,
  'local_optimizer': 'adamw(keep=True)', 'sweep': {'local_k': [1, 2]},
  'noise_generator': 'chacha20',
}  # fmt: skip


def test_old_fields_of_a_config_are_those_of_today():
  """Catches a config, or a stored run, of an earlier release that is lost."""
  with pytest.warns(FutureWarning) as warned:
    found = old_fields.current(OLD_FIELDS)
  assert found == {
    'algorithm': 'safl', 'clients_per_step': 4, 'sketch': 'srht(size=60)',
    'downlink_codec': {'kind': 'eden', 'num_coordinates': 5},
    'loss': 'cross_entropy', 'sweep': {'options': {'local_k': [1, 2]}},
    'local_optimizer': {'kind': 'adamw', 'keep_state': True},
  }  # fmt: skip
  assert len(warned) == 7
  with pytest.warns(FutureWarning):
    c = Config.from_mapping(OLD_FIELDS | {'sweep': None})
  assert c == Config.from_mapping(found | {'sweep': None})


def test_another_codec_has_options_of_its_own():
  """Catches an own codec whose option `keep` gets the new name of EDEN's."""
  fields = {'codec': {'kind': 'own', 'keep': 3}}
  assert old_fields.current(fields) == fields


def test_old_flags_are_those_of_today():
  """Catches a command of an earlier release that ends in an error."""
  argv = ['train', '--config.downlink.kind=eden', '--config.k=3', '--rounds=1']
  removed = '--config.noise_generator=threefry'
  with pytest.warns(FutureWarning) as warned:
    found = old_fields.current_flags([*argv, removed])
  *renamed, last = (str(w.message) for w in warned)
  assert 'noise_generator has no effect' in last
  assert len(renamed) == 2
  assert all("' is now called '--config." in text for text in renamed)
  assert found[1:3] == [
    '--config.downlink_codec.kind=eden', '--config.options.k=3'
  ]  # fmt: skip
  assert [found[0], *found[3:]] == [argv[0], argv[3]]


OLD_NAMES = {
  'take': lambda: sketches.take is sketches.gather,
  'cross_entropy': lambda: losses.cross_entropy(jnp.eye(2), jnp.arange(2)
  ).shape,
  'like': lambda: sketches.identity().like(jnp.ones(3)).shape == (3,),
  'at': lambda: aggregation.Release(2.0).at(HP._replace(
    clip_norm=1.0, noise_multiplier=1.0)),
  'keep': lambda: codecs.eden(keep=2) and optimizers.make('sgd').keep is False,
  'held': lambda: store.Chunk(1, 2, held=3).held_out == 3,
}  # fmt: skip


@pytest.mark.parametrize('name', OLD_NAMES)
def test_old_names_are_read(name):
  """Catches an own sketch, loss or store written for an earlier release."""
  with pytest.warns(FutureWarning, match=f"{name}' is now called"):
    assert OLD_NAMES[name]()
