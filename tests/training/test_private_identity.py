"""A private run knows its round: the same noise protects one update alone."""

from fl_sketch import experiment
from fl_sketch.experiment import config
from fl_sketch.rounds import mesh as mesh_lib
from fl_sketch.training import identity, log, noise_secret, workdir
import jax.numpy as jnp
import optax
import pytest

from tests.training.test_identity import FIELDS, PRIVATE, begin, build, start


def stronger(exp):
  """The experiment with another server, which no file or config tells."""

  def make(hp):
    algorithm = exp.make(hp)
    server = optax.chain(algorithm.server, optax.scale(2.0))
    server = optax.with_extra_args_support(server)
    return algorithm._replace(server=server)

  return exp._replace(make=make)


def test_another_algorithm_is_refused_wherever_it_comes_from(tmp_path):
  """Catches noise that is used again for an algorithm of a notebook."""
  exp, other = build(PRIVATE), stronger(build(PRIVATE))
  begin(tmp_path, exp)
  with pytest.raises(
    workdir.WorkdirError, match=r'another problem \(one round'
  ):
    start(tmp_path, other)
  seeds = {
    noise_secret.of_run(
      x.config, identity.of(x), tmp_path, resumed=False
    ).sampling_seed
    for x in (exp, other)
  }
  assert len(seeds) == 2


def test_another_mesh_is_refused(tmp_path):
  """Catches released rounds that are played again with other rounding."""
  exp = build(PRIVATE)
  begin(tmp_path, exp)  # on both devices
  one = identity.of(exp, mesh_lib.cohort_mesh(1))
  with pytest.raises(
    workdir.WorkdirError, match=r'another problem \(one round'
  ):
    workdir.Workdir(tmp_path, exp.config, one)
  # Where the noise is public, devices may change.
  public = build(PRIVATE | {'noise_seed': 0})
  begin(tmp_path / 'public', public)
  workdir.Workdir(tmp_path / 'public', public.config, one).close()


SAME = [
  {'noise_multiplier': 3.0, 'clip_norm': 0.5, 'client_lr': 0.3},
  {'rounds': 9, 'eval_every': 3, 'rounds_per_dispatch': 4, 'seed': 1},
]


@pytest.mark.parametrize('fields', SAME)
def test_hyperparameters_are_no_part_of_a_round(fields):
  """Catches a resumed run, or a point of a sweep, that is refused."""
  records = [identity.of(build(PRIVATE | more)) for more in ({}, fields)]
  assert records[0]['one round'] == records[1]['one round']
  c = config.Config(**PRIVATE | fields)
  point = experiment.reconfigured(build(PRIVATE), c)
  assert identity.of(point) == records[1]


def test_an_ordinary_run_traces_no_round():
  """Catches seconds that a start takes for a digest that nobody compares."""
  assert 'one round' not in identity.of(build(FIELDS))


@pytest.mark.parametrize('name', ['noise_multiplier', 'client_lr'])
def test_hyperparameters_are_those_of_the_config(name):
  """Catches a noise or a rate that no file of the run tells."""
  exp = build(PRIVATE)
  assert log.epsilons_by_round(exp)
  hyper = exp.hyper._replace(**{name: jnp.float32(0.01)})
  with pytest.raises(ValueError, match='the hyperparameters of its config'):
    log.epsilons_by_round(exp._replace(hyper=hyper))
