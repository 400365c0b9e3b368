"""Arguments stand in one order throughout the theory and the privacy."""

import collections
import importlib
import inspect
import itertools
import pkgutil
import re

from fl_sketch import privacy
import papers
from papers.common import statements as catalog, symbols

KEYWORDS = {'accountant', 'client_lr', 'form', 'server_lr', 'smoothness'}
THEORY = r'statements|curvature|common\.(tails|privacy)'
INTERNAL = {'events', 'profiles'}  # of the accountant
CHECKS = {'check_convexity', 'is_printed'}  # of these very arguments
AS_A_ROUND = 'check_round'  # takes what a round takes, in its order


def functions():
  """Every public function of both packages, by its full name."""
  found = {}
  for package in papers, privacy:
    prefix = f'{package.__name__}.'
    for _, name, _ in pkgutil.walk_packages(package.__path__, prefix):
      if package is papers and not re.search(THEORY, name):
        continue
      module = importlib.import_module(name)
      for key, value in vars(module).items():
        own = inspect.isfunction(value) and value.__module__ == name
        if own and not key.startswith('_') and key != AS_A_ROUND:
          found[f'{name}.{key}'] = value
  return found


def positional(function):
  parameters = inspect.signature(function).parameters.values()
  return [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]


FUNCTIONS = functions()


def test_no_two_functions_take_two_arguments_in_opposite_orders():
  """Swapped numbers raise no error: both are floats."""
  places = collections.defaultdict(list)
  for name, function in FUNCTIONS.items():
    for pair in itertools.combinations(positional(function), 2):
      places[pair].append(name)
  assert len(places) > 100
  swapped = {
    p: (places[p], places[p[::-1]]) for p in places if p[::-1] in places
  }
  assert swapped == {}


def test_what_has_no_place_in_an_order_is_given_by_keyword():
  """Catches a form, or a step size, that passes for the number before it."""
  for name, function in FUNCTIONS.items():
    _, module, short = name.rsplit('.', 2)
    if module not in INTERNAL and short not in CHECKS:
      assert not KEYWORDS & set(positional(function)), name


def test_symbols_are_of_arguments_that_there_are():
  """Catches a symbol of a renamed argument, which the catalog would lose."""
  for paper, known in symbols.SYMBOLS.items():
    own = [s for s in catalog.statements() if s.id.startswith(paper)]
    used = itertools.chain(*(symbols.names(s.function) for s in own))
    assert known.keys() <= {*used}
