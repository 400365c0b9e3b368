"""Clients' data reach public values by noise alone: shown, or refused."""

import collections
import re
import types

import breaks
import cases
from fl_sketch import rounds, runs
from fl_sketch.privacy import noninterference
from fl_sketch.privacy.mechanisms import private_mean
from fl_sketch.privacy.noninterference import parts
from fl_sketch.rounds import chain, marks, mesh as mesh_lib, transforms
from fl_sketch.runs import config
from fl_sketch.utils import plugins
import jax
from jax.extend import core
import jax.numpy as jnp
import leaks
import private_cases as private
import pytest

from tests.runs.training.test_private_runs import PRIVATE

TRUSTS = {
  'central': private_mean.CentralRelease, 'local': private_mean.LocalRelease,
  'secure_aggregation': private_mean.DistributedRelease,
}  # fmt: skip


def check(
  make, hp, cohort, params=cases.PARAMS, unit='client', metrics=True,
  scan=False, trust='central', **options,
):  # fmt: skip
  """Checks a round on two devices."""
  rows = options.get('rows_of') == 'cohort'
  population = len(cohort.ids) if rows else cases.POPULATION
  init = lambda p: rounds.init(make(hp), p, population)
  state = jax.eval_shape(init, params)
  fn = rounds.run_round(make, mesh_lib.cohort_mesh(2), **options)
  if scan:
    fn, cohort = rounds.scan_rounds(fn), jax.tree.map(lambda x: x[None], cohort)
  args = hp, state, cohort, cases.KEY, None, cases.SECRET
  given = {'name': 'This', 'unit': unit, 'trust': trust, 'metrics': metrics}
  budget = make(hp).releases / float(hp.noise_multiplier) ** 2
  shown = noninterference.check_round(fn, *args, budget=budget, **given)
  return sum(release.times for release in parts.of_one(shown.releases))


def of_leak(name, trust='central', **options):
  p = TRUSTS[trust](4.0)
  make = lambda hp: leaks.make(name, p.with_hyper(hp))
  return check(make, private.HP, leaks.cohort(), trust=trust, **options)


def refused(match):
  return pytest.raises(noninterference.InterferenceError, match=match)


def own_lines(fn):
  """The lines of a program and of the functions of its file that it calls."""
  todo, found, seen = [fn], set(), set()
  while todo:
    part = todo.pop()
    code = getattr(part, '__code__', part)
    if not isinstance(code, types.CodeType) or id(part) in seen:
      continue
    file = code.co_filename.rpartition('/')[2]
    if file.endswith('leaks.py'):
      seen.add(id(part))
      todo += code.co_consts
      todo += [getattr(part, '__globals__', {}).get(x) for x in code.co_names]
      todo += [x.cell_contents for x in getattr(part, '__closure__', 0) or ()]
      found |= {f'{file}:{line}' for *_, line in code.co_lines()}
  return found


def check_line(error, *fns):
  line = re.search(r'\w+\.py:\d+', str(error.value))
  assert line is not None, error.value
  assert line[0] in set().union(*map(own_lines, fns)), error.value


def check_line_of(error, name):
  """Checks that an error names a line of a leak of `leaks`."""
  methods = [getattr(x, 'fget', x) for x in vars(leaks.Uplink).values()]
  check_line(error, (leaks.LEAKS | leaks.BARE)[name][0], leaks.make, *methods)


@pytest.mark.representatives(
  'plain_mean', 'cond', 'while', 'carry', 'custom_vjp', 'callback',
  'branch_tells_host', 'reference', 'secret_key', 'rolled_rows',
  'mean_in_rows', 'total_in_rows', 'shared_state', 'N9-public_key',
  'N1-broadcast_sum', 'N1-announced_count', 'N2-run', 'N2-by_hand',
  'N3-fifty', 'N3-arrays', 'N4-mean_norm', 'N5-centred', 'N6-times_100',
  'N6-selected',
)  # fmt: skip
@pytest.mark.parametrize('name', leaks.LEAKS)
def test_a_leak_is_refused_with_its_leaf_and_line(name):
  """Catches a way of data through a round that the walk forgets."""
  with refused(leaks.LEAKS[name][1]) as error:
    of_leak(name)
  check_line_of(error, name)


