"""Methods in the settings of Chen et al., section 5, appendix D."""

from ...common.workspace import Fields
from . import settings

METHODS = (
  'fedadam', 'safl', 'fetchsgd', 'marina', 'cocktail_sgd', 'cd_adam',
  'onebit_adam',
)  # fmt: skip
WHOLE = 'fedadam', 'onebit_adam'  # which are told no number of floats


def method(
  setting: settings.LearningSetting, name: str, share: float = 1.0
) -> Fields:
  """Config, without its rate, of a method that sends this share of d."""
  floats = setting.floats(share)
  # Half of what MARINA sends after its first, whole gradient are whole ones.
  half = floats // 2
  own: dict[str, Fields] = {
    'fedadam': {'algorithm': 'fedavg', **settings.ADAM},
    'safl': {
      'algorithm': 'safl', **settings.ADAM,
      'sketch': {'kind': 'block_cyclic', 'size': floats},
    },
    # A table's k is a sixteenth of its numbers.
    'fetchsgd': {
      'algorithm': 'fetchsgd', 'options': {'k': max(1, floats // 16)},
      'sketch': {'kind': 'count_sketch', 'rows': 5, 'cols': floats // 5},
    },
    'marina': {
      'algorithm': 'marina', 'server_optimizer': 'momentum',
      'codec': {'kind': 'rand_k', 'k': half},
      'options': {'sync_probability': half / setting.dimension},
    },
    'cocktail_sgd': {
      'algorithm': 'cocktail_sgd', 'options': {'mask_ratio': 0.2},
      'codec': {
        'kind': 'quantized_top_k', 'k': _kept(floats), 'bits': 4, 'bucket': 16,
      },
    },
    # Values and their indices are half of the floats each.
    'cd_adam': {
      'algorithm': 'cd_adam', 'b2': 0.99, 'codec': {'kind': 'top_k', 'k': half},
    },
    'onebit_adam': {
      'algorithm': 'onebit_adam', 'b2': 0.99,
      'options': {'warmup': max(2, setting.fields['rounds'] // 5)},
    },
  }  # fmt: skip
  return setting.fields | own[name]


def rate(name: str) -> str:
  """The rate that is tuned: the server's, or that of clients if it has none."""
  return 'client_lr' if name == 'cocktail_sgd' else 'server_lr'


def _kept(floats: int) -> int:
  """Values that CocktailSGD keeps to send as many bytes as these floats."""
  # Of each value kept: an int32, half a byte, and a sixteenth of a scale.
  return max(16, int(floats / (1 + 1 / 8 + 1 / 16)) // 16 * 16)
