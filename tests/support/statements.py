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
STEP = {'alpha': 3.0, 'smoothness': 1.0}
LOCAL = STEP | {'local_steps': 2}
DISTANCE = {'distance_squared': 2.0, 'heterogeneity': 1.0}
NONCONVEX = LOCAL | {'gradient_bound': 1.0, 'server_lr': 1.5}
DESCENT = {'client_lr': 0.25, 'smoothness': 1.0, 'local_steps': 2}
BOUNDED = {'gap': 1.0, 'gradient_bound': 1.0, 'delta': 0.1, 'gradient_l1': 1.0}
PLAN = {
  'omega': 7.0, 'clients': 4, 'smoothness': 1.0, 'variance': 1.0,
  'accuracy': 0.0625, 'server_lr': 4.0,
}  # fmt: skip
PRODUCT = {'family': 'srht', 'dimension': 64, 'size': 16, 'delta': 0.1}
BUDGET = {'epsilon': 0.5, 'delta': 1e-5}
SPENT = {'epsilon_hat': 0.125, 'delta_hat': 1e-8, 'steps': 4}

EXAMPLES = {
  'chen.constants': {
    'distortion': {'run': CHEN, 'delta': 0.1, 'd': 2, 'rounds': 2},
    'momentum_factor': {'b1': 0.9},
    'projection': {'run': CHEN, 'gradient_bound': 1.0, 'delta': 0.1},
    'preconditioner': {'run': CHEN, 'gradient_bound': 1.0, 'delta': 0.1},
    'martingale': {'run': CHEN, 'gradient_bound': 1.0, 'delta': 0.1},
  },
  'chen.corollaries': {
    'asymptotic': {'run': SLOW, **BOUNDED},
    'near_start': {'run': NEAR, 'j3': 0.5, 'gap': 0.1, 'gradient_bound': 0.1,
      'delta': 0.1, 'gradient_l1': 0.1},
    'curvature': {'smoothness': 2.0, 'intrinsic_dimension': 4.0, 'size': 8},
    'least_size': {'run': NEAR, 'delta': 0.01},
  },
  'chen.gradients': {
    'squared_gradient': {'loss': 0.5, 'smoothness': 2.0},
    'local_gradient': DESCENT | {'loss': 0.5, 'noise_bound': 0.1, 'delta': 0.1},
    'loss_constants': {'run': CHEN, 'start_loss': 1.0, 'delta': 0.1},
    'bounded_gradients': {'run': STABLE, 'delta': 0.1, 'start_loss': 1.0,
      'root_trace': 5.0},
  },
  'chen.monitor': {},
  'chen.rates': {
    'constant_rate': {'run': CHEN, **BOUNDED},
    'decaying_rate': {'run': FIRST, **BOUNDED},
  },
  'das.lemmas': {
    'distance_bound': DESCENT | {'distance_squared': 4.0,
      'gradient_squares': 4.0, 'gap': 1.0},
    'drift_bounds': DESCENT | {'suboptimality': 2.0},
    'next_gradient_bound': {'gradient_square': 4.0, 'difference_square': 1.0,
      'client_lr': 0.5, 'smoothness': 1.0},
    'lipschitz_drift_bound': DESCENT | {'gradient_norm': 2.0, 'steps': 1},
    'gradient_square_bound': {'suboptimality': 2.0, 'smoothness': 1.0},
    'geometric_sum_bound': {'x': 0.1, 'count': 2},
  },
  'das.rates': {
    'schedule': {'smoothness': 1.0, 'clip': 4.0, 'rho': 0.1, 'local_steps': 5,
      'rounds': 10, 'gamma': 1.0, 'largest_gap': 1.0},
    'right': {'s': DAS, 'distance': 2.0},
    'clip_left': {'s': DAS, 'excess': [2.0, 9.0], 'norms': [1.0, 32.0],
      'gaps': [1.0, 1.0]},
    'normalize_left': {'s': DAS, 'excess': [2.0, 9.0], 'norms': [8.0, 32.0],
      'gaps': [1.0, 1.0]},
    'simplified_bound': {'clip': 4.0, 'distance': 2.0, 'mean_gap': 0.5,
      'rho': 0.125, 'local_steps': 4},
  },
  'das.tradeoffs': {
    'lipschitz_bound': {'s': DAS, 'distance': 2.0, 'mean_gap': 1.0},
    'unclipped_threshold': {'lipschitz': 64.0, 'curvature': 1.0,
      'smoothness': 1.0, 'rho': 0.125, 'local_steps': 4},
    'local_steps_bound': {'lipschitz': 48.0, 'distance': 1.0, 'mean_gap': 1.375,
      'curvature': 1.0, 'smoothness': 1.0, 'rho': 0.125, 'local_steps': 4},
    'compare': {'ratio': 4.0, 'distance': 10.0, 'rho': 0.001, 'local_steps': 5},
  },
  'haddadpour.compressors': {
    'privix_variance': {'dimension': 101, 'cols': 25},
    'scaled': {'delta': 4.0},
    'heavymix': {'dimension': 64, 'k': 4, 'rows': 9, 'cols': 512},
    'induced': {'delta_1': 4.0, 'delta_2': 5.0},
    'heaprix_variance': {'dimension': 101, 'cols': 25, 'error': 0.5},
  },
  'haddadpour.lemmas': {
    'second_moment': {'run': RUN, 'gradient_squares': 3.0},
    'inner_product': {'run': RUN, 'gradient_square': 2.0,
      'gradient_squares': 3.0, 'drifts': 1.0},
    'drift': {'run': RUN, 'gradient_squares': 4.0},
    'spread': {'omega': 8.0, 'clients': 4},
  },
  'haddadpour.plans': {
    'fedsketch': {'objective': 'nonconvex', **PLAN},
    'fedsketchgate': {'objective': 'nonconvex', **PLAN},
    'linear_speedup': {'clients': 4, 'smoothness': 1.0, 'variance': 1.0,
      'local_steps': 1, 'rounds': 64, 'gap': 1.0},
  },
  'haddadpour.rates': {
    'condition': {'run': RUN},
    'regularizer': {'clients': 4, 'local_steps': 25},
    'largest_client_lr': {'run': RUN},
    'nonconvex_bound': {'run': RUN, 'gap': 1.0},
    'pl_bound': {'run': RUN, 'gap': 1.0, 'pl_constant': 0.5},
    'convex_bound': {'run': RUN, 'gap': 1.0, 'norm': 2.0},
  },
  'haddadpour.tables': {
    'rows_needed': {'dimension': 101, 'rounds': 100, 'failure': 0.01},
    'communication': {'run': RUN, 'rows': 2, 'cols': 25},
    'scaffold_floats': {'objective': 'nonconvex', 'dimension': 100,
      'clients': 4, 'population': 32, 'accuracy': 0.1},
  },
  'song.communication': {
    'convex_floats': {'target': 0.5, 'problem': PROBLEM},
    'local_gradient_descent_floats': {'target': 0.5, 'problem': PROBLEM},
    'strongly_convex_floats': {'target': 0.5, 'problem': PROBLEM},
    'linear_down_to': {'problem': PROBLEM},
  },
  'song.convergence': {
    'single_step_strongly_convex': STEP | {'rounds': 8, 'client_lr': 0.2,
      'strong_convexity': 0.5, 'gap': 8.0},
    'single_step_convex': STEP | {'rounds': 8, 'client_lr': 0.1,
      'distance_squared': 2.0},
    'single_step_nonconvex': STEP | {'rounds': 8, 'client_lr': 0.2, 'gap': 2.0},
    'largest_step': {'theorem': 'F9', **LOCAL},
    'slowdown': {'alpha': 3.0},
    'convex': LOCAL | DISTANCE | {'rounds': 64, 'client_lr': 0.01},
    'strongly_convex': LOCAL | DISTANCE | {'rounds': 64, 'client_lr': 0.01,
      'strong_convexity': 0.5},
    'nonconvex_step': NONCONVEX | {'gradient_squared': 1.0, 'client_lr': 0.1},
    'nonconvex': NONCONVEX | {'rounds': 9, 'gap': 1.0, 'client_lr': 0.1},
  },
  'song.leakage': {
    'semi_smooth': {'alpha': 1.0, 'beta': 3.0, 'p': 0.5},
    'sketched_semi_smooth': {'beta': 3.0, 'theta2': 2.0, 'tau': 1.0,
      'gamma2': 1.0},
    'sketched_non_critical': {'theta1': 1.0, 'theta2': 2.0, 'gamma1': 0.5,
      'gamma2': 3.0},
    'constants': {'beta': 3.0, 'theta1': 1.0, 'theta2': 2.0},
    'margin': {'c': CONSTANTS},
    'linear_decrease': {'c': CONSTANTS, 'step': 0.03},
    'pl_decrease': {'smoothness': 8.0, 'theta1': 1.0, 'step': 0.1},
    'quadratic_growth': {'c': 1.0, 'd': 2.0, 'p': 0.5, 'theta1': 1.0},
    'recovery': {'alpha': 0.0, 'beta': 4.0, 'c': 0.0, 'd': 2.0, 'p': 0.5,
      'theta1': 1.0, 'step': 0.1},
  },
  'song.lemmas': {
    'alpha': {'operator': 'srht', 'dimension': 100, 'size': 16},
    'unified_update': {'model': 1.0, 'gradient': 2.0, 'client_lr': 0.5},
    'mean_gradient_squared': {'variance': 0.5, 'gap': 2.0, 'smoothness': 1.0},
    'inner_product': {'variance': 1.0, 'gap': 2.0, 'offset_squared': 4.0,
      'smoothness': 1.0, 'strong_convexity': 0.5},
    'drift': {'gaps': 1.0, 'client_lr': 0.05, 'smoothness': 1.0,
      'heterogeneity': 2.0, 'local_steps': 2},
    'sketching_error': LOCAL | {'variances': 0.5, 'gaps': 1.0,
      'client_lr': 0.25},
    'recursion': {'variance': 0.5, 'gap': 1.0, 'offset_squared': 1.0,
      'client_lr': 0.2, 'smoothness': 1.0, 'strong_convexity': 0.5},
  },
  'song.plans': {
    'convex_plan': {'target': 0.5, 'problem': PROBLEM, 'alpha': 3.0},
    'strongly_convex_plan': {'target': 0.5, 'problem': PROBLEM, 'alpha': 3.0},
  },
  'song.privacy': {'amplification': BUDGET | {'q': 0.2}, 'local_epsilon': SPENT,
    'mean_sensitivity': {'lipschitz': 1.0, 'batch': 4},
    'total_epsilon': SPENT | {'rounds': 16}},
  'tails': {'coordinate_wise': {'family': 'srht', 'dimension': 64, 'size': 16},
    'chebyshev': {'size': 32, 'delta': 0.25}, 'tail': PRODUCT,
    'coherence': PRODUCT, 'chi_square_interval': {'degrees': 64, 'delta': 0.01},
    'bounded_products': PRODUCT},
  'privacy_bounds': {
    'das_rho': BUDGET | {'dimension': 200, 'population': 100, 'constant': 1.0},
    'das_sigma_squared': BUDGET | {'clip_norm': 1.0, 'population': 50,
      'rounds': 100, 'constant': 2.0},
    'advanced_composition': BUDGET | {'k': 500, 'delta_slack': 5e-7},
    'gaussian_mechanism_sigma': BUDGET | {'sensitivity': 1.0},
    'count_sketch_heuristic_epsilon': {'rows': 3, 'cols': 14,
      'dimension': 10**6, 'max_value': 4.5, 'stddev': 1.0},
  },
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


FORMULAS = formulas()
ARGUMENTS = {
  f'{module}.{name}': arguments
  for module, functions in EXAMPLES.items()
  for name, arguments in functions.items()
}