def test_each_client_adds_its_noise_where_the_server_is_not_trusted():
  """Catches clients that send what only the server's noise hides."""
  assert of_leak('server_noise') == 1
  for trust in 'local', 'secure_aggregation':
    with refused(leaks.OF_SERVER) as error:
      of_leak('server_noise', trust)
    check_line_of(error, 'server_noise')


def test_a_metric_that_is_not_to_be_published_is_refused():
  """Catches a check of the state alone."""
  with refused(r"This lets cohort.* reach metrics\['norm'\] without noise"):
    of_leak('none', metrics=False)


def test_an_operation_that_is_not_known_is_refused_by_name():
  """Catches a walk that passes over a program inside of an operation."""
  odd = core.Primitive('odd_call')
  odd.def_abstract_eval(lambda x, **_: x)
  inner = jax.make_jaxpr(jnp.add)(1.0, 2.0)
  fn = lambda x: odd.bind(x, program=inner)
  with refused("operation 'odd_call' in test_noninterference.py:"):
    noninterference.check(fn, jnp.float32(1), inputs=('data',))


PLACES = {
  'plain': {}, 'scan': {'scan': True}, 'of host': {'rows_of': 'cohort'},
  'absent lanes': {'skip_absent': True, 'clients_per_step': 1},
  'chunks': {'skip_absent': True, 'clients_per_step': 2},
  'at once': {'skip_absent': True, 'clients_per_step': None},
  'sharded server': {'shard_server': True},
  'schedule': {'schedule': lambda hp, r: hp._replace(server_lr=1.0 / r)},
}  # fmt: skip


@pytest.mark.representatives('chunks', 'sharded server')
@pytest.mark.parametrize('place', PLACES)
def test_where_a_round_runs_does_not_matter(place):
  """Catches marks whose axis is lost in a batch, and clean rounds refused."""
  assert of_leak('none', **PLACES[place]) == 1
  for name in 'cond', 'rolled_rows':
    with refused(leaks.LEAKS[name][1]):
      of_leak(name, **PLACES[place])


@pytest.mark.representatives(
  'dp_fedavg', 'dp_fedavg_quantile', 'dp_fedavg_masked', 'dp_fedavg_banded',
  'private_gate', 'private_iterative_sketching',
)  # fmt: skip
@pytest.mark.parametrize(
  'name', [n for n, c in cases.ALGORITHMS.items() if c.make(cases.HP).releases]
)
def test_every_private_algorithm_is_shown(name):
  """Catches a clean round refused, and a release that is not counted."""
  case = cases.ALGORITHMS[name]
  cohort, params = cases.cohorts_of(case.make)(0), cases.params_of(case.make)
  unit = 'sample' if name == 'private_iterative_sketching' else 'client'
  trust = {'dp_fedavg_local': 'local', 'dp_fedavg_masked': 'secure_aggregation'}
  trust = trust.get(name, 'central')
  found = check(case.make, cases.HP, cohort, params, unit, trust=trust)
  of_count = name == 'dp_fedavg_quantile'  # which has the multiplier together
  assert found == case.make(cases.HP).releases + of_count


TABLE = {'sketch': {'kind': 'count_sketch', 'rows': 2, 'cols': 9}}
TOP = TABLE | {'options': {'k': 3}}
BLOCKS = {'sketch': {'kind': 'block_cyclic', 'size': 100}}
# What a config adds to the algorithms above.
CONFIGS = {
  'dp_normfedavg': {
    'bound': 'normalize', 'model': 'mlp', 'lora': {'kind': 'ffa', 'rank': 1},
  },
  'iterative_sketching': BLOCKS | {
    'bound': 'quantile', 'count_stddev': 4.0, 'server_optimizer': 'adam',
  },
  'safl': TABLE | {'before_sketch': True, 'adjacency': 'zero_out'},
  'fedsketch_heaprix': TOP | {'adjacency': 'replace_one', 'dropout': 0.3},
  'sketched_sgd': TOP | {'local_steps': 1, 'public_metrics': 'private'},
  'fetchsgd': TOP | {
    'local_steps': 1, 'noise': 'banded', 'sampling': 'cyclic', 'cohort': 2,
  },
}  # fmt: skip


@pytest.mark.representatives('safl')
@pytest.mark.parametrize('name', CONFIGS)
def test_private_configs_are_shown(name):
  """Catches a clean config refused by its check."""
  runs.build(PRIVATE | {'algorithm': name} | CONFIGS[name])


