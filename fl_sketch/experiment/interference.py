"""Shows of a private experiment that clients' data leave it by noise alone."""

from typing import Any

from fl_sketch import rounds
from fl_sketch.experiment import parts
from fl_sketch.privacy import noninterference
from fl_sketch.privacy.mechanisms import generators
from fl_sketch.rounds import mesh as mesh_lib
import jax


def check(exp: Any) -> noninterference.Proof | None:
  """Shows non-interference of a round on one device; None without privacy.

  Raises InterferenceError if `noninterference.check_round` cannot show it.
  """
  if exp.guarantee is None:
    return None
  c, mesh = exp.config, mesh_lib.cohort_mesh(1)
  fn = rounds.run_round(exp.make, mesh, fetch=exp.fetch, **exp.round_options)
  state = parts.state_shapes(exp.make(exp.hyper), exp.params, c.population)
  cohort = exp.sample(0, 0)._replace(outcome=None)
  key = jax.eval_shape(lambda: jax.random.key(0))
  secret = jax.eval_shape(lambda: generators.known_roots(c.noise_seed)[0])
  args = exp.hyper, state, cohort, key, exp.data, secret
  return check_program(exp, fn, *args)


def check_program(exp: Any, fn: Any, *args: Any) -> noninterference.Proof:
  """Shows non-interference of a private run's own program, on its devices."""
  c = exp.config
  unit, name = c.privacy_unit or 'client', f'Algorithm {c.algorithm!r}'
  shown = {'unit': unit, 'metrics': c.shows_all, 'name': name}
  return noninterference.check_round(fn, *args, **shown)
