"""What configs of studies start from: functions of `configs`."""

import importlib

# `configs` in a checkout, `fl_sketch.configs` in an installed package.
_CONFIGS = importlib.import_module(
  __name__.removesuffix('papers.common.config_fields') + 'configs'
)
new, attack, is_quick = _CONFIGS.new, _CONFIGS.attack, _CONFIGS.is_quick
paper, words = _CONFIGS.paper, _CONFIGS.words
