"""The papers' symbols of what our functions name by words, by paper.

What is missing has our name in the paper, or no symbol there: an estimate from
data, a choice of a theorem's variant.
"""

from collections.abc import Callable
import inspect
import typing
from typing import Any

_SONG = {
  'client_lr': 'eta_local', 'server_lr': 'eta_global', 'local_steps': 'K',
  'rounds': 'T', 'clients': 'N', 'dimension': 'd', 'size': 'b_sketch',
  'smoothness': 'L', 'strong_convexity': 'mu', 'distance_squared': 'W',
  'heterogeneity': 'sigma^2', 'gradient_bound': 'G', 'target': 'epsilon',
  'gap': 'f(w) - f*', 'gaps': 'sum of f(ubar) - f*', 'variance': 'V',
  'offset_squared': '|r|^2', 'sparsity': 's', 'steps': 'K', 'step': 'eta',
  'epsilon_hat': 'epsilon-hat', 'delta_hat': 'delta-hat',
  'delta_slack': "delta'", 'sensitivity': 'Delta f', 'theta1': 'theta_1',
  'theta2': 'theta_2', 'gamma1': 'gamma_1', 'gamma2': 'gamma_2',
  'gradients': 'gbar_c', 'models': 'u_c', 'optimum': 'w*', 'model': 'ubar',
  'gradient': 'gbar',
}  # fmt: skip
_DAS = {
  'client_lr': 'eta', 'local_steps': 'E', 'rounds': 'K', 'population': 'n',
  'dimension': 'd', 'clip_norm': 'C', 'clip': 'C-hat', 'smoothness': 'L',
  'curvature': 'lambda', 'lipschitz': 'G', 'distance': 'D = |w_0 - w*|',
  'distance_squared': '|w_0 - w*|^2', 'gap': 'Delta*', 'gaps': 'Delta_i*',
  'mean_gap': 'mean of Delta_i*', 'excess': 'f_i(w) - f_i(w*)',
  'suboptimality': 'f(w) - min f', 'gradient_norm': '|g_0|',
  'gradient_square': '|g_t|^2', 'gradient_squares': '|g_t|^2',
  'difference_square': '|g_{t+1} - g_t|^2', 'norms': '|u_i|', 'steps': 't',
  'count': 'm', 'ratio': 'c', 'w_star': 'w*',
  'cohort_variance': '(1 - r / n) / r',
}  # fmt: skip
_HADDADPOUR = {
  'client_lr': 'eta', 'server_lr': 'gamma', 'local_steps': 'tau',
  'rounds': 'R', 'clients': 'k', 'population': 'p', 'dimension': 'd',
  'cols': 'm', 'rows': 't', 'smoothness': 'L', 'pl_constant': 'mu',
  'variance': 'sigma^2', 'accuracy': 'epsilon', 'failure': 'delta',
  'gap': 'f(x_0) - f*', 'excess': 'f - f*', 'gradient_square': '|grad f|^2',
  'gradient_squares': '|grad f(x_j)|^2', 'drifts': '|x - x_j|^2',
  'delta': 'Delta', 'delta_1': 'Delta_1', 'delta_2': 'Delta_2',
  'norm': '|x*|',
}  # fmt: skip
_CHEN = {
  'client_lr': 'eta', 'server_lr': 'kappa', 'local_steps': 'K', 'rounds': 'T',
  'clients': 'C', 'dimension': 'd', 'size': 'b', 'eps': 'epsilon',
  'b1': 'beta_1', 'smoothness': 'L', 'intrinsic_dimension': 'I',
  'noise': 'sigma', 'gradient_bound': 'G', 'gradient_squared': 'G',
  'gap': 'L(z_1) - L*', 'start_loss': 'L(x_0)', 'loss': 'L(x)', 'j3': 'J_3',
  'm8': 'M_8', 'eigenvalues': 'lambda_i', 'curvature': 'A',
  'noise_bound': 'Delta', 'b2': 'beta_2',
}  # fmt: skip
SYMBOLS = {'S0': _SONG, 'S1': _DAS, 'S2': _HADDADPOUR, 'S4': _CHEN}


def names(function: Callable[..., Any]) -> list[str]:
  """The arguments of a function, with the fields of named tuples among them.

  >>> names(lambda cols, rows: None)
  ['cols', 'rows']
  """
  hints = typing.get_type_hints(getattr(function, 'formula', function))
  found = []
  for name in inspect.signature(function).parameters:
    fields = getattr(hints.get(name), '_fields', None)
    found += [name] if fields is None else fields
  return [*dict.fromkeys(found)]


def text(paper: str, function: Callable[..., Any]) -> str:
  """The arguments of a statement that have another name in its paper.

  >>> text('S2', lambda cols, rows: None)
  'cols m, rows t'
  """
  known = SYMBOLS[paper]
  own = (name for name in names(function) if name in known)
  return ', '.join(f'{name} {known[name]}' for name in own)
