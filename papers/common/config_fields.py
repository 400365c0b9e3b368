"""What configs of studies start from: `new` and `attack` of configs/."""

import importlib

# `configs` in a checkout, `fl_sketch.configs` in an installed package.
_CONFIGS = importlib.import_module(
  __name__.removesuffix('papers.common.config_fields') + 'configs'
)
attack = _CONFIGS.attack
new = _CONFIGS.new