def test_a_loop_of_one_step_in_a_lane_is_of_its_client_alone():
  """Catches one local step, or one block of a sketch, taken for a cohort."""
  runs.build(breaks.SAFL)


REALISED = """
import dataclasses
from fl_sketch import algorithms
from fl_sketch.privacy.mechanisms import private_mean
from fl_sketch.rounds import federated, transforms
import jax
import optax


@algorithms.register
def realised(task, hp, *, privacy: private_mean.PrivateMean):
  '''Divides the released sum by the clients that took part.'''
  link = privacy.uplink()

  def update(*args, comm, weight, **extra):
    mean, bill = link.update_fn(*args, comm=comm, weight=weight, **extra)
    factor = 4 / comm.total(weight)
    return jax.tree.map(lambda x: x * factor, mean), bill

  uplink = dataclasses.replace(link, update_fn=update)
  down = transforms.broadcast()
  return federated(task.steps(hp), uplink, down, optax.scale(-1.0))
"""


@pytest.mark.smoke
@pytest.mark.usefixtures('own_parts')
def test_an_own_algorithm_that_leaks_has_no_guarantee(tmp_path):
  """Catches an experiment, or an account, that states its epsilon."""
  (tmp_path / 'own.py').write_text(REALISED)
  plugins.load(str(tmp_path / 'own.py'))
  c = config.Config.from_mapping(PRIVATE | {'algorithm': 'realised'})
  for made in runs.build, runs.account:
    with refused(r"'realised' lets cohort.weight reach .* own\.py:18, mul"):
      made(c)


@pytest.mark.usefixtures('own_parts')
def test_what_is_declared_or_closed_over_stands_in_the_statement(tmp_path):
  """Catches a declaration, or clients' data in a closure (N10), left out."""
  told = "noninterference.trust(comm.total(weight), 'Cohorts are public.')"
  text = REALISED.replace('comm.total(weight)', told)
  text = text.replace('* factor', '* factor * jax.numpy.asarray(ALL).mean()')
  head = 'import numpy as np\nfrom fl_sketch.privacy import noninterference\n'
  array = '\n\nALL = np.ones((40, 3), np.float32)\n\n\n@'
  own = head + text.lstrip().replace('\n\n\n@', array)
  (tmp_path / 'own.py').write_text(own)
  plugins.load(str(tmp_path / 'own.py'))
  exp = runs.build(PRIVATE | {'algorithm': 'realised'})
  *_, declared, closed = exp.guarantee.statement.caveats
  assert declared == 'Declared, not proved: Cohorts are public. (own.py:20).'
  assert re.search(r'closes over .*float32.*40, ?3', closed), closed


def test_a_mark_of_other_code_is_refused():
  """Catches a program that calls its own value a release."""
  with refused(r"test_non.*py:\d+ marks a value as 'released'"):
    noninterference.check(
      lambda x: marks.released(x.sum(0)), jnp.ones((3, 2)), inputs=('data',)
    )


@pytest.mark.nightly
@pytest.mark.parametrize('name', ['dp_fedavg', 'private_iterative_sketching'])
def test_marks_are_gone_in_the_compiled_program(name, monkeypatch):
  """Catches a mark that computes something, or keeps XLA from fusing."""
  case = cases.ALGORITHMS[name]
  cohort, params = cases.cohorts_of(case.make)(0), cases.params_of(case.make)

  def operations():
    jax.clear_caches()
    fn = jax.jit(rounds.run_round(case.make, mesh_lib.cohort_mesh(2)))
    state = rounds.init(case.make(cases.HP), params, cases.POPULATION)
    args = cases.HP, state, cohort, cases.KEY, None, cases.SECRET
    text = fn.lower(*args).compile().as_text()
    return collections.Counter(re.findall(r' = \S+ ([\w-]+)\(', text))

  marked = operations()
  monkeypatch.setattr(marks, '_bind', lambda mark, tree, *_, **__: tree)
  monkeypatch.setattr(marks, 'by_client', lambda tree, axis=0: tree)
  assert operations() == marked


def test_two_sums_with_the_same_noise_are_refused():
  """Their difference has none; catches two means of one index."""
  mean = private_mean.CentralRelease(4.0).with_hyper(private.HP).mean
  link = lambda *means: chain.exchange(None, None, means=means)
  for links in [link(mean(0), mean(0))], [link(mean(0)), link(mean(0))]:
    with pytest.raises(ValueError, match='noise'):
      rounds.federated(None, *links, transforms.broadcast())
