"""An example of every formula of the theory, inside of its conditions."""

import importlib
import inspect
import re

from papers.chen.statements import constants
from papers.common import statements as catalog
from papers.das.statements import rates
from papers.haddadpour.statements import lemmas
from papers.song.statements import leakage, plans

CHEN = constants.Constants(256, 64, 10**6, 0.1, 1e-4, 0.5, 1.0, 1.6)
SLOW = CHEN._replace(rounds=10**8, client_lr=1e-4, server_lr=0.01, eps=1e-2)
NEAR = constants.Constants(10**6, 10**5, 10**4, 0.01, 1e-3, 1e-3, 1.0, 1.6)
FIRST = CHEN._replace(client_lr=7**-0.5, server_lr=1e-3, eps=10.0)
STABLE = CHEN._replace(client_lr=0.001, server_lr=1e-3)
DAS = rates.Schedule(1.0, 4.0, 0.125, 4, 16, 2.0)
RUN = lemmas.Constants(0.5, 1, 1.0, 1.0, 2, 100, 0.25, 1.0)
PROBLEM = plans.Problem(16, 2, 2.0, 1.0, 4.0, 1.0)
CONSTANTS = leakage.Constants(0.0, 4.0, 0.5, 2.0, 4.0)
# Of parameters by their names, in every formula but where `OWN` has others.
USUAL = {
  'accuracy': 0.0625, 'alpha': 3.0, 'b1': 0.9, 'batch': 4, 'beta': 3.0,
  'c': CONSTANTS, 'client_lr': 0.25, 'clients': 4, 'clip': 4.0,
  'clip_norm': 1.0, 'cols': 25, 'constant': 1.0, 'count': 2, 'curvature': 1.0,
  'd': 2.0, 'degrees': 64, 'delta': 0.1, 'delta_1': 4.0, 'delta_2': 5.0,
  'delta_hat': 1e-08, 'delta_slack': 5e-07, 'difference_square': 1.0,
  'dimension': 64, 'distance': 2.0, 'distance_squared': 2.0, 'drifts': 1.0,
  'epsilon': 0.5, 'epsilon_hat': 0.125, 'excess': [2.0, 9.0], 'failure': 0.01,
  'family': 'srht', 'gamma': 1.0, 'gamma1': 0.5, 'gamma2': 1.0, 'gap': 1.0,
  'largest': 1.0, 'mean': 2.0, 'sigma': 1.0, 't': 1.0,
  'gaps': [1.0, 1.0], 'gradient': 2.0, 'gradient_bound': 1.0,
  'gradient_norm': 2.0, 'gradient_square': 4.0, 'gradient_squared': 1.0,
  'gradient_squares': 4.0, 'heterogeneity': 1.0, 'intrinsic_dimension': 4.0,
  'j3': 0.5, 'k': 4, 'largest_gap': 1.0, 'lipschitz': 64.0, 'local_steps': 2,
  'loss': 0.5, 'max_value': 4.5, 'mean_gap': 0.5, 'model': 1.0,
  'noise_bound': 0.1, 'norm': 2.0, 'norms': [1.0, 32.0],
  'objective': 'nonconvex', 'offset_squared': 4.0, 'omega': 7.0,
  'operator': 'srht', 'p': 0.5, 'pl_constant': 0.5, 'population': 32,
  'problem': PROBLEM, 'q': 0.2, 'ratio': 4.0, 'rho': 0.125, 'rounds': 64,
  'rows': 9, 'run': RUN, 's': DAS, 'sensitivity': 1.0, 'server_lr': 4.0,
  'size': 16, 'smoothness': 1.0, 'start_loss': 1.0, 'stddev': 1.0, 'steps': 4,
  'strong_convexity': 0.5, 'suboptimality': 2.0, 'target': 0.5, 'tau': 1.0,
  'theorem': 'F9', 'theta1': 1.0, 'theta2': 2.0, 'variance': 1.0,
  'variances': 0.5, 'x': 0.1,
}  # fmt: skip
OWN = {
  'chen.constants.distortion': {'d': 2, 'rounds': 2},
  'chen.corollaries.asymptotic': {'run': SLOW, 'gradient_l1': 1.0},
  'chen.corollaries.near_start': {
    'run': NEAR, 'gap': 0.1, 'gradient_bound': 0.1, 'gradient_l1': 0.1,
  },
  'chen.corollaries.curvature': {'smoothness': 2.0, 'size': 8},
  'chen.corollaries.least_size': {'run': NEAR, 'delta': 0.01},
  'chen.gradients.squared_gradient': {'smoothness': 2.0},
  'chen.gradients.bounded_gradients': {
    'run': STABLE, 'start_loss': 1.0, 'root_trace': 5.0,
  },
  'chen.loss_bounds.sufficient_gradient': {
    'run': STABLE._replace(client_lr=1e-6),
  },
  'chen.rates.constant_rate': {'gradient_l1': 1.0},
  'chen.rates.decaying_rate': {'run': FIRST, 'gradient_l1': 1.0},
  'das.lemmas.distance_bound': {'distance_squared': 4.0},
  'das.lemmas.next_gradient_bound': {'client_lr': 0.5},
  'das.lemmas.lipschitz_drift_bound': {'steps': 1},
  'das.lemmas.least_update_norm': {'client_lr': 0.125},
  'das.rates.schedule': {'rho': 0.1, 'local_steps': 5, 'rounds': 10},
  'das.rates.normalize_left': {'norms': [8.0, 32.0]},
  'das.rates.simplified_bound': {'local_steps': 4},
  'das.tradeoffs.lipschitz_bound': {'mean_gap': 1.0},
  'das.tradeoffs.unclipped_threshold': {'local_steps': 4},
  'das.tradeoffs.local_steps_bound': {
    'lipschitz': 48.0, 'distance': 1.0, 'mean_gap': 1.375, 'local_steps': 4,
  },
  'das.tradeoffs.compare': {'distance': 10.0, 'rho': 0.001, 'local_steps': 5},
  'haddadpour.compressors.privix_variance': {'dimension': 101},
  'haddadpour.compressors.scaled': {'delta': 4.0},
  'haddadpour.compressors.heavymix': {'cols': 512},
  'haddadpour.compressors.heaprix_variance': {'dimension': 101, 'error': 0.5},
  'haddadpour.lemmas.second_moment': {'gradient_squares': 3.0},
  'haddadpour.lemmas.inner_product': {
    'gradient_square': 2.0, 'gradient_squares': 3.0,
  },
  'haddadpour.lemmas.spread': {'omega': 8.0},
  'haddadpour.plans.linear_speedup': {'local_steps': 1},
  'haddadpour.rates.regularizer': {'local_steps': 25},
  'haddadpour.tables.rows_needed': {'dimension': 101, 'rounds': 100},
  'haddadpour.tables.communication': {'rows': 2},
  'haddadpour.tables.scaffold_floats': {'dimension': 100, 'accuracy': 0.1},
  'song.convergence.single_step_strongly_convex': {
    'rounds': 8, 'client_lr': 0.2, 'gap': 8.0,
  },
  'song.convergence.single_step_convex': {'rounds': 8, 'client_lr': 0.1},
  'song.convergence.single_step_nonconvex': {
    'rounds': 8, 'client_lr': 0.2, 'gap': 2.0,
  },
  'song.convergence.largest_step': {'alpha': 3.0, 'local_steps': 2},
  'song.convergence.convex': {'local_steps': 2, 'client_lr': 0.01},
  'song.convergence.strongly_convex': {'local_steps': 2, 'client_lr': 0.01},
  'song.convergence.nonconvex_step': {
    'local_steps': 2, 'server_lr': 1.5, 'client_lr': 0.1,
  },
  'song.convergence.nonconvex': {
    'local_steps': 2, 'server_lr': 1.5, 'rounds': 9, 'client_lr': 0.1,
  },
  'song.leakage.semi_smooth': {'alpha': 1.0},
  'song.leakage.sketched_non_critical': {'gamma2': 3.0},
  'song.leakage.linear_decrease': {'step': 0.03},
  'song.leakage.pl_decrease': {'smoothness': 8.0, 'step': 0.1},
  'song.leakage.quadratic_growth': {'c': 1.0},
  'song.leakage.recovery': {'alpha': 0.0, 'beta': 4.0, 'c': 0.0, 'step': 0.1},
  'song.lemmas.alpha': {'dimension': 100},
  'song.lemmas.unified_update': {'client_lr': 0.5},
  'song.lemmas.mean_gradient_squared': {'variance': 0.5, 'gap': 2.0},
  'song.lemmas.inner_product': {'gap': 2.0, 'strong_convexity': 0.5},
  'song.lemmas.drift': {'gaps': 1.0, 'client_lr': 0.05, 'heterogeneity': 2.0},
  'song.lemmas.sketching_error': {'gaps': 1.0},
  'song.lemmas.recursion': {
    'variance': 0.5, 'offset_squared': 1.0, 'client_lr': 0.2,
    'strong_convexity': 0.5,
  },
  'song.privacy.amplification': {'delta': 1e-05},
  'song.privacy.mean_sensitivity': {'lipschitz': 1.0},
  'song.privacy.total_epsilon': {'rounds': 16},
  'tails.chebyshev': {'size': 32, 'delta': 0.25},
  'tails.chi_square_interval': {'delta': 0.01},
  'privacy_bounds.das_rho': {
    'delta': 1e-05, 'dimension': 200, 'population': 100,
  },
  'privacy_bounds.das_sigma_squared': {
    'delta': 1e-05, 'population': 50, 'rounds': 100, 'constant': 2.0,
  },
  'privacy_bounds.advanced_composition': {'delta': 1e-05, 'k': 500},
  'privacy_bounds.gaussian_mechanism_sigma': {'delta': 1e-05},
  'privacy_bounds.count_sketch_heuristic_epsilon': {
    'rows': 3, 'cols': 14, 'dimension': 10**6,
  },
}  # fmt: skip
# Of data alone, or text: without an example.
OTHERS = {
  'chen.constants.intrinsic_dimension', 'chen.constants.sub_gaussian_scale',
  'chen.corollaries.comparison', 'chen.monitor.auxiliary_step',
  'chen.monitor.descent_slack', 'das.lemmas.curvature',
  'das.lemmas.heterogeneity_gaps', 'das.lemmas.lipschitz',
  'das.lemmas.smoothness', 'das.lemmas.sum_square_bound',
  'das.tradeoffs.lowest_clip_norm', 'haddadpour.compressors.contraction_error',
  'haddadpour.compressors.decoding_gap',
  'haddadpour.compressors.unbiased_constant',
  'haddadpour.lemmas.gradient_variance', 'haddadpour.lemmas.pl_constant',
  'haddadpour.tables.heterogeneous_table',
  'haddadpour.tables.homogeneous_table',
  'accounting.epsilon.parallel_composition',
  'song.lemmas.averages', 'song.lemmas.heterogeneity',
  'song.lemmas.quadratic_constants',
}  # fmt: skip


def name_of(function) -> str:
  module = re.sub(r'^(papers|fl_sketch)\.(common\.)?', '', function.__module__)
  return f'{module.replace(".statements", "")}.{function.__name__}'


def formulas():
  """All statements, and other formulas of their modules."""
  found = [s.function for s in catalog.statements()]
  for name in catalog.modules():
    module = importlib.import_module(name)
    functions = filter(inspect.isfunction, vars(module).values())
    found += [x for x in functions if hasattr(x, 'formula')]
  return {name_of(function): function for function in found}


def example(name):
  """Arguments: those that are required, and others of `OWN`."""
  usual = USUAL | ({'run': CHEN} if name.startswith('chen.') else {})
  parameters = inspect.signature(FORMULAS[name]).parameters.values()
  required = [x.name for x in parameters if x.default is x.empty]
  own = OWN.get(name, {})
  return {k: usual[k] for k in required if k not in own} | own


FORMULAS = formulas()
ARGUMENTS = {k: example(k) for k in FORMULAS if k not in OTHERS}
