"""The functions of Table 2 of Song et al., and a falsifier of each property.

The table has a row for each way in which four properties hold or fail: thirteen
functions (eleven formulas, of which sin and cosh come with a bound on the norm
and without) and four rows `N/A`, for what Lemma I.9 excludes: a semi-Lipschitz
gradient without semi-smoothness. All that is taken from the paper is how many
crosses a row has; the cells are computed.

Source: arXiv:2210.08371, Table 2.
"""

from collections.abc import Callable

from fl_sketch.utils import checks, markdown
import numpy as np

from . import falsifiers, properties

PROPERTIES = (
  'semi-smooth', 'semi-Lipschitz gradient', 'semi-strongly convex',
  'non-critical point',
)  # fmt: skip
# Crosses in each row of the paper but `N/A`, in its order.
PRINTED = (0, 1, 2, 1, 2, 2, 3, 3, 2, 3, 4, 4, 4)

_Scalar = Callable[[np.ndarray], np.ndarray]


def table2_functions(dimension: int = 2) -> tuple[properties.Function, ...]:
  """Returns the functions in the order of the table, |w| = 1 and b = 1.

  Where the table names no domain it is the largest one; sqrt(w'x + b) on w'x >=
  0 would have a Lipschitz gradient. Across w nothing changes, so that dimension
  1 is a special case: cosh(w'x) is strongly convex there.

  >>> [f.name for f in table2_functions()][:2]
  ['x^2', "x'Ax - lmin(A)"]

  Args:
    dimension: of x in functions of w'x; A is f64[2, 2] always.
  """
  w = np.ones(checks.count('dimension', dimension)) / dimension**0.5
  one = np.ones(1)
  matrix = np.array([[3.0, 1.0], [1.0, 2.0]])
  least = np.linalg.eigvalsh(matrix)[0]
  form = lambda x: np.einsum('ni,ij,nj->n', x, matrix, x) - least
  slope = lambda x: 2 * x @ matrix
  return (
    _ridge('x^2', 'R', one, np.square, lambda u: 2 * u),
    properties.Function("x'Ax - lmin(A)", 'R^2', 2, form, slope),
    _ridge("sqrt(w'x + b)", "w'x > -b", w, *_ROOT, _half_space(w, 1)),
    _ridge('ln(1 + e^x)', '[-1, 1]', one, *_SOFTPLUS, _interval),
    _ridge('sigmoid(x)', 'R', one, *_SIGMOID),
    _ridge("(w'x)^2 sin(1/(w'x))", '|w| |x| <= 1', w, *_WAVE, _ball),
    _ridge("(w'x)^2 sin(1/(w'x))", "w'x != 0", w, *_WAVE),
    _ridge("ln(w'x)", "w'x > 0", w, np.log, lambda u: 1 / u, _half_space(w, 0)),
    _ridge("cosh(w'x)", '|w| |x| = 1', w, np.cosh, np.sinh, _sphere),
    _ridge("cosh(w'x)", 'R^n', w, np.cosh, np.sinh),
    _ridge('ReLU(x)', 'R', one, lambda u: np.maximum(u, 0), lambda u: u > 0),
    _ridge('1/|x|', 'x != 0', one, *_INVERSE),
    _ridge('tanh(x)', 'R', one, np.tanh, lambda u: 1 - np.tanh(u) ** 2),
  )


def table2(dimension: int = 2, seed: int = 0) -> str:
  """Returns a Markdown table of the properties falsified for each function.

  A cross is a property that `falsifiers.falsify` falsifies at p = 1, and so for
  each p; without a cross nothing is proven. The last two columns count crosses,
  here and in the paper.

  >>> print(table2().splitlines()[2])
  | `x^2` | `R` |  |  |  |  | 0 | 0 |
  """
  head = ['function', 'domain', *PROPERTIES, 'crosses', 'printed']
  lines = []
  functions = table2_functions(dimension)
  for f, printed in zip(functions, PRINTED, strict=True):
    verdicts = [falsifiers.falsify(f, name, seed=seed) for name in PROPERTIES]
    marks = ['x' if verdict.falsified else '' for verdict in verdicts]
    count = str(marks.count('x'))
    names = [f'`{text}`'.replace('|', r'\|') for text in (f.name, f.domain)]
    lines.append([*names, *marks, count, str(printed)])
  return markdown.table(head, lines)


def _ridge(
  name: str,
  domain: str,
  w: np.ndarray,
  value: _Scalar,
  slope: _Scalar,
  fold: _Scalar = lambda x: x,
) -> properties.Function:
  """A function of w'x."""
  of_x = lambda x: value(x @ w)
  gradient = lambda x: slope(x @ w)[:, None] * w[None]
  return properties.Function(name, domain, len(w), of_x, gradient, fold)


def _sigmoid(u):
  return np.exp(-np.logaddexp(0, -u))


# Values and slopes.
_INVERSE = lambda u: 1 / abs(u), lambda u: -np.sign(u) / u**2
_ROOT = lambda u: np.sqrt(u + 1), lambda u: 0.5 / np.sqrt(u + 1)
_SOFTPLUS = lambda u: np.logaddexp(0, u), _sigmoid
_SIGMOID = _sigmoid, lambda u: _sigmoid(u) * _sigmoid(-u)
_WAVE = (
  lambda u: u**2 * np.sin(1 / u),
  lambda u: 2 * u * np.sin(1 / u) - np.cos(1 / u),
)


def _half_space(w, b):
  """Reflects the points with w'x < -b."""
  return lambda x: x + (abs(x @ w + b) - (x @ w + b))[:, None] * w[None]


_norms = lambda x: np.linalg.norm(x, axis=1, keepdims=True)
_interval = lambda x: np.clip(x, -1, 1)
_ball = lambda x: x / np.maximum(_norms(x), 1)
_sphere = lambda x: x / _norms(x)
