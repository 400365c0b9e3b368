"""Methods and runs in the settings of Chen et al., section 5, appendix D."""

from ...common import comparison
from ...common.workspace import Fields, Workspace
from . import settings

METHODS = (
  'fedadam', 'safl', 'fetchsgd', 'marina', 'cocktail_sgd', 'cd_adam',
  'onebit_adam',
)  # fmt: skip
WHOLE = 'fedadam', 'onebit_adam'  # which are told no number of floats
SHARE = 0.01  # floats that a client sends, of those of its model
SHARES = (SHARE, 0.1)  # of the comparisons
SEEDS = 6  # reported ones, from 1; seed 0 is that of the tuning
_SMALL = {'server_lr': (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1)}
_LARGE = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


def method(
  setting: settings.LearningSetting, name: str, share: float = 1.0
) -> Fields:
  """Config of a method that sends this share of a model's floats.

  Seven learning rates are in `sweep`: of the server, where it is adaptive or
  the only one that steps, or else of the clients.
  """
  floats, fields = setting.floats(share), setting.fields
  # Half of what MARINA sends after its first, whole gradient are whole ones.
  half = floats // 2
  own: dict[str, Fields] = {
    'fedadam': {'algorithm': 'fedavg', **settings.ADAM, 'sweep': _SMALL},
    'safl': {
      'algorithm': 'safl', **settings.ADAM, 'sweep': _SMALL,
      'sketch': {'kind': 'block_cyclic', 'size': floats},
    },
    'fetchsgd': fetchsgd(fields, floats) | {'sweep': {'server_lr': _LARGE}},
    'marina': {
      'algorithm': 'marina', **one_gradient(fields),
      'server_optimizer': 'momentum', 'sweep': {'server_lr': _LARGE},
      'codec': {'kind': 'rand_k', 'k': half},
      'options': {'sync_probability': half / setting.dimension},
    },
    'cocktail_sgd': cocktail_sgd(floats) | {'sweep': {'client_lr': _LARGE}},
    'cd_adam': cd_adam(fields, floats) | {'sweep': _SMALL},
    'onebit_adam': {
      'algorithm': 'onebit_adam', **one_gradient(fields), 'b2': 0.99,
      'sweep': _SMALL,
      'options': {'warmup': max(2, fields['rounds'] // 5)},
    },
  }  # fmt: skip
  return setting.fields | own[name]


def one_gradient(fields: Fields) -> Fields:
  """Makes clients send one gradient of the samples of their local steps."""
  steps, batch = fields['local_steps'], fields['batch_size']
  return {'local_steps': 1, 'batch_size': steps * batch}


def fetchsgd(fields: Fields, floats: int) -> Fields:
  """FetchSGD with a table of so many floats, and a sixteenth as its k."""
  return {
    'algorithm': 'fetchsgd', **one_gradient(fields),
    'sketch': {'kind': 'count_sketch', 'rows': 5, 'cols': floats // 5},
    'options': {'k': max(1, floats // 16)},
  }  # fmt: skip


def cocktail_sgd(floats: int) -> Fields:
  """CocktailSGD that sends as many bytes as these floats."""
  # Of each value kept: an int32, half a byte, and a sixteenth of a scale.
  kept = max(16, int(floats / (1 + 1 / 8 + 1 / 16)) // 16 * 16)
  return {
    'algorithm': 'cocktail_sgd', 'options': {'mask_ratio': 0.2},
    'codec': {
      'kind': 'quantized_top_k', 'k': kept, 'bits': 4, 'bucket': 16,
    },
  }  # fmt: skip


def cd_adam(fields: Fields, floats: int) -> Fields:
  """CD-Adam, whose values and indices are half of the floats each."""
  return {
    'algorithm': 'cd_adam', **one_gradient(fields), 'b2': 0.99,
    'codec': {'kind': 'top_k', 'k': floats // 2},
  }  # fmt: skip


def keys(ws: Workspace) -> list[tuple[str, float]]:
  """Every method with each of its shares; a few methods at quick scale."""
  names = ws.pick(('fedadam', 'safl', 'fetchsgd', 'cd_adam'), METHODS)
  several = ws.pick((SHARE,), SHARES)
  return [(n, x) for n in names for x in ((1.0,) if n in WHOLE else several)]


def entry(
  ws: Workspace, setting: settings.LearningSetting, name: str, share: float
) -> comparison.Entry:
  """A method's runs over seeds, at its best rate over all rounds of one seed.

  All, since a rate that leads early may diverge later. By the training loss:
  the test data are for the runs that are compared.
  """
  fields = method(setting, name, share)
  grid = fields.pop('sweep')
  return comparison.run(
    ws,
    f'{setting.name}/{{}}/{name}-{share:g}',
    fields,
    grid,
    ws.seeds(3, 1 + SEEDS)[1:],
    trials={'eval_every': setting.fields['rounds']},
    rates=ws.pick({rate: values[-3] for rate, values in grid.items()}, None),
  )
