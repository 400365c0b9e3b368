"""Shows of a private experiment that clients' data leave it by noise alone."""

from fl_sketch import rounds
from fl_sketch.experiment import parts
from fl_sketch.privacy.mechanisms import generators
from fl_sketch.privacy.noninterference import proof, rounds as round_lib
from fl_sketch.rounds import mesh as mesh_lib
import jax


def check(exp) -> proof.Proof | None:
  """Shows non-interference of a round; None if the run claims no privacy.

  The round is that of one device: others do the same work on parts of it.

  Raises:
    InterferenceError: it cannot be shown, as of `round_lib.check_round`.
  """
  if exp.guarantee is None:
    return None
  c = exp.config
  options = exp.round_options
  fn = rounds.run_round(
    exp.make, mesh_lib.cohort_mesh(1), fetch=exp.fetch, **options
  )
  init = lambda params: rounds.init(exp.make(exp.hyper), params, c.population)
  state = jax.eval_shape(init, exp.params)
  return round_lib.check_round(
    fn,
    exp.hyper,
    state,
    exp.sample(0, 0)._replace(outcome=None),
    jax.random.key(0),
    exp.data,
    generators.known_roots(c.noise_seed).noise_key,
    unit=c.privacy_unit or 'client',
    metrics=c.shows_all,
    name=f'Algorithm {c.algorithm!r}',
  )
